"""Runs of older versions are still read: by the viewer, the export, replay, and --resume.

`old_format/README.md` says how the runs were made.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import marl_gem
from marl_gem.cli import app
from marl_gem.export.chat import write_chat
from marl_gem.policies.replay import ReplayPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.index import read_episodes
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader
from marl_gem.viewer.api import Api
from marl_gem.viewer.overview import overview
from marl_gem.viewer.text import show_runs

OLD = Path(__file__).parent / "old_format"
RUNS = {"evaluation": 4, "tasks": 2, "tournament": 2, "training": 6}
"""How many lines with episodes each has, failed attempts included."""


@pytest.mark.parametrize(("name", "count"), RUNS.items())
def test_the_reader_finds_all_episodes_and_the_configuration(name: str, count: int) -> None:
    run = RunReader(OLD / name)
    entries = run.entries()
    assert len(entries) == count and all(entry.summary for entry in entries)
    assert run.config["scenario"] == ("tau:desk-v0" if name == "tasks" else "game:KuhnPoker-v0")
    assert run.report and all(run.read(entry).turns for entry in entries)


def test_the_reader_finds_the_metrics_of_a_training_run() -> None:
    phases = [row["phase"] for row in RunReader(OLD / "training").metrics]
    assert phases[0] == "warm-up" and phases[-1] == "after" and "self-play" in phases


def test_games_are_contests_and_dialogues_are_tasks() -> None:
    for name in RUNS:
        summaries = [entry.summary for entry in RunReader(OLD / name).entries() if entry.summary]
        labels = {outcome.label for summary in summaries for outcome in summary.outcomes.values()}
        assert labels == ({"success"} if name == "tasks" else {"win", "loss"})


def test_an_attempt_that_failed_is_pending() -> None:
    total = overview(RunReader(OLD / "evaluation").entries())
    assert (total.episodes, total.failed, total.pending) == (3, 1, 1)


def test_the_viewer_lists_the_runs_and_answers_for_each() -> None:
    library = RunLibrary(OLD)
    text = io.StringIO()
    show_runs(Console(file=text), library)
    assert all(name in text.getvalue() for name in RUNS)
    api = Api(library)
    for name, count in RUNS.items():
        answer = api.run({"run": [name]})
        assert answer["episodes"] + answer["failed"] == count and answer["report"]
        assert api.episode({"run": [name], "key": ["1"]})["turns"]


@pytest.mark.parametrize("name", RUNS)
def test_the_export_writes_rows(tmp_path: Path, name: str) -> None:
    written = write_chat(RunReader(OLD / name), tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert written.errors == 0 and len(rows) == written.rows >= written.episodes
    assert written.episodes == len([*read_episodes(OLD / name / "episodes.jsonl")])
    assert {row["outcome"] for row in rows} <= {"win", "loss", "success"}


def test_a_replay_plays_the_same_episodes() -> None:
    recorded = [episode for _, episode in read_episodes(OLD / "evaluation" / "episodes.jsonl")]
    replay = ReplayPolicy(OLD / "evaluation")
    jobs = [Job(episode.seed, replay, episode.id, repeat=episode.repeat) for episode in recorded]
    again = collect(lambda: marl_gem.make("game:KuhnPoker-v0"), jobs)
    assert [episode.error for episode in again] == [None] * 3
    assert [episode.returns for episode in again] == [episode.returns for episode in recorded]


def test_an_evaluation_is_resumed(tmp_path: Path) -> None:
    run = shutil.copytree(OLD / "evaluation", tmp_path / "run")
    before = (run / "episodes.jsonl").read_bytes()
    result = CliRunner().invoke(app, ["eval", "--out", str(run), "--resume"])
    assert result.exit_code == 0, result.output
    after = (run / "episodes.jsonl").read_bytes()
    assert after.startswith(before)
    assert sorted(episode.id for _, episode in read_episodes(run / "episodes.jsonl")) == [f"{n}.0" for n in range(6)]
    counts = json.loads((run / "report.json").read_text())["episodes"]
    assert (counts["counted"], counts["pending"]) == (6, 0)


@pytest.mark.slow
def test_a_training_run_is_resumed(tmp_path: Path) -> None:
    """It has no checkpoint, so it begins again, with its configuration."""
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    run = shutil.copytree(OLD / "training", tmp_path / "run")
    result = CliRunner().invoke(app, ["train", "--resume", str(run)])
    assert result.exit_code == 0, result.output
    assert {row["update"] for row in RunReader(run).metrics} == {0, 1, 2, 3, 4}
