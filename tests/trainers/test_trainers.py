"""Credit, rows, loss and the learner."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marl_gem.trainers.advantages import discounted_returns, rebn
from marl_gem.trainers.transitions import Row, Transition, merge, trajectories, with_advantages

from marl_gem.errors import ConfigError
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from marl_gem.types import Episode, Response, Turn


def transition(
    prompt: tuple[int, ...], action: tuple[int, ...], advantage: float = 1.0, agent: str = "a", value: float = 0.0
) -> Transition:
    return Transition(
        scenario="s",
        agent=agent,
        prompt_ids=prompt,
        action_ids=action,
        logprobs=(-1.0,) * len(action),
        version=0,
        reward=0.0,
        value=value,
        advantage=advantage,
    )


class TestReturns:
    def test_discount_counts_an_agents_own_turns(self) -> None:
        assert discounted_returns([1.0, 0.0, 4.0], 0.5) == [2.0, 2.0, 4.0]
        assert discounted_returns([1.0, 2.0], 1.0) == [3.0, 2.0]
        assert discounted_returns([], 0.9) == []

    def test_rebn_normalizes_each_group_by_itself(self) -> None:
        advantages, baselines = rebn([0.0, 10.0, 2.0, 20.0], ["x", "y", "x", "y"])
        assert advantages == [-1.0, -1.0, 1.0, 1.0]
        assert baselines["x"] == (2, 1.0, 1.0, False)
        assert baselines["y"] == (2, 15.0, 5.0, False)

    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
    def test_rebn_has_mean_0_and_deviation_1_or_is_flat(self, returns: list[float]) -> None:
        advantages, baselines = rebn(returns, ["x"] * len(returns))
        assert all(map(math.isfinite, advantages))
        if baselines["x"].flat:
            assert set(advantages) == {0.0}
        else:
            assert math.fsum(advantages) / len(returns) == pytest.approx(0, abs=1e-5)
            assert math.fsum(a * a for a in advantages) / len(returns) == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize("returns", [[3.0], [0.1] * 7, [1e9] * 1000])
    def test_a_group_without_spread_gets_exactly_0(self, returns: list[float]) -> None:
        advantages, baselines = rebn(returns, ["x"] * len(returns))
        assert set(advantages) == {0.0}
        assert baselines["x"].flat


class TestTransitions:
    def episode(self) -> Episode:
        def turn(agent: str, reward: float) -> Turn:
            return Turn(agent, "?", Response("!", prompt_ids=(1,), token_ids=(2,), logprobs=(-0.5,)), reward)

        turns = (turn("a", 0.0), turn("b", 1.0), turn("a", 2.0), turn("b", -3.0))
        return Episode("0", "s", 0, turns, {"a": 2.0, "b": -2.0}, "terminated")

    def test_a_trajectory_holds_one_agents_turns_with_discounted_returns(self) -> None:
        a, b = trajectories(self.episode(), ["a", "b"], gamma=0.5)
        assert [t.value for t in a] == [1.0, 2.0]
        assert [t.value for t in b] == [-0.5, -3.0]
        assert {t.agent for t in a} == {"a"}
        assert trajectories(self.episode(), ["c"], gamma=1.0) == []

    def test_turns_without_tokens_cannot_be_trained(self) -> None:
        episode = Episode("7", "s", 0, (Turn("a", "?", Response("!")),), {"a": 0.0}, "terminated")
        with pytest.raises(ConfigError, match="'a' in episode 7"):
            trajectories(episode, ["a"], gamma=1.0)

    def test_normalization_per_agent_over_all_or_none(self) -> None:
        batch = [
            [transition((1,), (2,), agent=agent, value=value)]
            for agent, value in [("a", 0.0), ("a", 2.0), ("b", 10.0), ("b", 12.0)]
        ]

        def advantages(kind: str) -> list[float]:
            return [t.advantage for trajectory in with_advantages(batch, kind)[0] for t in trajectory]

        assert advantages("agent") == [-1.0, 1.0, -1.0, 1.0]
        assert advantages("none") == [0.0, 2.0, 10.0, 12.0]
        assert advantages("all")[1] < 0 < advantages("all")[2]
        with pytest.raises(ConfigError, match="choose one of agent, all, none"):
            advantages("agents")


class TestMerge:
    def test_prompts_that_extend_one_another_share_a_row(self) -> None:
        first = transition((1, 2), (3, 4), 0.5)
        second = transition((1, 2, 3, 4, 5), (6,), -2.0)
        (row,) = merge([[first, second]])
        assert row.ids == (1, 2, 3, 4, 5, 6)
        assert row.weights == [0, 0, 0.5, 0.5, 0, -2.0]
        assert row.counts == [0, 0, 1, 1, 0, 1]

    def test_a_prompt_that_starts_anew_gets_a_row_of_its_own(self) -> None:
        assert len(merge([[transition((1, 2), (3,)), transition((1, 9), (3,))]])) == 2

    def test_equal_rows_add_up(self) -> None:
        (row,) = merge([[transition((1, 2), (3,), 0.5)], [transition((1, 2), (3,), 2.0)]])
        assert (row.weights, row.counts, row.logprobs) == ([0, 0, 2.5], [0, 0, 2], [0, 0, -2.0])

    def test_equal_tokens_with_other_parts_sampled_stay_apart(self) -> None:
        assert len(merge([[transition((1, 2), (3,))], [transition((1,), (2, 3))]])) == 2


def tiny() -> torch.nn.Module:
    return tiny_model(tiny_tokenizer(["one two three"]), width=16, heads=2, context=64, seed=1)


def gradient(rows: list[Row], denominator: int, **options: int) -> torch.Tensor:
    """The gradient of one update, before clipping."""
    model = tiny()
    learner = Learner(model, pad_token=0, clip=1e9, **options)
    seen: list[torch.Tensor] = []
    learner.optimizer.step = lambda: seen.append(  # type: ignore[method-assign]
        torch.cat([p.grad.flatten() for p in model.parameters()])
    )
    learner.update(rows, learning_rate=0.0, denominator=denominator)
    return seen[0]


def conversation(rng: random.Random, turns: int) -> list[Transition]:
    """A trajectory in which every prompt extends the one before."""
    ids: tuple[int, ...] = ()
    trajectory = []
    for _ in range(turns):
        prompt = ids + tuple(rng.choices(range(5, 200), k=rng.randint(1, 5)))
        action = tuple(rng.choices(range(5, 200), k=rng.randint(1, 4)))
        trajectory.append(transition(prompt, action, rng.uniform(-1, 1)))
        ids = prompt + action
    return trajectory


class TestLearner:
    def test_merged_rows_have_the_gradient_of_the_unmerged(self) -> None:
        rng = random.Random(3)
        batch = [conversation(rng, rng.randint(1, 5)) for _ in range(6)]
        batch += batch[:3]
        flat = [t for trajectory in batch for t in trajectory]
        apart = [
            Row(
                t.prompt_ids + t.action_ids,
                [0.0] * len(t.prompt_ids) + [t.advantage] * len(t.action_ids),
                [0] * len(t.prompt_ids) + [1] * len(t.action_ids),
                [0.0] * len(t.prompt_ids) + list(t.logprobs),
            )
            for t in flat
        ]
        merged = merge(batch)
        assert len(merged) == 6 < len(apart)
        assert torch.allclose(gradient(merged, len(flat)), gradient(apart, len(flat)), atol=1e-6)

    def test_the_gradient_does_not_depend_on_the_micro_batch(self) -> None:
        rng = random.Random(4)
        rows = merge(conversation(rng, rng.randint(1, 4)) for _ in range(9))
        whole, cut = gradient(rows, 9), gradient(rows, 9, micro_batch=30)
        assert whole.abs().max() > 0
        assert torch.allclose(whole, cut, atol=1e-6)

    def test_the_denominator_is_fixed_not_counted(self) -> None:
        rows = merge([[transition((7, 8), (9, 10))]])
        assert torch.allclose(gradient(rows, 1), 4 * gradient(rows, 4), atol=1e-6)

    def test_an_update_makes_what_did_well_likelier(self) -> None:
        learner = Learner(tiny(), pad_token=0)
        good, bad = transition((7, 8), (9,), 1.0), transition((7, 8), (10,), -1.0)
        rows = merge([[good], [bad]])

        def logprobs() -> torch.Tensor:
            return torch.log_softmax(learner.model(torch.tensor([[7, 8]])).logits[0, -1], -1)[[9, 10]]

        before = logprobs()
        learner.update(rows, learning_rate=1e-3, denominator=2)
        after = logprobs()
        assert after[0] > before[0]
        assert after[1] < before[1]

    def test_the_reference_holds_the_policy_back(self) -> None:
        def drifted(kl: float) -> float:
            learner, reference = Learner(tiny(), pad_token=0), tiny()
            rows = merge([[transition((7, 8), (9,), 1.0)]])
            for _ in range(30):
                metrics = learner.update(rows, learning_rate=1e-2, denominator=1, reference=reference, kl=kl)
            return metrics["divergence"]

        assert drifted(2.0) < drifted(0.01)

    def test_metrics_are_those_of_the_policy(self) -> None:
        model = tiny()
        row = merge([[transition((7, 8), (9,))]])
        metrics = Learner(model, pad_token=0).update(row, learning_rate=0.0, denominator=1)
        logprobs = torch.log_softmax(model(torch.tensor([[7, 8]])).logits[0, -1], -1)
        assert metrics["entropy"] == pytest.approx(-(logprobs.exp() * logprobs).sum().item(), abs=1e-5)
        assert metrics["drift"] == pytest.approx(logprobs[9].item() + 1.0, abs=1e-5)
        assert metrics["loss"] == pytest.approx(-logprobs[9].item(), abs=1e-5)
