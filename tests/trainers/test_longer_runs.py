"""A run that is given more updates, goes on from an earlier checkpoint, and keeps some of its checkpoints."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from marl_gem import cli
from marl_gem.errors import CheckpointError, ConfigError
from marl_gem.runs.folder import checkpoints
from marl_gem.specs import load_policy
from marl_gem.trainers import checkpoint
from marl_gem.trainers.config import read_config
from marl_gem.trainers.run import TrainingRun, branch, read_report
from tests.trainers.support import KUHN, kuhn, rows, rows_without_times, weights, work

pytestmark = pytest.mark.slow

SHORT = ("training.episodes=8", "imitation.steps=5", "evaluation.final_episodes=4", "evaluation.probe_episodes=2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 4 updates, which has kept the checkpoints after 0, 2 and 4."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    work(
        TrainingRun.start(folder, kuhn(*SHORT, "training.updates=4", "training.save_every=1", "training.keep_every=2"))
    )
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def kept(folder: Path) -> list[str]:
    return [path.name for path in checkpoints(folder / "checkpoints")]


def training_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for row in rows_without_times(folder) if row["stage"] == "training"]


class TestMoreUpdates:
    def test_what_is_trained_stays_and_the_report_is_written_anew(
        self, copied: Path, finished: Path, steps: list[dict[str, Any]]
    ) -> None:
        before = training_rows(copied)
        run = TrainingRun.resume(copied, kuhn(*SHORT, "training.save_every=1", "training.keep_every=2"), updates=6)
        work(run)
        assert training_rows(copied)[:4] == before
        assert [row["update"] for row in training_rows(copied)] == [1, 2, 3, 4, 5, 6]
        assert [row["stage"] for row in rows(copied)].count("after") == 1
        assert read_report(copied).before == read_report(finished).before
        assert read_report(copied).after != read_report(finished).after
        assert read_config(copied).training.updates == 6
        planned = TrainingRun.start(copied.parent / "planned", kuhn(*SHORT, "training.updates=6"))
        of_extension, steps[:] = list(steps), []
        work(planned)
        expected = [(step["learning_rate"], step["kl_weight"]) for step in steps[-2:]]
        assert [(step["learning_rate"], step["kl_weight"]) for step in of_extension] == expected

    def test_an_extension_that_was_interrupted_goes_on(self, copied: Path, tmp_path: Path) -> None:
        unbroken = Path(shutil.copytree(copied, tmp_path / "unbroken"))
        work(TrainingRun.resume(unbroken, updates=7))
        work(TrainingRun.resume(copied, updates=7), until=5)
        assert not (copied / "report.json").exists(), "the run has not ended"
        resumed = TrainingRun.resume(copied)
        work(resumed)
        assert rows_without_times(copied) == rows_without_times(unbroken)
        expected, found = weights(checkpoint.load(unbroken)), weights(checkpoint.load(copied))
        assert all(torch.equal(found[name], expected[name]) for name in expected)

    def test_fewer_updates_than_it_has_had_are_an_error(self, copied: Path) -> None:
        before = (copied / "config.json").read_bytes()
        with pytest.raises(ConfigError, match=r"has had 4 updates, more than 3; to go back.*@3 --name"):
            TrainingRun.resume(copied, updates=3)
        with pytest.raises(ConfigError, match=r"updates was 4 and would be 9.*--updates N"):
            TrainingRun.resume(
                copied, kuhn(*SHORT, "training.updates=9", "training.save_every=1", "training.keep_every=2")
            )
        assert (copied / "config.json").read_bytes() == before

    def test_a_run_may_end_earlier_than_planned(self, tmp_path: Path) -> None:
        work(TrainingRun.start(tmp_path / "run", kuhn(*SHORT, "training.updates=50", "training.save_every=1")), until=2)
        work(TrainingRun.resume(tmp_path / "run", updates=2))
        assert [row["update"] for row in training_rows(tmp_path / "run")] == [1, 2]
        assert read_report(tmp_path / "run").after.matchups

    def test_it_may_not_cut_off_a_phase(self, tmp_path: Path) -> None:
        phases = "phases=[{start = 3, seats = {player_1 = 'random'}}]"
        config = kuhn(*SHORT, "seats={player_0 = 'a', player_1 = 'b'}", phases)
        run = TrainingRun.start(tmp_path / "run", config)
        with pytest.raises(ConfigError, match="phases start one after the other"):
            TrainingRun.resume(run.folder, updates=3)


class TestKeptCheckpoints:
    def test_every_so_many_are_kept_beside_the_newest(self, finished: Path) -> None:
        assert kept(finished) == ["update-000000", "update-000002", "update-000003", "update-000004"]

    def test_one_of_them_plays(self, finished: Path) -> None:
        policy = load_policy(f"{finished}@2", KUHN)
        assert getattr(policy, "llm").version == 2  # noqa: B009
        with pytest.raises(CheckpointError, match=r"@1; there is \S+@0, \S+@2, \S+@3, \S+@4$"):
            load_policy(f"{finished}@1", KUHN)

    def test_a_copy_goes_on_from_one_of_them(self, finished: Path, tmp_path: Path) -> None:
        before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
        branch(finished, 2, tmp_path / "copy")
        assert kept(tmp_path / "copy") == ["update-000000", "update-000002"]
        run = TrainingRun.resume(tmp_path / "copy")
        assert run.loop is not None and run.loop.updates == 2
        work(run)
        assert rows_without_times(tmp_path / "copy") == rows_without_times(finished)
        assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before
        with pytest.raises(ConfigError, match="holds something already"):
            branch(finished, 2, tmp_path / "copy")


def test_the_command_line_goes_back_and_on(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["marl-gem", "train", *arguments])
        with contextlib.suppress(SystemExit):
            cli.main()
        output = capsys.readouterr()
        return " ".join((output.out + output.err).split())

    assert "give a name to the run that goes on from there" in train("--resume", f"{finished}@2")
    assert "there is no checkpoint" in train("--resume", f"{finished}@9", "--name", "x", "--runs", str(tmp_path))
    shown = train("--resume", f"{finished}@2", "--name", "other", "--runs", str(tmp_path), "--updates", "3")
    assert "score" in shown and read_config(tmp_path / "other").training.updates == 3
    assert msgspec.to_builtins(read_config(finished))["training"]["updates"] == 4
