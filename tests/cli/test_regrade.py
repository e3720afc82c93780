"""marl-gem regrade."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app

SCENARIO = '''
from marl_gem import MultiAgentEnv, SequentialSelector


class Echo(MultiAgentEnv):
    """Pays for a 1."""

    possible_agents = ("solver",)
    selector = SequentialSelector()

    def observe(self, agent):
        return "0 or 1?"

    def legal_actions(self, agent):
        return ["0", "1"]

    def _process_action(self, agent, action):
        self.rewards[agent] = float(action == "1")
        self.terminations[agent] = True


def generous(episode, agent):
    return 1.0
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "echo.py").write_text(SCENARIO)
    played = CliRunner().invoke(app, ["eval", "echo.py:Echo", "-n", "8", "--out", "runs/first"])
    assert played.exit_code == 0, played.output
    return tmp_path


def test_the_scores_of_a_run_again(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["regrade", "runs/first"])
    assert shown.exit_code == 0
    assert (
        "8 of 8 recorded episodes are scored again in runs/first-regraded-1: 8 as before, 0 otherwise." in shown.output
    )
    assert (folder / "runs/first-regraded-1/report.md").exists()

    shown = CliRunner().invoke(app, ["regrade", "runs/first", "--reward", "echo.py:generous", "--out", "runs/kind"])
    assert shown.exit_code == 0 and "failure, now success; return 0, now 1" in shown.output
    assert "100.0%" in shown.output, "the comparison follows"
    assert "marl-gem regrade" in (folder / "runs/kind/report.md").read_text()
    viewed = CliRunner().invoke(app, ["view", "runs/kind", "--text"])
    assert viewed.exit_code == 0 and viewed.output.count("+1 success") == 8

    written = json.loads(CliRunner().invoke(app, ["regrade", "runs/first", "--out", "runs/again", "--json"]).output)
    assert (written["recorded"], written["scored"], written["changed"]) == (8, 8, [])


def test_the_episodes_that_cannot_be_scored(folder: Path) -> None:
    text = (folder / "runs/first/episodes.jsonl").read_text().replace("0 or 1?", "1 or 0?")
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.pop("crc32", None)
    (folder / "runs/first/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = CliRunner().invoke(app, ["regrade", "runs/first"])
    assert shown.exit_code == 1
    assert "0 of 8 recorded episodes are scored again" in shown.stdout
    assert "8 episodes cannot be scored so: an agent observes something else" in shown.stderr
    assert "in turn 1 it observed '1 or 0?', and now '0 or 1?'" in shown.stderr
