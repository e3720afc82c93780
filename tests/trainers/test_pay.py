"""What agents are paid in training, by seat; policies are measured in the rewards of the scenario."""

from __future__ import annotations

import pytest
import torch

from marl_gem.trainers.measurement import measure
from marl_gem.trainers.start import start
from tests.trainers.support import kuhn, weights

LOPSIDED = 'wrappers=["reward_scale=10,agents=player_1,offset=50"]'


class TestLopsidedPay:
    def test_it_is_what_is_learned_from_and_not_what_is_measured(self) -> None:
        loop = start(kuhn(LOPSIDED, "imitation.steps=0"))[0]
        metrics, episodes = loop.update()
        assert all(episode.returns["player_1"] == 50 - 10 * episode.returns["player_0"] for episode in episodes)
        assert abs(metrics["return/player_0"]) <= 2 and 30 <= metrics["return/player_1"] <= 70
        measured, played = measure(loop, 4, "final", analyse=True)
        assert all(sum(episode.returns.values()) == 0 for episode in played)
        assert all(counts.is_contest for matchup in measured.matchups for counts in matchup.agents.values())
        assert measured.mean_return is not None and -2 <= measured.mean_return <= 2
        assert measured.analyses["game:KuhnPoker-v0"]["exploitability"] <= 2

    @pytest.mark.parametrize(("group_by", "same"), [("agent", True), ("all", False)])
    def test_one_normalization_per_agent_does_not_notice(self, group_by: str, same: bool) -> None:
        even, lopsided = (
            start(kuhn(*pay, f"algorithm.options.group_by={group_by}", "imitation.steps=0"))[0]
            for pay in ((), (LOPSIDED,))
        )
        for loop in (even, lopsided):
            loop.update()
        expected, found = weights(even), weights(lopsided)
        close = [torch.allclose(expected[name], found[name], rtol=0, atol=1e-5) for name in expected]
        assert all(close) is same
