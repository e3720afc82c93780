"""Training of agents with tools: turns that call are trained on, and each agent pays for its own calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from marl_gem.overrides import apply_overrides
from marl_gem.runs.reader import RunReader
from marl_gem.trainers.config import parse, read
from marl_gem.trainers.run import TrainingRun
from tests.trainers.support import rows, work

SMALL = (
    "policy.width=16",
    "policy.heads=2",
    "imitation.episodes=60",
    "imitation.steps=40",
    "imitation.batch=16",
    "imitation.learning_rate=1e-2",
    "training={updates = 2, episodes = 8, opponent_pool_fraction = 0, keep_episodes = 8}",
    "evaluation={final_episodes = 2, probe_every = 2, probe_episodes = 1}",
)


def test_two_agents_with_tools_learn(tmp_path: Path) -> None:
    config = parse(apply_overrides(read("calculators"), SMALL), "test")
    work(TrainingRun.start(tmp_path / "run", config))
    episodes = [episode for _, episode in RunReader(tmp_path / "run").episodes()]
    assert any("tool_calls" in turn.info for episode in episodes for turn in episode.turns)
    for episode in episodes:
        for agent in episode.returns:
            calls = sum(len(turn.info.get("tool_calls", ())) for turn in episode.turns_of(agent))
            solved = episode.final_infos[agent]["success"]
            assert episode.returns[agent] == pytest.approx(solved - 0.03 * calls)
    updates = [row for row in rows(tmp_path / "run") if row["stage"] == "training"]
    assert len(updates) == 2 and all("return/solver_1" in row for row in updates)
