"""Options of `reset`, from the command line and from Python: in every episode, and part of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import ConfigError
from marl_gem.evaluation import evaluate
from marl_gem.evaluation.report import read_report
from marl_gem.policies import RandomPolicy
from marl_gem.runs.reader import RunReader

VILLAGE = "tests.toys:Village"


def command(*arguments: str | Path) -> None:
    result = CliRunner().invoke(app, ["eval", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception


def villages(folder: Path) -> set[str]:
    reader = RunReader(folder)
    return {reader.read(entry).options["village"] for entry in reader.entries()}


@pytest.mark.parametrize("processes", [1, 2])
def test_they_reach_every_episode_and_are_kept_when_the_run_goes_on(processes: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start = ("--reset", "village=Oslo", "--max-turns", "2", "--processes", processes)
    command(VILLAGE, "-n", "2", "--out", folder, *map(str, start))
    report = read_report(folder)
    assert report.config.reset == {"village": "Oslo"} and "--reset village=Oslo" in str(report.command)
    command("--resume", "--out", folder, "-n", "3")
    assert villages(folder) == {"Oslo"} and read_report(folder).episodes.counted == 3
    with pytest.raises(ConfigError, match="reset"):
        command("--resume", "--out", folder, "--reset", "village=Bergen")


def test_the_number_of_the_task_is_no_such_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose them with tasks"):
        evaluate("tau:desk-v0", RandomPolicy(), n=1, reset={"task": 3})
