"""The command `marl-gem view` in a terminal and on a pipe."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from marl_gem.cli.view import view
from marl_gem.errors import MarlGemError, RecordError
from marl_gem.runs.library import RunLibrary
from marl_gem.types import Response, Role, ToolSpec, Turn
from marl_gem.viewer.text import show_episodes, show_runs, show_transcript
from marl_gem.viewer.text_curves import sparkline
from tests.viewer.cases import training_run, village
from tests.viewer.recorded import (
    HOSTILE,
    POLICY,
    episode,
    failed,
    with_roles,
    write_run,
)

app = typer.Typer(pretty_exceptions_enable=False)


app.command("view")(view)


app.command("nothing")(lambda: None)  # with a single command typer leaves its name out


def run_view(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["view", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_list_on_a_pipe_has_a_line_for_each_episode(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode(0, id="tab\there"), *(episode(n) for n in range(1, 300))], [failed(999)])
    code, printed = run_view(folder, "--text")
    head, *lines = [line.split("\t") for line in printed.splitlines()]
    assert code == 0 and head == ["#", "episode", "user", "assistant", "end", "turns", "tokens", "cost", "seconds"]
    assert len(lines) == 301 and {len(line) for line in lines} == {9} and lines[0][1] == "tab here"
    assert lines[5] == ["6", "talk-5", "+0 failure", "+1 success", "terminated", "3", "42", "$0.0020", "2.5"]
    _, printed = run_view(folder, "--text", "--filter", "error")
    assert [line.split("\t")[0] for line in printed.splitlines()] == ["#", "e1"]
    _, printed = run_view(folder, "--text", "--search", "(17)", "--sort", "turns", "-n", "5")
    assert [line.split("\t")[1] for line in printed.splitlines()] == ["episode", "talk-17"]


def test_a_transcript_on_a_pipe(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [episode(0)])
    _, shown = run_view(folder, "--text", "--episode", "talk-0")
    assert '-> weather { "town": "Zürich" }' in shown and '<- weather {"sky": "cloudless"}' in shown
    assert "(thought) I must look it up first." in shown and "--- 3 assistant  +1" in shown
    _, view = run_view(folder, "--text", "--episode", "1", "--agent", "user")
    assert "You want to know" in view and "cloudless" not in view and "thought" not in view
    with pytest.raises(RecordError, match="no agent 'nobody' in episode talk-0; its agents are user, assistant"):
        run_view(folder, "--text", "--episode", "1", "--agent", "nobody")
    with pytest.raises(RecordError, match="no episode 'x'"):
        run_view(folder, "--text", "--episode", "x")


def test_a_role_on_a_pipe_is_short_or_for_its_agent_complete(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [with_roles(0), episode(1)])
    _, shown = run_view(folder, "--text", "--episode", "1")
    assert "--- user's role\n    You plan a walk.\n\n" in shown
    short = "You are a forecaster. Rule 1: be brief. Rule 2"
    assert f"    {short}" in shown and f"... ({len(POLICY):,} characters)\n" in shown and "Rule 39" not in shown
    assert "    tools: weather\n    (all of it: --agent assistant)\n" in shown and "Tells the weather" not in shown
    assert shown.index("'s role") < shown.index("--- 1 user")
    _, view = run_view(folder, "--text", "--episode", "1", "--agent", "assistant")
    assert POLICY.replace("\n", "\n    ") in view and '"town": {' in view and "tool weather: Tells the weather." in view
    assert "plan a walk" not in view and "--agent" not in view
    _, old = run_view(folder, "--text", "--episode", "2")
    assert "'s role" not in old


def test_several_runs_in_a_terminal(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [episode(0)])
    write_run(tmp_path / "b", [episode(0)], [failed(1)])
    _, printed = run_view(tmp_path, "--text")
    assert {line.split("\t")[0] for line in printed.splitlines()[1:]} == {"a", "b"}
    with pytest.raises(MarlGemError, match="choose one with --run"):
        run_view(tmp_path, "--text", "--filter", "failure")
    _, printed = run_view(tmp_path, "--text", "--run", "b", "--filter", "failed")
    assert "TransientLLMError" in printed
    with pytest.raises(RecordError, match="no run 'c'"):
        run_view(tmp_path, "--text", "--run", "c")


def test_wrong_arguments_are_errors_before_a_page_is_served(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [episode(0)])
    for arguments, message in {
        ("--filter", "wun"): "no filter 'wun'",
        ("--sort", "luck"): "cannot be sorted by 'luck'",
        ("--episode", "x"): "no episode 'x'",
    }.items():
        with pytest.raises(MarlGemError, match=message):
            run_view(tmp_path / "a", "--no-browser", *arguments)
    assert run_view(tmp_path / "a", "--no-browser", "--port", "70000")[0] == 2
    write_run(tmp_path / "b", [episode(0)])
    with pytest.raises(MarlGemError, match="choose one with --run"):
        run_view(tmp_path, "--no-browser", "--episode", "1")


@pytest.mark.parametrize("terminal", [True, False])
def test_no_text_of_a_run_can_control_a_terminal(tmp_path: Path, terminal: bool) -> None:
    turns = (
        Turn(
            HOSTILE,
            [{"type": HOSTILE}, {"type": "image", "url": HOSTILE}],
            Response(HOSTILE),
            info={"illegal": HOSTILE},
        ),
    )
    roles = {HOSTILE: Role(HOSTILE, (ToolSpec(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),))}
    hostile = episode(
        0, id=HOSTILE, turns=turns, models={HOSTILE: HOSTILE}, returns={HOSTILE: 1.0}, limit=HOSTILE, roles=roles
    )
    library = RunLibrary(write_run(tmp_path / "\x1b[2Jrun", [hostile, episode(1, id="[bold]markup[/bold]")]))
    run = library.open(next(iter(library.runs())))
    with (tmp_path / "printed").open("w+", encoding="utf-8") as file:
        out = Console(file=file, force_terminal=terminal, color_system=None, width=120)
        show_runs(out, library)
        show_episodes(out, run, run.entries())
        show_transcript(out, run, run.entries()[0])
        show_transcript(out, run, run.entries()[0], HOSTILE)
        file.seek(0)
        printed = file.read()
    assert "[U+001B]" in printed and "<script>" in printed and "[bold]markup" in printed
    assert not set(printed) & {chr(code) for code in (0, 7, 0x1B, 0x202E)}


def start_view(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    code = "import typer; from marl_gem.cli.view import view; typer.run(view)"
    command = [sys.executable, "-c", code, str(folder), "--no-browser", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_the_server_and_frees_the_port(tmp_path: Path) -> None:
    process = start_view(write_run(tmp_path / "run", [episode()]))
    assert process.stdout
    url = next(word for word in process.stdout.readline().split() if word.startswith("http://127.0.0.1:"))
    port = int(url.split(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)):  # somebody still listens; nobody waits for that
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=10)
    assert process.returncode == 0 and "ended" in printed and complaints == ""
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_the_curves_of_a_training_are_lines_of_text(tmp_path: Path) -> None:
    folder = training_run(tmp_path / "run")
    _, printed = run_view(folder, "--text")
    table, curves = printed.split("\n\n")
    assert len(table.splitlines()) == 13
    head, *lines = [line.split("\t") for line in curves.splitlines()]
    assert head == ["metric", "curve", "first", "last", "best"]
    shown = {line[0]: line[1:] for line in lines}
    assert shown["score"] == ["▁▂▃▄▅▆▇█", "0.4", "0.82", "0.82"]
    assert shown["loss"][1:] == ["1", "0.125", "0.125"] and shown["return/player_1"][3] == "-0.4"
    assert [line[0] for line in lines][:3] == ["score", "return/player_0", "return/player_1"]
    assert shown["grad_norm"] == ["▄" * 8, "0.5", "0.5", ""]


def test_a_long_curve_fits_a_line() -> None:
    assert len(sparkline([float(n) for n in range(1000)])) <= 32
    assert sparkline([1.0]) == "▄" and sparkline([-1e308, 1e308, 1e308]) == "▁██"


def test_turns_at_the_same_time_are_a_round_and_messages_are_printed_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [village(agents=3)])
    _, shown = run_view(folder, "--text", "--episode", "1")
    assert shown.count("step 1: 3 agents at the same time") == shown.count("step 2: 3 agents at the same time") == 1
    assert shown.count("I am wolf_0, and in step 1") == 1
    assert "    heard wolf_0 (1), villager_1 (2), villager_2 (3)\n" in shown
    _, view = run_view(folder, "--text", "--episode", "1", "--agent", "villager_2")
    assert "I am wolf_0, and in step 1" in view and "at the same time" not in view
