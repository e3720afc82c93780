"""Advantages against independent NumPy references, and against gradients that are summed up over all outcomes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.algorithms.base import Stateful
from marl_gem.trainers.batch import Batch, Trajectory, Transition, discounted_returns

GAMMA = 0.9


def trajectory(
    agent: str,
    rewards: Sequence[float],
    *,
    episode: str,
    group: str = "g",
    gamma: float = GAMMA,
    values: Sequence[float] | None = None,
    final: float = 0.0,
) -> Trajectory:
    """Turns with these rewards, and, with a critic, these values; `final` is the value after the last turn."""
    values = values or [0.0] * len(rewards)
    returns = discounted_returns(rewards, gamma)
    return [
        Transition(
            episode=episode,
            group=group,
            turn=turn,
            scenario="s",
            agent=agent,
            prompt_ids=(1,),
            action_ids=(2,),
            logprobs=(-1.0,),
            version=0,
            reward=reward,
            return_=return_,
            value=values[turn],
            next_value=values[turn + 1] if turn + 1 < len(values) else final,
        )
        for turn, (reward, return_) in enumerate(zip(rewards, returns, strict=True))
    ]


def random_batch(seed: int) -> Batch:
    """Three groups of four episodes of two agents, with one to five turns and rewards in between."""
    rng = random.Random(seed)
    scale = {"a": 1.0, "b": 100.0}
    return Batch(
        [
            trajectory(
                agent,
                rewards := [rng.gauss(0, 1) * scale[agent] for _ in range(rng.randint(1, 5))],
                episode=f"{group}-{member}",
                group=str(group),
                values=[rng.gauss(0, 1) for _ in rewards],
                final=rng.choice([0.0, rng.gauss(0, 1)]),
            )
            for group, member, agent in itertools.product(range(3), range(4), "ab")
        ],
        GAMMA,
    )


def reference_returns(batch: Batch) -> np.ndarray[Any, Any]:
    """G_t as a double sum."""
    found = [
        sum(GAMMA ** (later - turn) * part[later].reward for later in range(turn, len(part)))
        for part in batch.trajectories
        for turn in range(len(part))
    ]
    return np.array(found)


def columns(batch: Batch) -> tuple[np.ndarray[Any, Any], ...]:
    """Agent, group and episode of each transition."""
    return tuple(np.array([getattr(t, name) for t in batch.transitions]) for name in ("agent", "group", "episode"))


def first_of(batch: Batch, agent: str, group: str) -> np.ndarray[Any, Any]:
    """The returns of a group's episodes."""
    returns, position, found = reference_returns(batch), 0, []
    for part in batch.trajectories:
        if (part[0].agent, part[0].group) == (agent, group):
            found.append(returns[position])
        position += len(part)
    return np.array(found)


def rebn(batch: Batch, key: Callable[[Transition], object]) -> np.ndarray[Any, Any]:
    returns, result = reference_returns(batch), np.zeros(len(batch.transitions))
    labels = [key(t) for t in batch.transitions]
    for label in set(labels):
        mask = np.array([other == label for other in labels])
        std = returns[mask].std()
        result[mask] = (returns[mask] - returns[mask].mean()) / std if mask.sum() > 1 and std > 0 else 0.0
    return result


def grpo(batch: Batch, divide: bool) -> np.ndarray[Any, Any]:
    returns, result = reference_returns(batch), []
    for index, t in enumerate(batch.transitions):
        group = first_of(batch, t.agent, t.group)
        result.append((returns[index] - group.mean()) / (group.std() if divide else 1.0))
    return np.array(result)


def reinforce_pp(batch: Batch, grouped: bool) -> np.ndarray[Any, Any]:
    returns = reference_returns(batch)
    if grouped:
        returns = returns - np.array([first_of(batch, t.agent, t.group).mean() for t in batch.transitions])
    return np.asarray((returns - returns.mean()) / returns.std())


def gae(batch: Batch, lam: float) -> np.ndarray[Any, Any]:
    """As in the paper: a sum of discounted errors, not a recursion."""
    result = []
    for part in batch.trajectories:
        errors = [t.reward + GAMMA * t.next_value - t.value for t in part]
        result += [
            sum((GAMMA * lam) ** k * error for k, error in enumerate(errors[turn:])) for turn in range(len(part))
        ]
    return np.array(result)


REFERENCES: dict[str, tuple[str, dict[str, Any], Callable[[Batch], np.ndarray[Any, Any]]]] = {
    "rebn": ("rebn", {}, lambda b: rebn(b, lambda t: t.agent)),
    "rebn, agent and turn": ("rebn", {"group_by": "agent_turn"}, lambda b: rebn(b, lambda t: (t.agent, t.turn))),
    "rebn, all": ("rebn", {"group_by": "all"}, lambda b: rebn(b, lambda t: 0)),
    "rebn, none": ("rebn", {"group_by": "none"}, reference_returns),
    "grpo": ("grpo", {"group_size": 4}, lambda b: grpo(b, divide=True)),
    "grpo without deviation": ("grpo", {"group_size": 4, "divide_by_std": False}, lambda b: grpo(b, divide=False)),
    "reinforce_pp": ("reinforce_pp", {}, lambda b: reinforce_pp(b, grouped=False)),
    "reinforce_pp with baseline": ("reinforce_pp", {"group_size": 4}, lambda b: reinforce_pp(b, grouped=True)),
    "ppo": ("ppo", {"group_by": "none", "lam": 0.8}, lambda b: gae(b, 0.8)),
}


@pytest.mark.parametrize("case", REFERENCES)
@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_those_of_the_reference(case: str, seed: int) -> None:
    name, options, reference = REFERENCES[case]
    batch = random_batch(seed)
    found, expected = np.array(make_algorithm(name, options).advantages(batch).values), reference(batch)
    assert np.abs(expected).max() > 0.1
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


class TestGRPO:
    def test_a_case_by_hand(self) -> None:
        batch = Batch([trajectory("a", [reward], episode=str(i)) for i, reward in enumerate((0.0, 0.0, 0.0, 1.0))])
        result = make_algorithm("grpo", {"group_size": 4}).advantages(batch)
        low, high = -0.25 / math.sqrt(3 / 16), 0.75 / math.sqrt(3 / 16)
        assert result.values == pytest.approx([low, low, low, high], abs=1e-15)
        assert result.metrics == {"groups": 1, "zero_variance_groups": 0}

    def test_a_group_of_equal_returns_teaches_nothing(self) -> None:
        batch = Batch([trajectory("a", [0.1], episode=str(index)) for index in range(7)])
        result = make_algorithm("grpo", {"group_size": 7}).advantages(batch)
        assert result.values == [0.0] * 7 and result.metrics["zero_variance_groups"] == 1


class TestRAE:
    def test_the_mean_moves_with_every_episode_after_its_advantage_was_taken(self) -> None:
        algorithm = make_algorithm("rae", {"decay": 0.5})
        batch = Batch([trajectory(agent, [reward], episode="0") for agent, reward in [("a", 4), ("b", -4), ("a", 8)]])
        result = algorithm.advantages(batch)
        assert result.values == [4.0, -4.0, 8.0 - 2.0]
        assert result.metrics == {"baseline/s a": 5.0, "baseline/s b": -2.0}
        assert algorithm.advantages(batch).values == [4.0 - 5.0, -4.0 + 2.0, 8.0 - 4.5]

    def test_its_state_goes_through_json(self) -> None:
        algorithm, batch = make_algorithm("rae", {}), random_batch(0)
        algorithm.advantages(batch)
        assert isinstance(algorithm, Stateful)
        state = msgspec.json.decode(msgspec.json.encode(algorithm.state()))
        restored = make_algorithm("rae", {})
        assert isinstance(restored, Stateful)
        restored.restore(state)
        assert restored.advantages(batch) == algorithm.advantages(batch)


class TestPPO:
    def test_a_case_by_hand(self) -> None:
        part = trajectory("a", [1.0, 2.0], episode="0", values=[0.5, 1.5])
        result = make_algorithm("ppo", {"group_by": "none", "lam": 0.5}).advantages(Batch([part], 0.5))
        last, first = 2.0 - 1.5, 1.0 + 0.5 * 1.5 - 0.5
        assert result.values == [first + 0.25 * last, last]
        assert list(result.targets) == [first + 0.25 * last + 0.5, 2.0]

    def test_an_episode_that_was_cut_off_goes_on_with_the_critics_value(self) -> None:
        options = {"group_by": "none"}
        ended, cut = (trajectory("a", [1.0], episode="0", values=[0.0], final=value) for value in (0.0, 10.0))
        assert make_algorithm("ppo", options).advantages(Batch([ended], 0.5)).values == [1.0]
        assert make_algorithm("ppo", options).advantages(Batch([cut], 0.5)).values == [6.0]

    def test_advantages_are_normalized_per_agent_and_targets_are_not(self) -> None:
        batch = random_batch(1)
        raw = make_algorithm("ppo", {"group_by": "none"}).advantages(batch)
        normalized = make_algorithm("ppo", {}).advantages(batch)
        assert normalized.targets == raw.targets
        agents, _, _ = columns(batch)
        for agent in "ab":
            mine = np.array(normalized.values)[agents == agent]
            assert mine.mean() == pytest.approx(0, abs=1e-12) and mine.std() == pytest.approx(1, abs=1e-12)


class TestWhereThePolicyDecidesWhenToStop:
    """Two episodes a group. A turn stops (and pays 1) or goes on; the second turn pays 3 or 0. All outcomes are summed
    up, so that gradients are exact. (See verl's issue 7244: baselines of a turn index.)"""

    GO_ON, WIN = 0.3, 0.6

    def outcomes(self) -> list[tuple[float, list[float], list[tuple[float, float]]]]:
        """Probability, rewards, and for each turn the derivatives of its log-probability by the two logits."""
        on, win = self.GO_ON, self.WIN
        return [
            (1 - on, [1.0], [(-on, 0.0)]),
            (on * win, [0.0, 3.0], [(1 - on, 0.0), (0.0, 1 - win)]),
            (on * (1 - win), [0.0, 0.0], [(1 - on, 0.0), (0.0, -win)]),
        ]

    def gradient(self, advantages: Callable[[Batch], Sequence[float]]) -> np.ndarray[Any, Any]:
        """The expected gradient of an episode."""
        total = np.zeros(2)
        for pair in itertools.product(self.outcomes(), repeat=2):
            parts = [trajectory("a", rewards, episode=str(i), gamma=1.0) for i, (_, rewards, _) in enumerate(pair)]
            scores = [score for _, _, turns in pair for score in turns]
            weights = advantages(Batch(parts))
            product = sum(weight * np.array(score) for weight, score in zip(weights, scores, strict=True))
            total += pair[0][0] * pair[1][0] * product / 2
        return total

    def truth(self) -> np.ndarray[Any, Any]:
        on, win = self.GO_ON, self.WIN
        return np.array([on * (1 - on) * (3 * win - 1), on * win * (1 - win) * 3])

    def test_the_baseline_of_rloo_is_unbiased(self) -> None:
        algorithm = make_algorithm("rloo", {"group_size": 2})
        assert self.gradient(lambda batch: algorithm.advantages(batch).values) == pytest.approx(self.truth(), abs=1e-12)

    def test_that_of_grpo_only_shortens_the_gradient(self) -> None:
        algorithm = make_algorithm("grpo", {"group_size": 2, "divide_by_std": False})
        found = self.gradient(lambda batch: algorithm.advantages(batch).values)
        assert found == pytest.approx(self.truth() / 2, abs=1e-12)  # its own return is in the mean: (G - 1) / G

    def batch_in_proportion(self) -> tuple[Batch, list[tuple[float, float]]]:
        """Each outcome as often as its probability says, and the score of each turn."""
        counts = [round(100 * probability) for probability, _, _ in self.outcomes()]
        outcomes = [outcome for outcome, count in zip(self.outcomes(), counts, strict=True) for _ in range(count)]
        parts = [trajectory("a", rewards, episode=str(i), gamma=1.0) for i, (_, rewards, _) in enumerate(outcomes)]
        return Batch(parts), [score for _, _, turns in outcomes for score in turns]

    def test_rebns_mean_over_all_turns_of_an_agent_is_unbiased(self) -> None:
        """In a batch so large that it has the exact proportions: the true gradient, divided by the deviation."""
        batch, scores = self.batch_in_proportion()
        values = make_algorithm("rebn", {}).advantages(batch).values
        std = np.std([t.return_ for t in batch.transitions])
        found = sum(value * np.array(score) for value, score in zip(values, scores, strict=True)) / 100
        assert found * std == pytest.approx(self.truth(), abs=1e-12)

    def test_baselines_of_rewards_at_a_turn_index_reward_going_on(self) -> None:
        """As in verl's issue 7244: rewards less their mean at each turn index, summed up from each turn on.

        A second turn costs its mean reward, 3 * WIN, which stopping does not. However large the batch is, going on
        gets this bonus, here a penalty."""
        batch, scores = self.batch_in_proportion()
        means = [np.mean([t.reward for t in batch.transitions if t.turn == turn]) for turn in (0, 1)]
        rewards = [t.reward - float(means[t.turn]) for t in batch.transitions]
        values = [t.return_ for t in batch.with_rewards(rewards).transitions]
        found = sum(value * np.array(score) for value, score in zip(values, scores, strict=True)) / 100
        on, bonus = self.GO_ON, -3 * self.WIN
        assert found - self.truth() == pytest.approx(np.array([on * (1 - on) * bonus, 0.0]), abs=1e-12)
        assert found[0] < 0 < self.truth()[0]  # it learns to stop where going on pays more

    def test_a_mean_per_turn_index_turns_it(self) -> None:
        def per_turn(batch: Batch) -> list[float]:
            means = {
                turn: np.mean([t.return_ for t in batch.transitions if t.turn == turn])
                for turn in {t.turn for t in batch.transitions}
            }
            return [t.return_ - float(means[t.turn]) for t in batch.transitions]

        ratios = self.gradient(per_turn) / self.truth()
        assert abs(ratios[0] - ratios[1]) > 0.3
