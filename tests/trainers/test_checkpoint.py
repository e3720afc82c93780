"""Checkpoints: complete or refused, and what they give back."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from marl_gem.errors import CheckpointError
from marl_gem.rollout import Job, collect
from marl_gem.trainers import checkpoint
from marl_gem.trainers.schedule import SHARED_POLICY
from tests.trainers.support import kuhn


class TestCheckpoint:
    def copy(self, finished_kuhn: Path, tmp_path: Path) -> Path:
        shutil.copytree(finished_kuhn, tmp_path / "run")
        return checkpoint.newest(tmp_path / "run")

    @pytest.mark.parametrize(
        "name",
        ["model/model.safetensors", "frozen.safetensors", "optimizer.safetensors", "model/tokenizer.json"],
    )
    def test_a_file_cut_short_or_missing_is_told_by_name(self, finished_kuhn: Path, tmp_path: Path, name: str) -> None:
        path, name = self.copy(finished_kuhn, tmp_path), f"{SHARED_POLICY}/{name}"
        (path / name).write_bytes((path / name).read_bytes()[:-1])
        with pytest.raises(CheckpointError, match=f"{re.escape(name)} is cut short"):
            checkpoint.load(path)
        (path / name).unlink()
        with pytest.raises(CheckpointError, match=f"{re.escape(name)} is missing"):
            checkpoint.load(path)

    def test_a_damaged_description_is_told(self, finished_kuhn: Path, tmp_path: Path) -> None:
        path = self.copy(finished_kuhn, tmp_path)
        (path / "state.json").write_text('{"format": 1')
        with pytest.raises(CheckpointError, match=r"state.json is damaged"):
            checkpoint.load(path)

    def test_another_format_is_told_with_what_to_do(self, finished_kuhn: Path, tmp_path: Path) -> None:
        path = self.copy(finished_kuhn, tmp_path)
        state = json.loads((path / "state.json").read_text())
        (path / "state.json").write_text(json.dumps({**state, "format": 1}))
        with pytest.raises(CheckpointError, match=r"has format 1, .* reads 2, 3 and 4; .* or train anew"):
            checkpoint.load(path)

    def test_what_a_killed_process_left_unfinished_goes(self, finished_kuhn: Path, tmp_path: Path) -> None:
        run = checkpoint.load(self.copy(finished_kuhn, tmp_path))
        folder = tmp_path / "run" / "checkpoints"
        (folder / ".update-000005.123" / SHARED_POLICY).mkdir(parents=True)
        checkpoint.save(folder, run)
        assert sorted(path.name for path in folder.iterdir()) == ["update-000004", "update-000006"]

    def test_the_one_before_serves_when_the_newest_is_removed(self, finished_kuhn: Path, tmp_path: Path) -> None:
        shutil.rmtree(self.copy(finished_kuhn, tmp_path))
        assert checkpoint.load(tmp_path / "run").updates == 4

    def test_none_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="no checkpoint"):
            checkpoint.load(tmp_path)

    def test_another_scenarios_is_refused(self, finished_kuhn: Path) -> None:
        with pytest.raises(CheckpointError, match="trained on game:KuhnPoker-v0"):
            checkpoint.load(finished_kuhn, kuhn("scenario=ta:TicTacToe-v0"))
        with pytest.raises(CheckpointError, match="cannot play ta:TicTacToe-v0"):
            checkpoint.load_policy(finished_kuhn, "ta:TicTacToe-v0")

    def test_a_loaded_policy_plays_as_the_trained_one(self, finished_kuhn: Path) -> None:
        run = checkpoint.load(finished_kuhn)
        loaded = checkpoint.load_policy(finished_kuhn, run.config.title)
        played = [
            collect(run.specs[0].make, [Job(seed, policy) for seed in range(20)])
            for policy in (run.learners[SHARED_POLICY].sampler.policy, loaded)
        ]
        texts = [[[turn.response for turn in episode.turns] for episode in episodes] for episodes in played]
        assert texts[0] == texts[1]

    def test_nothing_is_pickled(self, finished_kuhn: Path) -> None:
        names = {path.suffix for path in checkpoint.newest(finished_kuhn).rglob("*") if path.is_file()}
        assert names <= {".json", ".safetensors", ".jinja"}
