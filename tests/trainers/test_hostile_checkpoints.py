"""Checkpoints of somebody else, or damaged ones: what they say is checked, and nothing that they name is acted upon."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marl_gem import cli
from marl_gem.errors import CheckpointError, ConfigError, MarlGemError
from marl_gem.policies import LLMPolicy, PolicyPerSeat
from marl_gem.specs import PolicySpec, load_policy, training_options
from marl_gem.trainers import checkpoint
from marl_gem.trainers.checkpoint_state import read_state
from marl_gem.trainers.start import start
from tests.llm.folders import change_json
from tests.trainers.support import DESK, KUHN, desk, kuhn

HUGE = 10**30
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with a checkpoint after one update."""
    loop, _ = start(kuhn("imitation.steps=0", "training.episodes=8"))
    loop.update()
    folder = tmp_path_factory.mktemp("runs") / "run"
    checkpoint.save(folder / "checkpoints", loop)
    return folder


@pytest.fixture(scope="module")
def written_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with a checkpoint of two policies."""
    loop, _ = start(desk("imitation.episodes=10"))
    folder = tmp_path_factory.mktemp("runs") / "desk"
    checkpoint.save(folder / "checkpoints", loop)
    return folder


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "run"))


def newest(run: Path) -> Path:
    return checkpoint.newest(run)


def rewrite(run: Path, **values: Any) -> None:
    """Change a description as somebody does who means it: in a format without a checksum."""
    change_json(newest(run) / "state.json", **{"format": 3, "checksum": ..., **values})


def changed_config(run: Path, **values: Any) -> None:
    config = json.loads((newest(run) / "state.json").read_text())["config"]
    scenario = {**config["scenarios"][0], **values.pop("scenario", {})}
    rewrite(run, config={**config, "scenarios": [scenario], **values})


READERS: tuple[Callable[[Path], Any], ...] = (
    checkpoint.load,
    lambda run: checkpoint.load_policy(run, KUHN),
    lambda run: checkpoint.scenario_options(run, KUHN),
)


def refused(run: Path, complaint: str | None = None) -> None:
    """Every reader refuses it, in a moment."""
    begun = time.monotonic()
    for read in READERS:
        with pytest.raises((CheckpointError, ConfigError), match=complaint):
            read(run)
    assert time.monotonic() - begun < 30


# Which files there are


def test_every_file_is_listed(written: Path) -> None:
    path = newest(written)
    there = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    assert there == {"state.json", *read_state(path).files}


@pytest.mark.parametrize(
    "name",
    [
        "policy/model/modeling_x.py",
        "policy/model/model.safetensors.index.json",
        "policy/model/adapter_config.json",
        "policy/model/chat_templates/x.jinja",
        "policy/model/.hidden/x.json",
        "another/x",
        ".lock",
    ],
)
def test_a_file_that_is_not_listed_is_refused(run: Path, name: str) -> None:
    file = newest(run) / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("{}")
    refused(run, f"holds {name}, which its state.json does not list, so somebody added it")


def test_what_file_managers_leave_behind_does_not_matter(run: Path) -> None:
    for name in (".DS_Store", "policy/model/._model.safetensors", "policy/Thumbs.db"):
        (newest(run) / name).write_bytes(b"\x00")
    assert checkpoint.load(run).updates == 1


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "policy/../../../x", "policy//model/config.json", "", "."])
def test_a_list_that_leads_out_of_the_checkpoint_is_refused(run: Path, name: str) -> None:
    (run / "x").write_text("{}")
    files = json.loads((newest(run) / "state.json").read_text())["files"]
    rewrite(run, files={**files, name: [2, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"]})
    refused(run, "is missing|lies outside of it")


@pytest.mark.parametrize("name", ["policy/model/model.safetensors", "policy/model", "policy", "policy/extra"])
def test_a_link_is_refused(run: Path, name: str, tmp_path: Path) -> None:
    path = newest(run) / name
    if path.exists():
        path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    refused(run, f"{name} is a link; a checkpoint holds files alone")


def test_a_description_or_a_file_that_is_a_pipe_or_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    state = newest(run) / "state.json"
    state.rename(tmp_path / "state.json")
    state.symlink_to(tmp_path / "state.json")
    refused(run, "is no file of at most 16 MiB")
    state.unlink()
    state.symlink_to("/dev/zero")
    refused(run, "is no file of at most 16 MiB")
    state.unlink()
    os.mkfifo(state)
    refused(run, "is no file of at most 16 MiB")
    state.unlink()
    (tmp_path / "state.json").rename(state)
    os.mkfifo(newest(run) / "policy" / "pipe")
    refused(run, "policy/pipe is no file")


# What the description says


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"updates": 0}, "it was changed since it was written"),
        ({"config": {}}, "it was changed since it was written"),
        ({"checksum": ...}, "it was changed since it was written"),
        ({"checksum": 5}, "Expected `str`"),
    ],
    ids=str,
)
def test_a_description_that_was_changed_is_noticed(run: Path, values: dict[str, Any], complaint: str) -> None:
    change_json(newest(run) / "state.json", **values)
    refused(run, complaint)


MALFORMED: dict[str, list[Any]] = {
    "updates": [-1, HUGE, 1.5, None, "1", [], True, 1 << 41],
    "policies": [[], {}, None, 5, "policy", {"policy": []}, {"policy": {}}, DEEP],
    "files": [[], None, {"x": 5}, {"x": [1]}, {"x": [1, 5]}, {"x": ["a", "b"]}, {}],
    "config": [[], None, 5, "x", DEEP, {}, {"scenario": 5}, {"scenarios": [5]}],
    "format": [None, [3], "3"],
}
SOUND = {"updates": 1, "pool": [0], "reference": True}
MALFORMED["policies"] += [{"../policy": SOUND}, {"other": SOUND}, {"policy": SOUND, "other": SOUND}]
WRONG: dict[str, list[Any]] = {
    "updates": [-1, 2, HUGE],
    "pool": [0, [-1], [HUGE], [5], ["0"]],
    "reference": ["yes", None],
}
MALFORMED["policies"] += [{"policy": {**SOUND, name: value}} for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize(
    "values",
    [{name: value} for name, values in MALFORMED.items() for value in values],
    ids=lambda values: str(values)[:60],
)
def test_a_malformed_description_is_an_error_and_nothing_else(run: Path, values: dict[str, Any]) -> None:
    rewrite(run, **values)
    refused(run)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"5", b'{"files": NaN}', b"[" * 10**6, b"\xff\xfe", b'"' * 99])
def test_a_description_that_is_no_json_object_is_an_error(run: Path, content: bytes) -> None:
    (newest(run) / "state.json").write_bytes(content)
    refused(run, r"state.json is damaged.*Remove it, so that the one before it is used")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"updates": 1000}, "has policy after 1000 updates, but its run trains policy for 6"),
        ({"policies": {"policy": {"updates": 1, "pool": [0], "reference": False}}}, "other tensors than it should"),
        ({"policies": {"policy": {"updates": 1, "pool": [], "reference": True}}}, "other tensors than it should"),
        ({"policies": {"policy": {"updates": 1, "pool": [0, 1], "reference": True}}}, "other tensors than it should"),
    ],
    ids=str,
)
def test_a_description_of_other_tensors_is_refused_when_training_goes_on(
    run: Path, values: dict[str, Any], complaint: str
) -> None:
    folder = newest(run)
    rewrite(run, **values)
    with pytest.raises(CheckpointError, match=complaint):
        checkpoint.load(folder.rename(folder.with_name("copy")))


def test_a_checkpoint_under_the_name_of_another_is_refused(run: Path) -> None:
    newest(run).rename(run / "checkpoints" / "update-000007")
    refused(run, "it was written after 1 updates")


# What the configuration of a checkpoint may do


def hostile_module(folder: Path) -> Path:
    """A Python file that leaves a mark beside it when it is imported."""
    (folder / "hostile.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('mark').touch()\n"
        "from marl_gem.scenarios.games.kuhn_poker import *\nEnv = KuhnPoker\nclass Options: pass\n"
    )
    return folder / "hostile.py"


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": {"name": "hostile:Env", "options": {}}},
        {"scenario": {"wrappers": ["hostile:Env"]}},
        {"scenario": {"wrappers": ["record_episodes=/tmp/nowhere/at/all"]}},
        {"seats": {"player_0": "policy", "player_1": "qwen@http://127.0.0.1:9/v1"}},
        {"seats": {"player_0": "policy", "player_1": "hf:/nowhere"}},
        {"phases": [{"start": 1, "seats": {"player_1": "litellm:x/y"}}]},
        {"evaluation": {"opponents": ["scripted:nobody", "@http://127.0.0.1:9/v1"]}},
        {"imitation": {"seats": {"player_0": "replay:/dev/zero"}}},
        {"policy": {"start_from": "/nowhere", "view": "bare", "max_tokens": 4}},
        {"device": "cuda:99", "threads": 0},
    ],
    ids=str,
)
def test_what_a_checkpoint_names_is_not_looked_at_when_it_is_played(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    hostile_module(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    changed_config(run, **values)
    assert isinstance(load_policy(str(run), KUHN), LLMPolicy)
    assert training_options([PolicySpec.parse(str(run))], KUHN) == {}
    assert not (tmp_path / "mark").exists()


def test_a_scenario_that_is_code_is_not_imported_for_being_named_by_a_checkpoint(
    written_desk: Path, tmp_path: Path
) -> None:
    module = hostile_module(tmp_path)
    run = Path(shutil.copytree(written_desk, tmp_path / "run"))
    config = json.loads((newest(run) / "state.json").read_text())["config"]
    other = {"id": f"{module}:Env", "options": {}, "wrappers": ["time_limit=3"], "seats": {"player_0": "assistant"}}
    rewrite(run, config={**config, "scenarios": [*config["scenarios"], other]})
    assert isinstance(load_policy(str(run), DESK), PolicyPerSeat)
    assert not (tmp_path / "mark").exists()


def test_each_seat_is_held_by_the_policy_that_trained_in_it(written_desk: Path) -> None:
    policy = load_policy(str(written_desk), DESK)
    assert isinstance(policy, PolicyPerSeat)
    assert {seat: held.name for seat, held in policy.policies.items()} == {
        "assistant": "desk/assistant@0",
        "user": "desk/user@0",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user_reward", "judge:qwen@http://127.0.0.1:9/v1"),
        ("user_reward", "judge:litellm:openai/gpt-4o"),
        ("split", "../../etc"),
        ("path", "/etc/passwd"),
        ("command", ["rm", "-r"]),
        ("task", {"path": "x"}),
        ("max_actions", float("inf")),
    ],
)
def test_an_option_that_may_name_something_outside_is_not_taken(
    written_desk: Path, tmp_path: Path, name: str, value: Any
) -> None:
    run = Path(shutil.copytree(written_desk, tmp_path / "run"))
    changed_config(run, scenario={"options": {"split": "train", name: value}})
    specs = [PolicySpec.parse(str(run))]
    with pytest.raises(MarlGemError, match=rf"was trained with {name}=.*Set the option yourself|it holds Infinity"):
        training_options(specs, DESK)
    if value != float("inf"):
        assert "split" in training_options(specs, DESK, {name}) or name == "split"


def test_options_that_say_what_is_shown_are_taken(written_desk: Path) -> None:
    specs = [PolicySpec.parse(str(written_desk))]
    assert training_options(specs, DESK) == {"split": "train"}
    assert training_options(specs, DESK, ["split"]) == {}


def test_the_options_that_a_policy_brings_along_are_shown(
    written_desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["marl-gem", "play", DESK, "--seat", f"assistant={written_desk}", "--seat", "user=scripted:expert"]
    line = "options as in training: split=train (-o sets others)"
    for more, shown in (([], True), (["-o", "split=test"], False)):
        monkeypatch.setattr("sys.argv", [*command, *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        assert (line in capsys.readouterr().err) == shown
