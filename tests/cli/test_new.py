"""marl-gem new: what it writes is a scenario that keeps the contract, and can be used at once."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import marl_gem
from marl_gem.cli import app
from marl_gem.cli.examples import EXAMPLES
from marl_gem.cli.group import COMMANDS
from marl_gem.cli.new import Turns
from marl_gem.testing import Plan, check_env


def marl_gem_command(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("turns", "agents"), [*((turns, 3) for turns in Turns), (Turns.graph, 1)], ids=str)
def test_what_is_written_keeps_the_contract(turns: Turns, agents: int, tmp_path: Path) -> None:
    if turns is Turns.graph:
        pytest.importorskip("networkx")
    marl_gem_command("new", f"my_{turns}", "--agents", str(agents), "--turns", turns, "--out", str(tmp_path))
    scenario = f"{tmp_path}/my_{turns}/my_{turns}.py:My{turns.capitalize()}"
    report = check_env(lambda: marl_gem.make(scenario), plan=Plan(seeds=(0,), steps=30, copies=4))
    assert report.ok, str(report)
    env: Any = marl_gem.make(scenario, highest=3)
    env.reset(seed=0)
    assert len(env.agents) == agents
    assert "1 <= ? <= 3" in str(env.render())


def test_from_nothing_to_played_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "marl-gem check auction/auction.py:Auction" in marl_gem_command("new", "auction", "--turns", "phases")
    scenario = "auction/auction.py:Auction"
    assert " FAILED" not in marl_gem_command("check", scenario, "--seed", "0")
    assert "player_0, player_1" in marl_gem_command("list", scenario)
    assert "terminated after" in marl_gem_command("play", scenario, "-o", "highest=2")
    evaluated = marl_gem_command("eval", scenario, "-n", "4", "--seat", "*=random", "--out", "runs/auction")
    assert "runs/auction/report.md" in evaluated
    assert "guess" in marl_gem_command("view", "runs/auction", "--text", "--episode", "1")
    assert "player_0 says" in marl_gem_command("playthrough", scenario)


@pytest.mark.long
def test_the_test_that_is_written_passes(tmp_path: Path) -> None:
    marl_gem_command("new", "auction", "--agents", "1", "--out", str(tmp_path))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "auction"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("name", "message"), [("My Game", "no name for a module"), ("class", "no name"), ("taken", "exists already")]
)
def test_a_name_that_cannot_be(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    result = CliRunner().invoke(app, ["new", name, "--out", str(tmp_path)])
    assert message in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


# Help


def test_every_command_has_examples_that_its_parser_takes() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(EXAMPLES) == set(commands) - {"tau"}
    for name, lines in EXAMPLES.items():
        for line in lines:
            command, *arguments = shlex.split(line)
            assert command == name
            commands[name].make_context(name, arguments)


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from marl_gem.cli import app\ntry: app(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed, loaded = done.stdout, done.stdout.split()
    assert all(name in listed for name in COMMANDS)
    assert not {"marl_gem.cli.play", "marl_gem.cli.train", "marl_gem.evaluation", "marl_gem.testing"} & set(loaded)


def test_short_options() -> None:
    assert marl_gem_command("--version").strip() == f"marl_gem {marl_gem.__version__}"
    for arguments in (["-h"], ["play", "-h"], ["tau", "-h"]):
        assert "Usage" in marl_gem_command(*arguments)
