"""A run of the first format, kept in `old_run`: it is read, resumed and played. See its README for how it was made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, collect
from marl_gem.specs import PolicySpec, ScenarioSpec, load_policy, training_options
from marl_gem.trainers import checkpoint
from marl_gem.trainers.config import read_config
from marl_gem.trainers.metrics import read_metrics
from marl_gem.trainers.run import TrainingRun, read_report
from tests.trainers.support import KUHN, work


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).with_name("old_run"), tmp_path / "run"))


def test_its_configuration_is_read_under_todays_names(folder: Path) -> None:
    config = read_config(folder)
    assert config.title == KUHN
    assert (config.training.episodes, config.training.opponent_pool_fraction, config.training.save_every) == (8, 0.5, 2)
    assert (config.algorithm.name, config.algorithm.options) == ("rebn", {"group_by": "agent"})
    assert config.evaluation.final_episodes == 4


def test_its_metrics_are_read_under_todays_names(folder: Path) -> None:
    rows = read_metrics(folder)
    assert [row["stage"] for row in rows] == ["imitation", "before", "training", "training"]
    assert {"kl", "logprob_diff", "zero_variance", "episodes_played"} <= rows[-1].keys()
    assert not {"divergence", "drift", "flat", "games", "phase"} & rows[-1].keys()


def test_it_goes_on_to_its_end(folder: Path) -> None:
    run = TrainingRun.resume(folder)
    assert run.loop is not None and run.loop.updates == 2
    assert [snapshot.version for snapshot in run.loop.learners["policy"].pool.snapshots] == [0, 1]
    work(run)
    report = read_report(folder)
    assert [row["update"] for row in read_metrics(folder) if row["stage"] == "training"] == [1, 2, 3, 4]
    assert [list(matchup.agents) for matchup in report.before.matchups] == [["player_0"], ["player_1"]]
    assert report.before.mean_return is None and report.after.mean_return is not None
    assert checkpoint.load(folder).updates == 4


def test_its_policy_plays(folder: Path) -> None:
    policy = load_policy(str(folder), KUHN)
    assert isinstance(policy, LLMPolicy) and policy.name == "run@2"
    episodes = collect(ScenarioSpec.parse(KUHN).make, [Job(seed, policy) for seed in range(4)])
    assert not any(episode.error for episode in episodes)
    assert training_options([PolicySpec.parse(str(folder))], KUHN) == {}
