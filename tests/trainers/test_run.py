"""A training run in its folder: what it leaves, resume, interruptions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem.errors import CheckpointError, ConfigError, JournalError, UnknownScenario
from marl_gem.trainers import checkpoint
from marl_gem.trainers.algorithms import algorithm_class
from marl_gem.trainers.config import read_config
from marl_gem.trainers.metrics import METRIC_FORMULAS, read_metrics
from marl_gem.trainers.run import TrainingRun, read_report
from marl_gem.types import Episode, from_json
from tests.trainers.support import KUHN, kuhn, rows, rows_without_times, weights, work

pytestmark = pytest.mark.slow


class TestRun:
    def test_it_leaves_what_it_promises(self, finished_kuhn: Path) -> None:
        report = read_report(finished_kuhn)
        for moment in (report.before, report.after):
            assert [list(matchup.agents) for matchup in moment.matchups] == [["player_0"], ["player_1"]]
            for matchup in moment.matchups:
                (counts,) = matchup.agents.values()
                assert counts.win + counts.draw + counts.loss == counts.games == 20
                assert 0 <= counts.illegal <= 20
        assert 0 <= report.before.score <= 1
        assert report.seconds > 0
        assert (finished_kuhn / "curve.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((finished_kuhn / "config.json").read_text())["scenarios"][0]["id"] == KUHN
        table = rows(finished_kuhn)
        assert [row["update"] for row in table if row["stage"] == "training"] == [1, 2, 3, 4, 5, 6]
        episodes = [from_json(line, Episode) for line in (finished_kuhn / "episodes.jsonl").read_text().splitlines()]
        assert len(episodes) == table[-1]["episodes"] == 40 + 6 * 2 + 40

    def test_the_warm_start_teaches_legal_play(self, finished_kuhn: Path) -> None:
        losses = [row["loss"] for row in rows(finished_kuhn) if row["stage"] == "imitation"]
        assert losses[-1] < losses[0] / 2
        matchups = read_report(finished_kuhn).before.matchups
        assert sum(counts.illegal for matchup in matchups for counts in matchup.agents.values()) <= 8

    def test_the_same_seed_gives_the_same_run_and_another_does_not(self, finished_kuhn: Path, tmp_path: Path) -> None:
        for name, seed in (("same", 0), ("other", 1)):
            work(TrainingRun.start(tmp_path / name, kuhn(f"seed={seed}")))
        same, other, unbroken = (
            weights(checkpoint.load(f)) for f in (tmp_path / "same", tmp_path / "other", finished_kuhn)
        )
        assert all(torch.equal(unbroken[name], same[name]) for name in unbroken)
        assert any(
            unbroken[name].shape != other[name].shape or not torch.equal(unbroken[name], other[name]) for name in other
        )

    @pytest.mark.parametrize("stop_after", [1, 3, 4])
    def test_a_resumed_run_equals_an_unbroken_one(self, finished_kuhn: Path, tmp_path: Path, stop_after: int) -> None:
        work(TrainingRun.start(tmp_path / "run", kuhn()), until=stop_after)
        work(TrainingRun.resume(tmp_path / "run"))  # from the last checkpoint, which may be older
        unbroken, resumed = (weights(checkpoint.load(folder)) for folder in (finished_kuhn, tmp_path / "run"))
        assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)
        assert rows_without_times(tmp_path / "run") == rows_without_times(finished_kuhn)

    def test_an_interruption_keeps_the_last_whole_update(self, tmp_path: Path) -> None:
        run = TrainingRun.start(tmp_path / "run", kuhn())
        work(run, until=3)
        run.save()
        assert checkpoint.load(tmp_path / "run").updates == 3

    def test_a_cut_off_line_is_no_obstacle(self, tmp_path: Path) -> None:
        work(TrainingRun.start(tmp_path / "run", kuhn()), until=5)
        for name in ("metrics.jsonl", "episodes.jsonl"):
            path = tmp_path / "run" / name
            path.write_bytes(path.read_bytes()[:-7])
        work(TrainingRun.resume(tmp_path / "run"))
        updates = [row["update"] for row in rows(tmp_path / "run") if row["stage"] == "training"]
        assert updates == [1, 2, 3, 4, 5, 6]

    def test_a_folder_in_use_is_refused_and_left_alone(self, finished_kuhn: Path) -> None:
        before = (finished_kuhn / "config.json").read_bytes()
        with pytest.raises(ConfigError, match="--resume"):
            TrainingRun.start(finished_kuhn, kuhn())
        assert (finished_kuhn / "config.json").read_bytes() == before

    def test_a_scenario_that_does_not_exist_leaves_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownScenario, match="Did you mean 'game:KuhnPoker-v0'"):
            TrainingRun.start(tmp_path / "run", kuhn("scenario=game:KuhnPokr-v0"))
        assert not (tmp_path / "run").exists()

    def test_resuming_under_another_configuration_is_refused(self, finished_kuhn: Path) -> None:
        with pytest.raises(ConfigError, match=r"training.episodes was 16 and would be 32.*new run"):
            TrainingRun.resume(finished_kuhn, kuhn("training.episodes=32"))

    def test_a_run_may_go_on_with_less_memory(self, finished_kuhn: Path, tmp_path: Path) -> None:
        work(TrainingRun.start(tmp_path / "run", kuhn()), until=3)
        smaller = kuhn("training.micro_batch_tokens=40", "training.activation_checkpointing=true")
        work(TrainingRun.resume(tmp_path / "run", smaller))
        assert read_config(tmp_path / "run").training.micro_batch_tokens == 40
        before, after = (weights(checkpoint.load(folder)) for folder in (finished_kuhn, tmp_path / "run"))
        assert all(torch.allclose(before[name], after[name], atol=1e-4) for name in before)

    def test_a_run_that_somebody_works_on_is_left_alone(self, tmp_path: Path) -> None:
        working: Any = TrainingRun.start(tmp_path / "run", kuhn()).work()
        next(working)
        before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
        with pytest.raises(JournalError, match="is working on"):
            next(TrainingRun.resume(tmp_path / "run").work())
        assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before != b""
        working.close()
        next(TrainingRun.resume(tmp_path / "run").work())

    def test_metrics_that_end_before_the_checkpoint_are_told(self, finished_kuhn: Path, tmp_path: Path) -> None:
        shutil.copytree(finished_kuhn, tmp_path / "run")
        metrics = tmp_path / "run" / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        metrics.write_text("".join(line for line in lines if '"update": 5' not in line))
        episodes = (tmp_path / "run" / "episodes.jsonl").read_bytes()
        with pytest.raises(CheckpointError, match=r"metrics.jsonl lacks some of the 6 updates"):
            TrainingRun.resume(tmp_path / "run")
        assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == episodes

    def test_a_checkpoint_of_another_configuration_is_refused(self, finished_kuhn: Path) -> None:
        with pytest.raises(CheckpointError, match=r"another configuration: training.learning_rate was 0.001 and would"):
            checkpoint.load(finished_kuhn, kuhn("training.learning_rate=0.002"))

    @pytest.mark.parametrize("row", [{"update": 1}, {"update": "1", "stage": "before", "seconds": 0, "episodes": 0}])
    def test_a_line_of_metrics_that_is_none_is_named(self, tmp_path: Path, row: dict[str, Any]) -> None:
        (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(JournalError, match=r"metrics.jsonl, line 1, is damaged: it lacks one of update, stage"):
            read_metrics(tmp_path)

    @pytest.mark.parametrize(
        ("config", "complaint"),
        [
            ({"format": 2, "kind": "eval"}, r"is no training run but an evaluation; go on with marl-gem eval --out"),
            ({"format": 2, "kind": "tournament"}, r"an evaluation; go on with marl-gem tournament --out"),
            ({"format": 2, "n": 3}, r"is no training run: its config.json names no scenario that is trained on"),
        ],
    )
    def test_a_folder_of_something_else_is_told(self, tmp_path: Path, config: dict[str, Any], complaint: str) -> None:
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ConfigError, match=complaint):
            TrainingRun.resume(tmp_path)

    def test_a_folder_that_is_no_run_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no config.json"):
            TrainingRun.resume(tmp_path)


class TestMetrics:
    def test_every_name_in_a_row_has_a_formula(self, finished_kuhn: Path, finished_desk: Path, tmp_path: Path) -> None:
        grouped = tmp_path / "grouped"
        work(TrainingRun.start(grouped, kuhn("algorithm.name=rloo", "training.updates=1", "imitation.steps=10")))
        for folder, algorithm in ((finished_kuhn, "rebn"), (finished_desk, "rebn"), (grouped, "rloo")):
            names = {name.partition("/")[0] for row in rows(folder) for name in row}
            formulas = METRIC_FORMULAS.keys() | algorithm_class(algorithm).METRICS.keys()
            assert names <= formulas, folder
