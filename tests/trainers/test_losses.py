"""Losses: against formulas written out token by token, merged against unmerged; gradients of the divergences."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest
import torch

from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.backends.base import Regularization
from marl_gem.trainers.backends.frozen import copy_weights
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.readout import estimate
from marl_gem.trainers.batch import Trajectory
from marl_gem.trainers.rows import Row, merge, split
from tests.trainers.support import kuhn, warmed_up
from tests.trainers.test_backend import conversation, tiny, tokenizer, unmerged

LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "policy gradient": ("rebn", {}),
    "clipped, answers": ("grpo", {}),
    "clipped, turns": ("grpo", {"average": "turn", "clip_high": 0.28}),
    "clipped, tokens": ("ppo", {"average": "token"}),
    "truncated": ("reinforce_pp", {"importance": "truncated", "importance_high": 1.5}),
    "masked": ("reinforce_pp", {"importance": "masked"}),
}


def off_policy(seed: int) -> list[Trajectory]:
    """Conversations with duplicates, sampled by a policy that gave each token another probability."""
    rng = random.Random(seed)
    batch = [conversation(rng, rng.randint(1, 4)) for _ in range(5)]
    batch = [
        [
            msgspec.structs.replace(t, turn=turn, logprobs=tuple(rng.uniform(-7, -4) for _ in t.action_ids))
            for turn, t in enumerate(part)
        ]
        for part in batch
    ]
    again = [[msgspec.structs.replace(t, advantage=rng.uniform(-1, 1)) for t in part] for part in batch[:3]]
    return batch + again


def double() -> LocalBackend:
    learner = LocalBackend(tiny().double(), tokenizer())
    learner.reference = copy_weights(tiny(seed=2).double())
    return learner


def set_proximal(rows: list[Row]) -> None:
    """Log-probabilities of a third policy."""
    learner = LocalBackend(tiny(seed=3).double(), tokenizer())
    for row, logprobs in zip(rows, learner.logprobs(rows), strict=True):
        row.proximal = logprobs


def gradient(
    rows: list[Row], loss: Any, denominator: int, regularization: Regularization, kl: float = 0.3
) -> tuple[torch.Tensor, float]:
    learner = double()
    metrics = learner.forward_backward(rows, loss, denominator=denominator, kl_weight=kl, regularization=regularization)
    return torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None]), metrics["loss"]


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.parametrize(
    "regularization", [Regularization(), Regularization("k3", True, 0.1), Regularization("k2"), Regularization("k1")]
)
def test_merged_and_folded_rows_have_the_gradient_of_the_unmerged(case: str, regularization: Regularization) -> None:
    name, options = LOSSES[case]
    algorithm = make_algorithm(name, options)
    batch, needs = off_policy(5), algorithm.needs
    merged = merge(batch, fold=needs.linear_loss or needs.separate_signs, equal_logprobs=not needs.linear_loss)
    apart = unmerged(batch)
    assert len(merged) < len(apart) and max(max(row.counts) for row in merged) == 2
    if needs.proximal:
        set_proximal(merged)
        set_proximal(apart)
    (first, value), (second, expected) = (
        gradient(rows, algorithm.loss, len(apart), regularization) for rows in (merged, apart)
    )
    assert second.norm() > 1e-3
    assert (first - second).norm() / second.norm() < 1e-12
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("case", [case for case in LOSSES if case != "policy gradient"])
def test_the_surrogate_is_the_formula_token_by_token(case: str) -> None:
    name, options = LOSSES[case]
    algorithm = make_algorithm(name, options)
    batch = off_policy(6)
    rows = unmerged(batch)
    if algorithm.needs.proximal:
        set_proximal(rows)
    _, value = gradient(rows, algorithm.loss, len(rows), Regularization(), kl=0.0)
    given: Any = algorithm.options  # type: ignore[attr-defined]
    total, token_count = 0.0, sum(len(t.action_ids) for part in batch for t in part)
    for row, now in zip(rows, double().logprobs(rows), strict=True):
        for index in (index for index, count in enumerate(row.counts) if count):
            behaviour, advantage = row.logprobs[index], row.advantages[index]
            proximal = row.proximal[index] if algorithm.needs.proximal else behaviour
            ratio = torch.exp(torch.tensor(now[index] - proximal, dtype=torch.float64)).item()
            clipped = min(max(ratio, 1 - given.clip_low), 1 + given.clip_high)
            weight = torch.exp(torch.tensor(proximal - behaviour, dtype=torch.float64)).item()
            if given.importance == "none":
                weight = 1.0
            elif given.importance == "truncated":
                weight = min(weight, given.importance_high)
            elif not given.importance_low <= weight <= given.importance_high:
                weight = 0.0
            scale = {"turn": len(rows), "answer": len(rows) * row.lengths[index], "token": token_count}[given.average]
            total -= weight * min(ratio * advantage, clipped * advantage) / scale
    assert value == pytest.approx(total, rel=1e-12)


def test_on_policy_the_surrogate_has_the_gradient_of_reinforce() -> None:
    batch = off_policy(7)
    rows = unmerged(batch)
    for row, logprobs in zip(rows, double().logprobs(rows), strict=True):
        row.logprobs = logprobs
    plain, clipped = make_algorithm("rebn", {}), make_algorithm("reinforce_pp", {})
    first, _ = gradient(rows, plain.loss, len(rows), Regularization())
    second, _ = gradient(rows, clipped.loss, len(rows), Regularization())
    assert (first - second).norm() / first.norm() < 1e-12


def test_entropy_grows_with_its_bonus() -> None:
    learner, rows = LocalBackend(tiny(), tokenizer()), unmerged(off_policy(8))
    for row in rows:
        row.advantages = [0.0] * len(row.ids)
    loss, bonus = make_algorithm("rebn", {}).loss, Regularization(entropy_weight=1.0)
    entropies = []
    for _ in range(20):
        metrics = learner.forward_backward(rows, loss, denominator=len(rows), regularization=bonus)
        entropies.append(metrics["entropy"])
        learner.step(learning_rate=1e-3, max_grad_norm=1.0)
    assert entropies[-1] > entropies[0] + 1e-3


def test_differences_from_the_sampling_policy_are_measured() -> None:
    learner, rows = double(), unmerged(off_policy(9))
    metrics = learner.forward_backward(rows, make_algorithm("rebn", {}).loss, denominator=len(rows))
    differences = torch.tensor(
        [
            now - then
            for row, current in zip(rows, learner.logprobs(rows), strict=True)
            for now, then, count in zip(current, row.logprobs, row.counts, strict=True)
            if count
        ],
        dtype=torch.float64,
    )
    assert metrics["logprob_diff"] == pytest.approx(differences.mean().item(), rel=1e-9)
    assert metrics["logprob_diff_abs"] == pytest.approx(differences.abs().mean().item(), rel=1e-9)
    assert metrics["logprob_diff_max"] == pytest.approx(differences.abs().max().item(), rel=1e-9)
    k3 = differences.exp() - 1 - differences
    assert metrics["sampling_kl"] == pytest.approx(k3.mean().item(), rel=1e-9)


def test_log_probabilities_come_back_to_their_turns() -> None:
    batch = off_policy(10)
    learner = double()
    merged = split(learner.logprobs(merge(batch, fold=False)), batch)
    apart = [
        [value for value, count in zip(values, row.counts, strict=True) if count]
        for row, values in zip(unmerged(batch), learner.logprobs(unmerged(batch)), strict=True)
    ]
    assert [len(values) for values in merged] == [len(t.action_ids) for part in batch for t in part]
    for values, expected in zip(merged, apart, strict=True):
        assert values == pytest.approx(expected, abs=1e-12)


class TestEstimators:
    """Over all tokens of a small vocabulary, each with its probability."""

    def setup_method(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logits = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
        self.reference = torch.log_softmax(torch.randn(6, generator=generator, dtype=torch.float64), -1)

    def mean(self, estimator: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of an estimator over tokens drawn from the policy, and the mean of its gradients."""
        logprobs = torch.log_softmax(self.logits, -1)
        values = estimate(logprobs - self.reference, estimator)
        weights = logprobs.exp().detach()
        (gradient,) = torch.autograd.grad((weights * values).sum(), self.logits)
        return (weights * values).sum().detach(), gradient

    def exact(self, forward: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """KL(policy || reference), or the other way round."""
        logprobs = torch.log_softmax(self.logits, -1)
        if forward:
            value = (logprobs.exp() * (logprobs - self.reference)).sum()
        else:
            value = (self.reference.exp() * (self.reference - logprobs)).sum()
        return value.detach(), torch.autograd.grad(value, self.logits)[0]

    @pytest.mark.parametrize("estimator", ["k1", "k3"])
    def test_k1_and_k3_have_the_divergence_as_mean(self, estimator: str) -> None:
        assert torch.allclose(self.mean(estimator)[0], self.exact(True)[0], atol=1e-12)

    def test_as_a_loss_only_k2_has_the_gradient_of_the_divergence(self) -> None:
        assert torch.allclose(self.mean("k2")[1], self.exact(True)[1], atol=1e-12)
        assert torch.allclose(self.mean("k1")[1], torch.zeros(6, dtype=torch.float64), atol=1e-12)
        assert torch.allclose(self.mean("k3")[1], self.exact(False)[1], atol=1e-12)


def test_paid_as_a_reward_the_divergence_of_sequences_is_complete() -> None:
    """Two tokens from a vocabulary of three, all sequences summed up: the score times what was paid has the gradient of
    the divergence between sequences; the divergences at each token alone do not."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(
        4, 3, generator=generator, dtype=torch.float64, requires_grad=True
    )  # root, and after each token
    reference = torch.log_softmax(torch.randn(4, 3, generator=generator, dtype=torch.float64), -1)

    def mean_gradient(reward: bool) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        logprobs = torch.log_softmax(logits, -1)
        for first, second in itertools.product(range(3), repeat=2):
            logprob = logprobs[0, first] + logprobs[1 + first, second]
            expected = reference[0, first] + reference[1 + first, second]
            probability = logprob.exp().detach()
            if reward:
                total = total + probability * logprob * (logprob - expected).detach()
            else:
                for row in (0, 1 + first):
                    total = total + probability * (logprobs[row].exp() * (logprobs[row] - reference[row])).sum()
        return torch.autograd.grad(total, logits)[0]

    logprobs = torch.log_softmax(logits, -1)
    sequences = (logprobs[0][:, None] + logprobs[1:]).flatten()
    expected = (reference[0][:, None] + reference[1:]).flatten()
    (truth,) = torch.autograd.grad((sequences.exp() * (sequences - expected)).sum(), logits)
    assert torch.allclose(mean_gradient(reward=True), truth, atol=1e-12)
    assert (mean_gradient(reward=False) - truth).norm() > 0.05 * truth.norm()


class TestCutAnswers:
    """A loop in which most answers are cut, since they may have one token and end with another."""

    def update(self, *assignments: str) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        loop, _ = warmed_up(kuhn("policy.max_tokens=1", "imitation.steps=1", *assignments))
        before = loop.learners["policy"].backend.weights()
        metrics, _ = loop.update()
        return metrics, before, loop.learners["policy"].backend.weights()

    def test_they_are_counted(self) -> None:
        metrics, _, _ = self.update()
        assert metrics["cut"] > 0.9 and metrics["turns"] > 0

    def test_nothing_is_learned_from_masked_ones(self) -> None:
        metrics, before, after = self.update("training.cut_answers=mask", "training.entropy=0.1")
        assert metrics["cut"] == 1.0 and (metrics["turns"], metrics["rows"]) == (0, 0)
        assert all(torch.equal(value, after[name]) for name, value in before.items())

    def test_a_penalty_is_taken_from_the_reward(self) -> None:
        loop, _ = warmed_up(kuhn("policy.max_tokens=1", "imitation.steps=1", "algorithm.options.group_by=none"))
        penalized, _ = warmed_up(
            kuhn(
                "policy.max_tokens=1", "imitation.steps=1", "algorithm.options.group_by=none", "training.cut_penalty=5"
            )
        )
        first, second = loop.update()[0], penalized.update()[0]
        assert second["advantage_max"] > first["advantage_max"] + 2
