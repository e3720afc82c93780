"""Options of `reset` in training: in the warm start, the updates and the measurements, and part of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem.errors import ConfigError
from marl_gem.overrides import apply_overrides
from marl_gem.runs.reader import RunReader
from marl_gem.scenarios.games.kuhn_poker import KuhnPoker
from marl_gem.trainers.config import parse
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.sections import TrainConfig
from tests.trainers.support import SMALL_KUHN, work

VILLAGES: list[str] = []


class Village(KuhnPoker):
    """Kuhn poker in a village that `reset` names."""

    def _reset(self, options: Mapping[str, Any]) -> None:
        VILLAGES.append(options.get("village", "nowhere"))
        super()._reset({name: value for name, value in options.items() if name != "village"})


def config(*assignments: str) -> TrainConfig:
    values = SMALL_KUHN | {"scenario": "test:Village-v0", "reset": {"village": "Oslo"}}
    small = ("training.updates=2", "imitation.steps=1", "imitation.episodes=4", "training.keep_episodes=1")
    return parse(apply_overrides(values, [*small, *assignments]), "test")


def test_they_reach_every_episode_and_are_kept_when_the_run_goes_on(tmp_path: Path) -> None:
    with marl_gem.registry.preserved():
        marl_gem.register("test:Village-v0", Village, agents=2)
        VILLAGES.clear()
        folder = tmp_path / "run"
        work(TrainingRun.start(folder, config()), until=1)
        with pytest.raises(ConfigError, match="reset"):
            TrainingRun.resume(folder, config("reset.village=Bergen"))
        work(TrainingRun.resume(folder, config("wait=5")))
    assert len(VILLAGES) > 50 and set(VILLAGES) == {"Oslo"}
    reader = RunReader(folder)
    assert {reader.read(entry).options["village"] for entry in reader.entries()} == {"Oslo"}


def test_what_the_scenario_refuses_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    values = SMALL_KUHN | {"reset": {"deck": "short"}}
    with pytest.raises(marl_gem.errors.InvalidOption, match="deck"):
        TrainingRun.start(tmp_path / "run", parse(values, "test"))
    assert not (tmp_path / "run").exists()
