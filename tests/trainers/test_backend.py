"""The local backend: gradients, steps, metrics, the reference; and samplers that follow it."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from marl_gem.errors import TrainingError
from marl_gem.llm import Sampling
from marl_gem.trainers.algorithms import TokenBatch, policy_gradient
from marl_gem.trainers.backends.frozen import FrozenModel, copy_weights, load_weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.batch import Trajectory
from marl_gem.trainers.opponent_pool import OpponentPool, Snapshot
from marl_gem.trainers.rows import Row, merge
from marl_gem.trainers.samplers.in_process import InProcessSampler
from marl_gem.trainers.sections import PolicyConfig
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from tests.trainers.test_batch import transition


def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer(["one two three"])


def tiny(seed: int = 1) -> PreTrainedModel:
    return tiny_model(tokenizer(), width=16, heads=2, context=64, seed=seed)


def backend(model: PreTrainedModel | None = None, **options: Any) -> LocalBackend:
    return LocalBackend(model or tiny(), tokenizer(), **options)


def gradient(
    rows: list[Row], denominator: int, *, kl: float = 0.0, double: bool = False, **options: Any
) -> torch.Tensor:
    """The gradient of one update, before it is scaled down."""
    learner = backend(tiny().double() if double else tiny(), **options)
    learner.reference = copy_weights(tiny(seed=2).double() if double else tiny(seed=2))
    learner.forward_backward(rows, policy_gradient, denominator=denominator, kl_weight=kl)
    return torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None])


def conversation(rng: random.Random, turns: int) -> Trajectory:
    """A trajectory in which every prompt extends the one before."""
    ids: tuple[int, ...] = ()
    trajectory = []
    for _ in range(turns):
        prompt = ids + tuple(rng.choices(range(5, 200), k=rng.randint(1, 5)))
        action = tuple(rng.choices(range(5, 200), k=rng.randint(1, 4)))
        trajectory.append(transition(prompt, action, rng.uniform(-1, 1)))
        ids = prompt + action
    return trajectory


def unmerged(batch: list[Trajectory]) -> list[Row]:
    """A row for each transition."""
    return [row for trajectory in batch for t in trajectory for row in merge([[t]], fold=False)]


class TestGradients:
    @pytest.mark.parametrize("kl", [0.0, 0.3])
    def test_merged_rows_have_the_gradient_of_the_unmerged(self, kl: float) -> None:
        rng = random.Random(3)
        batch = [conversation(rng, rng.randint(1, 5)) for _ in range(6)]
        batch += batch[:3]
        merged, apart = merge(batch, fold=True), unmerged(batch)
        assert len(merged) == 6 < len(apart)
        first, second = (gradient(rows, len(apart), kl=kl, double=True) for rows in (merged, apart))
        assert first.dtype == torch.float64
        assert (first - second).norm() / second.norm() < 1e-12

    @pytest.mark.parametrize("option", [{"micro_batch_tokens": 30}, {"logits_at_once": 500}])
    def test_the_gradient_does_not_depend_on_how_memory_is_saved(self, option: dict[str, int]) -> None:
        rng = random.Random(4)
        rows = merge((conversation(rng, rng.randint(1, 4)) for _ in range(9)), fold=True)
        expected, found = (gradient(rows, 9, kl=0.3, double=True, **options) for options in ({}, option))
        assert expected.abs().max() > 0
        assert (expected - found).norm() / expected.norm() < 1e-12

    def test_the_denominator_is_fixed_not_counted(self) -> None:
        rows = merge([[transition((7, 8), (9, 10))]], fold=True)
        assert torch.allclose(gradient(rows, 1), 4 * gradient(rows, 4), atol=1e-6)

    def test_gradients_add_up_until_the_step(self) -> None:
        learner, rows = backend(), merge([[transition((7, 8), (9,))]], fold=True)
        for _ in range(2):
            learner.forward_backward(rows, policy_gradient, denominator=1)
        twice = learner.step(learning_rate=0.0, max_grad_norm=1.0)
        learner.forward_backward(rows, policy_gradient, denominator=1)
        assert twice == pytest.approx(2 * learner.step(learning_rate=0.0, max_grad_norm=1.0), rel=1e-5)

    def test_a_head_that_changes_its_logits_is_read_as_the_model_does(self) -> None:
        config = Gemma2Config(
            vocab_size=300, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, head_dim=8, final_logit_softcapping=0.5, sliding_window=16,
        )  # fmt: skip
        torch.manual_seed(0)
        model = Gemma2ForCausalLM(config).eval()
        learner = LocalBackend(model, tokenizer())
        metrics = learner.forward_backward(
            merge([[transition((7, 8), (9,))]], fold=True), policy_gradient, denominator=1
        )
        expected = torch.log_softmax(model(torch.tensor([[7, 8]])).logits[0, -1].float(), -1)[9]
        assert metrics["loss"] == pytest.approx(-expected.item(), abs=1e-5)


class TestSteps:
    def test_an_update_makes_what_did_well_likelier(self) -> None:
        learner = backend()
        good, bad = transition((7, 8), (9,), 1.0), transition((7, 8), (10,), -1.0)

        def logprobs() -> torch.Tensor:
            return torch.log_softmax(learner.model(torch.tensor([[7, 8]])).logits[0, -1], -1)[[9, 10]]

        before = logprobs()
        learner.forward_backward(merge([[good], [bad]], fold=True), policy_gradient, denominator=2)
        learner.step(learning_rate=1e-3, max_grad_norm=1.0)
        after = logprobs()
        assert after[0] > before[0]
        assert after[1] < before[1]

    def test_the_reference_holds_the_policy_back(self) -> None:
        def divergence(kl_weight: float) -> float:
            learner = backend()
            learner.set_reference()
            rows = merge([[transition((7, 8), (9,), 1.0)]], fold=True)
            for _ in range(30):
                metrics = learner.forward_backward(rows, policy_gradient, denominator=1, kl_weight=kl_weight)
                learner.step(learning_rate=1e-2, max_grad_norm=1.0)
            return metrics["kl"]

        assert 0 < divergence(2.0) < divergence(0.01)

    @pytest.mark.parametrize(("momentum", "moves"), [(0.9, True), (0.0, False)])
    def test_only_momentum_goes_on_without_a_gradient(self, momentum: float, moves: bool) -> None:
        learner = backend(momentum=momentum)
        for advantage in (1.0, 0.0):
            before = learner.weights()
            rows = merge([[transition((7, 8), (9,), advantage)]], fold=True)
            learner.forward_backward(rows, policy_gradient, denominator=1)
            learner.step(learning_rate=1e-2, max_grad_norm=1.0)
        after = learner.weights()
        assert any(not torch.equal(before[name], after[name]) for name in after) is moves

    def test_metrics_are_those_of_the_policy(self) -> None:
        learner = backend()
        rows = merge([[transition((7, 8), (9,))]], fold=True)
        metrics = learner.forward_backward(rows, policy_gradient, denominator=1)
        logprobs = torch.log_softmax(learner.model(torch.tensor([[7, 8]])).logits[0, -1], -1)
        assert metrics["entropy"] == pytest.approx(-(logprobs.exp() * logprobs).sum().item(), abs=1e-5)
        assert metrics["logprob_diff"] == pytest.approx(logprobs[9].item() + 1.0, abs=1e-5)
        assert metrics["loss"] == pytest.approx(-logprobs[9].item(), abs=1e-5)

    def test_the_divergence_is_that_from_the_reference(self) -> None:
        learner, other = backend(), tiny(seed=2)
        learner.reference = copy_weights(other)
        rows = merge([[transition((7, 8), (9,))]], fold=True)
        metrics = learner.forward_backward(rows, policy_gradient, denominator=1, kl_weight=0.5)
        p, q = (torch.log_softmax(m(torch.tensor([[7, 8]])).logits[0, -1], -1) for m in (learner.model, other))
        assert metrics["kl"] == pytest.approx((p.exp() * (p - q)).sum().item(), abs=1e-5)

    def test_the_loss_sees_0_where_nothing_was_sampled(self) -> None:
        """Of what was shown and of what fills short rows; so a loss may sum over all tokens."""
        seen: list[TokenBatch] = []

        def loss(tokens: TokenBatch) -> torch.Tensor:
            seen.append(tokens)
            return policy_gradient(tokens)

        learner = backend()
        learner.reference = copy_weights(tiny(seed=2))
        long = [transition((7, 8), (9,)), transition((7, 8, 9, 10, 11), (12, 13))]
        rows = merge([long, [transition((7,), (8,))]], fold=False)
        learner.forward_backward(rows, loss, denominator=3, kl_weight=0.1)
        (tokens,) = seen
        shown = tokens.counts == 0
        assert shown.any() and not shown.all()
        for values in (tokens.logprobs, tokens.kl, tokens.advantages, tokens.behaviour_logprobs):
            assert not values[shown].any() and values[~shown].all()

    @pytest.mark.parametrize("advantage", [float("inf"), float("nan"), 1e38])
    def test_a_gradient_that_is_not_finite_changes_nothing(self, advantage: float) -> None:
        learner = backend()
        before = copy_weights(learner.model)
        rows = merge([[transition((7,), (8, 9), advantage)]], fold=True)
        with pytest.raises(TrainingError, match=r"no step was taken.*lower training.learning_rate"):
            learner.forward_backward(rows, policy_gradient, denominator=1)
            learner.step(learning_rate=1e-3, max_grad_norm=1.0)
        assert all(torch.equal(value, before[name]) for name, value in copy_weights(learner.model).items())
        learner.forward_backward(merge([[transition((7,), (8,))]], fold=True), policy_gradient, denominator=1)
        assert learner.step(learning_rate=1e-3, max_grad_norm=1.0) > 0


class TestFrozenWeights:
    def test_tied_weights_are_kept_once_and_come_back(self) -> None:
        model, other = tiny(seed=1), tiny(seed=2)
        weights = copy_weights(model)
        assert "lm_head.weight" in model.state_dict() and "lm_head.weight" not in weights
        load_weights(other, weights)
        ids = torch.tensor([[7, 8, 9]])
        assert torch.equal(other(ids).logits, model(ids).logits)

    def test_one_model_serves_all_of_them(self) -> None:
        frozen = FrozenModel(tiny(seed=1))
        first, second = copy_weights(tiny(seed=2)), copy_weights(tiny(seed=3))
        model = frozen.load(first)
        assert frozen.load(second) is model
        assert torch.equal(model.state_dict()["transformer.wte.weight"], second["transformer.wte.weight"])
        assert not any(parameter.requires_grad for parameter in model.parameters())

    def test_a_pool_spans_the_run_when_it_is_full(self) -> None:
        pool = OpponentPool(size=3, every=2)
        for version in range(12):
            pool.snapshot(version, lambda version=version: {"x": torch.tensor(version)})  # type: ignore[misc]
        assert [snapshot.version for snapshot in pool.snapshots] == [0, 4, 8]  # first every 2, then 4, then 8 updates
        assert [pool.get(version) for version in pool.versions] == pool.snapshots


class TestSampler:
    def ask(self, policy: Any) -> tuple[tuple[int, ...], int]:
        message = [{"role": "user", "content": "one two"}]
        response = asyncio.run(policy.llm.complete(message, Sampling(6, 1.0), 3))
        return response.token_ids, response.version

    def test_a_copy_answers_with_the_weights_it_was_given_last(self) -> None:
        learner, copied = backend(tiny(seed=1)), copy.deepcopy(tiny(seed=1))
        shared = InProcessSampler("shared", learner.model, tokenizer(), PolicyConfig())
        apart = InProcessSampler("apart", copied, tokenizer(), PolicyConfig())
        rows = merge([[transition((7, 8), (9,), 5.0)]], fold=True)
        for _ in range(20):
            learner.forward_backward(rows, policy_gradient, denominator=1)
            learner.step(learning_rate=0.05, max_grad_norm=1.0)
        learner.version = 20
        shared.sync(learner)
        assert self.ask(shared.policy)[0] != self.ask(apart.policy)[0]
        apart.sync(learner)
        assert self.ask(apart.policy) == self.ask(shared.policy)
        assert self.ask(apart.policy)[1] == 20

    def test_an_opponent_answers_with_the_weights_of_its_snapshot(self) -> None:
        old = tiny(seed=5)
        sampler = InProcessSampler("x", tiny(seed=1), tokenizer(), PolicyConfig())
        answer = self.ask(sampler.opponent(Snapshot(7, copy_weights(old))))
        assert answer == (self.ask(InProcessSampler("y", old, tokenizer(), PolicyConfig()).policy)[0], 7)
