"""The critic of turns, and PPO with it."""

from __future__ import annotations

import copy
import math
import random
from pathlib import Path

import msgspec
import pytest
import torch

from marl_gem.trainers.backends.adapters import SharedBase
from marl_gem.trainers.batch import Trajectory
from marl_gem.trainers.critic import TurnCritic
from marl_gem.trainers.run import TrainingRun
from tests.trainers.support import kuhn, rows, warmed_up, work
from tests.trainers.test_backend import conversation, tiny


def batch(seed: int) -> list[Trajectory]:
    rng = random.Random(seed)
    parts = [conversation(rng, rng.randint(1, 4)) for _ in range(5)]
    numbered = [[msgspec.structs.replace(t, turn=turn) for turn, t in enumerate(part)] for part in parts]
    last = numbered[0][-1]
    shown = msgspec.structs.replace(last, next_prompt_ids=last.prompt_ids + last.action_ids + (7, 8))
    return [[*numbered[0][:-1], shown], *numbered[1:]]


def critic(seed: int = 1, micro_batch_tokens: int = 16_384) -> TurnCritic:
    """With a value head that is not 0."""
    found = TurnCritic(tiny(seed).double(), micro_batch_tokens=micro_batch_tokens)
    torch.nn.init.normal_(found.head.weight, generator=torch.Generator().manual_seed(0))
    return found


def gradient_of(found: TurnCritic, parts: list[Trajectory]) -> torch.Tensor:
    """The gradient for targets of 1, in the order of the parameters."""
    gradients: list[torch.Tensor] = []

    def keep(optimizer: torch.optim.Optimizer, *_: object) -> None:
        parameters = optimizer.param_groups[0]["params"]
        gradients.extend(p.grad.flatten().clone() for p in parameters if p.grad is not None)

    hook = found.optimizer.register_step_pre_hook(keep)
    found.fit(parts, [[1.0] * len(part) for part in parts], epochs=1, learning_rate=0.0, max_grad_norm=1e9)
    hook.remove()
    return torch.cat(gradients)


class TestValues:
    def test_a_fresh_critic_expects_nothing(self) -> None:
        for values, after in TurnCritic(tiny()).values(batch(1)):
            assert set(values) == {0.0} and after == 0.0

    @pytest.mark.parametrize("tokens", [16_384, 30])
    def test_a_value_is_read_at_the_last_token_of_the_prompt(self, tokens: int) -> None:
        found, parts = critic(micro_batch_tokens=tokens), batch(2)
        for part, (values, after) in zip(parts, found.values(parts), strict=True):
            prompts = [turn.prompt_ids for turn in part]
            if part[-1].next_prompt_ids:
                prompts.append(part[-1].next_prompt_ids)
            expected = []
            for prompt in prompts:
                states = found.trunk(torch.tensor([prompt])).last_hidden_state
                expected.append(found.head(states[0, -1]).item())
            assert [*values, *([after] if part[-1].next_prompt_ids else [])] == pytest.approx(expected, abs=1e-12)
            assert part[-1].next_prompt_ids or after == 0.0

    def test_beside_adapters_it_is_one_more_over_the_same_base(self) -> None:
        shared, parts = SharedBase(tiny().double(), rank=2, alpha=4), batch(5)
        policy = shared.adapter("a", seed=1)
        before = {name: value.clone() for name, value in policy.state_dict().items()}
        found = TurnCritic(policy)
        targets = [[1.0] * len(part) for part in parts]
        for _ in range(3):
            found.fit(parts, targets, epochs=1, learning_rate=1e-2, max_grad_norm=1.0)
        assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
        network = copy.deepcopy(shared.activate(found.trunk.adapter.name)).base_model
        for part, (values, _) in zip(parts, found.values(parts), strict=True):
            states = [network(torch.tensor([turn.prompt_ids])).last_hidden_state[0, -1] for turn in part]
            expected = [found.head(state.to(found.head.weight.dtype)).item() for state in states]
            assert values == pytest.approx(expected, abs=1e-12) and min(map(abs, values)) > 1e-3

    def test_its_gradient_beside_adapters_is_that_of_each_prompt_alone(self) -> None:
        shared, parts = SharedBase(tiny().double(), rank=2, alpha=4), batch(6)
        found = TurnCritic(shared.adapter("a", seed=1), micro_batch_tokens=40)
        torch.nn.init.normal_(found.head.weight)
        norms = []
        for merged in (parts, [[turn] for part in parts for turn in part]):
            taken = copy.deepcopy(found.state())
            norms.append(gradient_of(found, merged))
            found.restore(taken)
        assert (norms[0] - norms[1]).norm() < 1e-12 * norms[1].norm()

    def test_it_learns_its_targets(self) -> None:
        found, parts = critic(), batch(3)
        targets = [[float(turn + 1) for turn in range(len(part))] for part in parts]
        losses = [
            found.fit(parts, targets, epochs=5, learning_rate=1e-2, max_grad_norm=1.0)["critic_loss"] for _ in range(30)
        ]
        assert losses[-1] < 0.05 * losses[0]

    def test_its_state_is_all_there_is(self) -> None:
        parts = batch(4)
        targets = [[1.0] * len(part) for part in parts]
        first, second = critic(), critic(seed=5)
        first.fit(parts, targets, epochs=2, learning_rate=1e-2, max_grad_norm=1.0)
        second.restore(first.state())
        for found in (first, second):
            found.fit(parts, targets, epochs=2, learning_rate=1e-2, max_grad_norm=1.0)
        assert first.values(parts) == second.values(parts)


class TestPPO:
    def test_it_trains_kuhn_poker(self, tmp_path: Path) -> None:
        config = kuhn("algorithm.name=ppo", "algorithm.options.epochs=2", "imitation.steps=20", "training.updates=8")
        run = TrainingRun.start(tmp_path / "run", config)
        work(run)
        updates = [row for row in rows(tmp_path / "run") if row["stage"] == "training"]
        assert all(math.isfinite(row["loss"]) and math.isfinite(row["critic_loss"]) for row in updates)
        assert updates[0]["explained_variance"] == 0.0
        assert any(row["explained_variance"] != 0.0 for row in updates[1:])
        assert all(row["logprob_diff_abs"] > 1e-6 for row in updates)  # the second step is off-policy

    @pytest.mark.parametrize(
        "assignments",
        [
            ("algorithm.name=grpo", "algorithm.options.group_size=4", "algorithm.options.epochs=2"),
            ("algorithm.name=reinforce_pp", "algorithm.options.importance=truncated"),
            ("algorithm.name=rae",),
            ("algorithm.name=rebn", "training.kl_in=reward"),
            ("algorithm.name=rebn", "training.kl_estimator=k3", "training.kl_average=token", "training.entropy=0.01"),
        ],
    )
    def test_the_others_train_it_too(self, assignments: tuple[str, ...], tmp_path: Path) -> None:
        config = kuhn(*assignments, "imitation.steps=20", "training.updates=3")
        loop, _ = warmed_up(config)
        before = {name: value.clone() for name, value in loop.learners["policy"].backend.weights().items()}
        for update in range(3):
            metrics, _ = loop.update()
            assert math.isfinite(metrics["loss"])
            if update and "training.kl_in=reward" in assignments:
                assert metrics["kl_paid"] != 0.0
        assert any(not torch.equal(before[n], v) for n, v in loop.learners["policy"].backend.weights().items())
