"""Transitions, their returns, and the rows that they are merged into."""

from __future__ import annotations

import pytest

from marl_gem.errors import ConfigError
from marl_gem.prefixes import prefix_groups
from marl_gem.trainers.batch import Transition, discounted_returns, trajectories
from marl_gem.trainers.rows import Row, merge
from marl_gem.types import Episode, Response, Turn


def transition(prompt: tuple[int, ...], action: tuple[int, ...], advantage: float = 1.0) -> Transition:
    return Transition(
        episode="0",
        group="0",
        turn=0,
        scenario="s",
        agent="a",
        prompt_ids=prompt,
        action_ids=action,
        logprobs=(-1.0,) * len(action),
        version=0,
        reward=0.0,
        return_=0.0,
        advantage=advantage,
    )


class TestReturns:
    def test_discount_counts_an_agents_own_turns(self) -> None:
        assert discounted_returns([1.0, 0.0, 4.0], 0.5) == [2.0, 2.0, 4.0]
        assert discounted_returns([1.0, 2.0], 1.0) == [3.0, 2.0]
        assert discounted_returns([], 0.9) == []


class TestTrajectories:
    def episode(self) -> Episode:
        def turn(agent: str, reward: float) -> Turn:
            return Turn(agent, "?", Response("!", prompt_ids=(1,), token_ids=(2,), logprobs=(-0.5,)), reward)

        turns = (turn("a", 0.0), turn("b", 1.0), turn("a", 2.0), turn("b", -3.0))
        return Episode("0", "s", 0, turns, {"a": 2.0, "b": -2.0}, "terminated")

    def test_a_trajectory_holds_one_agents_turns_with_discounted_returns(self) -> None:
        a, b = trajectories(self.episode(), ["a", "b"], gamma=0.5, group="g")
        assert [t.return_ for t in a] == [1.0, 2.0]
        assert [t.return_ for t in b] == [-0.5, -3.0]
        assert [(t.agent, t.turn, t.episode, t.group) for t in a] == [("a", 0, "0", "g"), ("a", 1, "0", "g")]
        assert trajectories(self.episode(), ["c"], gamma=1.0) == []

    def test_an_episode_is_a_group_of_its_own_by_default(self) -> None:
        ((first, _),) = trajectories(self.episode(), ["a"], gamma=1.0)
        assert first.group == first.episode == "0"

    def test_turns_without_tokens_cannot_be_trained(self) -> None:
        episode = Episode("7", "s", 0, (Turn("a", "?", Response("!")),), {"a": 0.0}, "terminated")
        with pytest.raises(ConfigError, match="'a' in episode 7"):
            trajectories(episode, ["a"], gamma=1.0)


class TestPrefixGroups:
    def test_prompts_that_extend_one_another_share_a_group(self) -> None:
        assert prefix_groups([((1,), (2,)), ((1, 2, 3), (4,)), ((1, 2, 3), (5,)), ((1, 2, 3, 5), (6,))]) == [
            [0, 1],
            [2, 3],
        ]

    def test_turns_without_tokens_have_groups_of_their_own(self) -> None:
        assert prefix_groups([((), ()), ((), ()), ((1,), (2,)), ((), ()), ((1, 2), (3,))]) == [[0, 1], [2], [3], [4]]
        assert prefix_groups([]) == []


class TestMerge:
    def test_prompts_that_extend_one_another_share_a_row(self) -> None:
        first = transition((1, 2), (3, 4), 0.5)
        second = transition((1, 2, 3, 4, 5), (6,), -2.0)
        (row,) = merge([[first, second]], fold=True)
        assert row.ids == (1, 2, 3, 4, 5, 6)
        assert row.advantages == [0, 0, 0.5, 0.5, 0, -2.0]
        assert row.counts == [0, 0, 1, 1, 0, 1]

    def test_a_prompt_that_starts_anew_gets_a_row_of_its_own(self) -> None:
        assert len(merge([[transition((1, 2), (3,)), transition((1, 9), (3,))]], fold=True)) == 2

    def test_equal_rows_add_up_where_they_are_folded(self) -> None:
        equal = [[transition((1, 2), (3,), 0.5)], [transition((1, 2), (3,), 2.0)]]
        (row,) = merge(equal, fold=True)
        assert (row.advantages, row.counts, row.logprobs) == ([0, 0, 2.5], [0, 0, 2], [0, 0, -2.0])
        assert merge(equal, fold=False) == [
            Row((1, 2, 3), [0, 0, 0.5], [0, 0, 1], [0, 0, -1.0], [0, 0, 0.5], [0, 0, 0], [0, 0, 1]),
            Row((1, 2, 3), [0, 0, 2.0], [0, 0, 1], [0, 0, -1.0], [0, 0, 2.0], [0, 0, 0], [0, 0, 1]),
        ]

    def test_equal_tokens_with_other_parts_sampled_stay_apart(self) -> None:
        assert len(merge([[transition((1, 2), (3,))], [transition((1,), (2, 3))]], fold=True)) == 2
