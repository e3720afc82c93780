"""Tasks in a terminal: a persistent confined shell, and tests that run afterwards, apart from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import InvalidOption, RecordError, ScenarioFault
from marl_gem.scenarios.tasks.terminal.env import TerminalEnv
from marl_gem.scenarios.tasks.terminal.formats import Broken, Command, Format, Read, finished, read, written
from marl_gem.scenarios.tasks.terminal.policies import solution_command
from marl_gem.scenarios.tasks.terminal.task import TASKS, NeedsImage, load_task, load_tasks
from marl_gem.testing import Plan, check_env
from marl_gem.tools.calls import write_call
from tests.sandbox.machine import confined

SAMPLE = ("count-errors", "git-first-commit", "fix-median")
NAMES = [path.name for path in sorted(TASKS.iterdir())]


def make_task(folder: Path, test: str = "echo 1 > /logs/verifier/reward.txt", **files: str) -> Path:
    """A folder with a task; files by their paths, with __ for /."""
    contents = {"task.toml": "", "instruction.md": "Do it.", "tests/test.sh": test}
    for name, text in {**contents, **{name.replace("__", "/"): text for name, text in files.items()}}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def run(env: Any, *commands: str) -> list[str]:
    """What the agent is shown after each command."""
    shown = []
    for command in commands:
        observations, *_, infos = env.step({"solver": written(command, env.actions)})
        seen = observations.get("solver", infos["solver"].get("final_observation"))
        shown.append(seen if isinstance(seen, str) else seen[-1]["text"])
    return shown


def finish(env: Any) -> tuple[float, str]:
    """The reward and the reason, when the agent finishes."""
    _, rewards, *_, infos = env.step({"solver": finished(env.actions)})
    assert env.done
    return rewards["solver"], infos["solver"]["failure"]


def started(folder: Path | None = None, **options: Any) -> Any:
    env = TerminalEnv(None if folder is None else str(folder), **options)
    env.reset(seed=0)
    return env


# Tasks of our own


def test_there_are_twenty_tasks_of_three_grades() -> None:
    tasks = load_tasks(TASKS)
    grades = [task.grade for task in tasks]
    assert {grade: grades.count(grade) for grade in sorted(set(grades))} == {"easy": 7, "hard": 6, "medium": 7}
    assert all(task.exit_code and task.solution and task.instruction for task in tasks)
    assert TerminalEnv(grade="hard").tasks == 6


@confined
@pytest.mark.parametrize("name", [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.long) for n in NAMES])
def test_the_solution_solves_a_task_and_doing_nothing_does_not(name: str) -> None:
    if missing := load_task(TASKS / name).missing:
        pytest.skip(f"{missing[0]} is not installed")
    env = started(task=name)
    assert finish(env) == (0.0, "tests failed")
    env.reset(seed=0)
    run(env, solution_command(env.task.solution))
    assert finish(env) == (1.0, "")


# The shell


@confined
def test_the_shell_keeps_its_state_and_the_tests_judge_what_is_left(tmp_path: Path) -> None:
    test = 'test "$(cat /app/a/x)" = 5 && test "$(cat y)" = env && echo 0.5 > /logs/verifier/reward.txt'
    env = started(make_task(tmp_path, test, environment__y="env"))
    assert env.observe("solver") == "Do it."
    assert run(env, "pwd; cat y; A=5", "mkdir a && cd a && echo $A > x; pwd; ls /tests /logs") == [
        "/app\nenv",
        "/app/a\n" + "ls: cannot access '/tests': No such file or directory\n"
        "ls: cannot access '/logs': No such file or directory\n[exit code 2]",
    ]
    fork = env.fork()
    run(env, "rm x")
    assert run(fork, "cat x; echo $A") == ["5\n5"]
    assert finish(fork) == (0.5, "tests failed")
    assert finish(env) == (0.0, "tests gave no reward")


@confined
def test_limits_of_commands(tmp_path: Path) -> None:
    folder = make_task(tmp_path)
    env = started(folder, max_commands=3, max_output=100)
    assert run(env, "seq 1000")[0].count("left out here") == 1
    assert run(env, "sleep 30 & wait & echo on") == ["on\n[1 commands left]"]
    _, rewards, terminations, truncations, _ = env.step({"solver": write_call("shell", {"command": "true"}) * 3})
    assert (rewards["solver"], terminations["solver"], truncations["solver"]) == (1.0, False, True)
    env = started(folder, max_failures=2, timeout=0.5)
    assert run(env, "sleep 30; true")[0].startswith("[stopped: it took longer than 0.5 s")
    *_, infos = env.step({"solver": write_call("shell", {"command": "false"})})
    assert (env.done, infos["solver"]["failure"], env.returns["solver"]) == (True, "2 commands failed in a row", 0.0)
    for options in ({"max_commands": 0}, {"timeout": -1}, {"actions": "mime"}, {"task": "no"}, {"grade": "no"}):
        with pytest.raises(InvalidOption):
            TerminalEnv(str(folder), **options)  # type: ignore[arg-type]


@confined
@pytest.mark.parametrize("actions", ["calls", "plain", "gem"])
def test_all_formats_play(actions: Format, tmp_path: Path) -> None:
    env = started(make_task(tmp_path, "cp x /logs/verifier/reward.txt"), actions=actions)
    assert run(env, "echo 1 > x\ncat x") == ["1"]
    assert finish(env) == (1.0, "")
    assert [tool.name for tool in env.role("solver").tools] == (["shell", "finish"] if actions == "calls" else [])


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ("Done.", "calls", Read([], True)),
        (write_call("finish", {}), "calls", Read([], True)),
        (write_call("shell", {"command": "ls", "timeout": 3}), "calls", Read([Command("ls", 3)], False)),
        ("```bash\nls -l\n```", "plain", Read([Command("ls -l")], False)),
        ("ls", "plain", Read([Command("ls")], False)),
        ("<bash>\ncmd: ls -l\ntimeout_secs: 3\n</bash>", "gem", Read([Command("ls -l", 3.0)], False)),
        (
            "<bash>cmd: 'ls'</bash><bash>\ncmd: |\n  a\n    b\n</bash>",
            "gem",
            Read([Command("ls"), Command("a\n  b")], False),
        ),
        ("<bash>cmd: ls</bash> <finish>", "gem", Read([Command("ls")], True)),
        ("hello", "gem", Read([], True)),
    ],
)
def test_commands_in_responses(text: str, format: Format, expected: Read) -> None:
    assert read(text, format) == expected


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("<tool_call>x</tool_call>", "calls"),
        (write_call("rm", {}), "calls"),
        (write_call("shell", {"command": 3}), "calls"),
        (write_call("shell", {"command": "ls", "timeout": -1}), "calls"),
        (write_call("shell", {"command": "ls", "cwd": "/"}), "calls"),
        ("<bash>ls</bash>", "gem"),
        ("<bash>cmd:</bash>", "gem"),
        ("<bash>cmd: ls\ntimeout_secs: soon</bash>", "gem"),
    ],
)
def test_broken_commands_are_told(text: str, format: Format) -> None:
    (step,), is_finished = read(text, format)
    assert isinstance(step, Broken) and not is_finished


@confined
def test_a_broken_call_is_answered_and_the_episode_goes_on(tmp_path: Path) -> None:
    env = started(make_task(tmp_path))
    observations, *_, infos = env.step({"solver": write_call("shell", {"cmd": "ls"})})
    assert observations["solver"][0]["text"].startswith("Error: it takes command")
    assert infos["solver"]["illegal"]
    assert finish(env) == (1.0, "")


@confined
def test_the_scenario_keeps_its_promises(tmp_path: Path) -> None:
    make_task(tmp_path)
    checks = ("plays", "observations", "isolation", "forking", "reset", "hostile_actions")
    check_env(lambda: TerminalEnv(str(tmp_path)), Plan(seeds=(27,), steps=4, copies=3), only=checks).raise_if_failed()


# The tests of a task


@confined
def test_a_program_of_the_agents_cannot_give_itself_a_reward(tmp_path: Path) -> None:
    """It runs in the tests, writes the reward and leaves a process; files of Python's and bash's do nothing."""
    test = "python3 -c 'import json'\nbash run.sh\ntest -e done"
    env = started(make_task(tmp_path, test, **{"task.toml": "[verifier]\nexit_code = true"}))
    forge = "echo 1 > /logs/verifier/reward.txt"
    run(
        env,
        f"echo '{forge}; (while :; do {forge}; done) &' > run.sh",
        "echo 'import os; os._exit(0)' > json.py; cp json.py usercustomize.py; cp run.sh ~/.bashrc",
        'd=$(python3 -c "import site; print(site.getusersitepackages())"); mkdir -p $d; cp json.py $d/usercustomize.py',
        "sleep 1000 &",
    )
    assert finish(env) == (0.0, "tests failed")


@confined
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("echo '{\"reward\": 0.25}' > /logs/verifier/reward.json", (0.25, "tests failed")),
        ("echo '{\"accuracy\": 1}' > /logs/verifier/reward.json", (1.0, "")),
        ("echo nan > /logs/verifier/reward.txt", (0.0, "reward.txt has no number")),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", (0.0, "tests gave no reward")),
        ("touch /tests/x 2>/dev/null || echo 1 > /logs/verifier/reward.txt", (1.0, "")),
    ],
)
def test_how_tests_give_a_reward(test: str, expected: tuple[float, str], tmp_path: Path) -> None:
    assert finish(started(make_task(tmp_path, test))) == expected


# Folders in Harbor's form

DOCKERFILE = """\
# A comment
FROM ubuntu:24.04
ARG PLACE=/data
ENV NAME="a value" OTHER=2
WORKDIR /app/work
COPY a.txt sub/ ./
COPY --chmod=755 a.txt /data/named.txt
RUN echo $NAME \\
    > name.txt && \\
    mkdir /data/made
RUN ["touch", "/data/made/it"]
CMD ["bash"]
"""


@confined
def test_a_dockerfile_without_a_network(tmp_path: Path) -> None:
    files = {"environment/Dockerfile": DOCKERFILE, "environment/a.txt": "A\n", "environment/sub/b.txt": "B\n"}
    env = started(make_task(tmp_path, **{name.replace("/", "__"): text for name, text in files.items()}))
    command = "pwd; cat a.txt b.txt name.txt /data/named.txt; ls /data/made; echo $NAME $OTHER"
    assert run(env, command) == ["/app/work\nA\nB\na value\nA\nit\na value 2"]
    assert finish(env) == (1.0, "")


@confined
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"task.toml": '[environment]\ndocker_image = "x/y:1"'}, "it names the image 'x/y:1'.*podman or docker"),
        ({"environment/docker-compose.yaml": ""}, "docker-compose.yaml.*podman or docker"),
        ({"environment/Dockerfile": "FROM nvidia/cuda:12"}, "FROM nvidia/cuda:12.*podman or docker"),
        ({"environment/Dockerfile": "FROM ubuntu\nRUN apt-get install -y jq"}, "no network here.*podman or docker"),
        ({"environment/Dockerfile": "FROM ubuntu\nCOPY a /etc/a"}, "/etc/a is read-only here"),
    ],
)
def test_a_task_that_needs_an_image_names_what_would_help(files: dict[str, str], message: str, tmp_path: Path) -> None:
    folder = make_task(tmp_path, **{name.replace("/", "__"): text for name, text in files.items()})
    with pytest.raises(NeedsImage, match=message):
        TerminalEnv(str(folder))


@confined
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"task.toml": "["}, "task.toml"),
        ({"task.toml": "metadata = 3"}, "metadata. is a table"),
        ({"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY none ."}, "there is no none"),
        ({"environment/Dockerfile": "FROM ubuntu\nDANCE"}, "the instruction DANCE is not known"),
        ({"environment/setup.sh": "echo oh; exit 3"}, r"setup.sh failed \(3\): oh"),
    ],
)
def test_a_folder_that_cannot_be_read_says_why(files: dict[str, str], message: str, tmp_path: Path) -> None:
    folder = make_task(tmp_path, **{name.replace("/", "__"): text for name, text in files.items()})
    with pytest.raises((RecordError, ScenarioFault), match=message):
        started(folder).step({"solver": finished("calls")})


def test_a_folder_without_tasks(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="has no tasks"):
        TerminalEnv(str(tmp_path))
    with pytest.raises(RecordError, match="there is no folder"):
        TerminalEnv(str(tmp_path / "none"))
    (tmp_path / "task.toml").write_text("")
    with pytest.raises(RecordError, match=r"there is no tests/test.sh"):
        TerminalEnv(str(tmp_path))


@confined
def test_a_command_that_is_missing_here_is_named(tmp_path: Path) -> None:
    folder = make_task(tmp_path, **{"task.toml": '[environment]\ncommands = ["no-such-command"]'})
    with pytest.raises(InvalidOption, match=r"needs 'no-such-command', which is not installed"):
        started(folder)
