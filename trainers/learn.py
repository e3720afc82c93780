"""What happens between a batch of trajectories and the policies' new weights."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem.errors import TrainingError
from marl_gem.trainers.algorithms import Algorithm
from marl_gem.trainers.algorithms.base import truncated
from marl_gem.trainers.backends.base import Regularization
from marl_gem.trainers.batch import Batch, Trajectory
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.rows import Row, merge, split
from marl_gem.trainers.sections import TrainingConfig

GREATEST_RETURN = 1e100


def learn(
    batch: Batch,
    holders: Sequence[str],
    learners: Mapping[str, Learner],
    algorithm: Algorithm,
    training: TrainingConfig,
    *,
    learning_rate: float,
    kl_weight: float,
    name_metrics: bool,
) -> dict[str, Any]:
    """Let every policy take its steps on its part of a batch.

    Args:
        batch: all trajectories of the update.
        holders: the name of each trajectory's policy.
        learners: the policies, by name.
        algorithm: gives advantages and the loss.
        training: the configuration.
        learning_rate, kl_weight: of this update.
        name_metrics: whether each policy's metrics end with its name.

    Returns:
        the metrics of the algorithm and of every policy.
    """
    metrics: dict[str, Any] = {"cut": sum(t.cut for t in batch.transitions) / max(len(batch.transitions), 1)}
    if training.cut_penalty:
        batch = batch.with_rewards([t.reward - training.cut_penalty * t.cut for t in batch.transitions])
    if training.kl_in == "reward" and kl_weight:
        batch, metrics["kl_paid"] = _pay_divergence(batch, holders, learners, kl_weight)
        kl_weight = 0.0
    if algorithm.needs.critic:
        batch = _valued(batch, holders, learners)
    _check_returns(batch)
    advantages = algorithm.advantages(batch)
    batch = batch.with_advantages(advantages.values)
    if training.cut_answers == "mask":
        batch = batch.with_masks([t.cut for t in batch.transitions])
    metrics |= advantages.metrics
    regularization = Regularization(training.kl_estimator, training.kl_average == "token", training.entropy)
    targets = _per_trajectory(advantages.targets, batch) if algorithm.needs.critic else []
    for name, learner in learners.items():
        mine = [index for index, holder in enumerate(holders) if holder == name]
        part = [batch.trajectories[index] for index in mine]
        learned = _step(
            learner,
            part,
            algorithm,
            training,
            regularization,
            learning_rate=learning_rate,
            kl_weight=kl_weight,
        )
        if learner.critic is not None and part:
            learned |= learner.critic.fit(
                part,
                [targets[index] for index in mine],
                epochs=algorithm.needs.epochs,
                learning_rate=training.critic_learning_rate,
                max_grad_norm=training.max_grad_norm,
            )
        suffix = f"/{name}" if name_metrics else ""
        metrics |= {key + suffix: value for key, value in learned.items()}
    return metrics


def _check_returns(batch: Batch) -> None:
    """Raises TrainingError where sums and squares of the returns would not be finite."""
    for transition in batch.transitions:
        if not abs(transition.return_) < GREATEST_RETURN:
            raise TrainingError(
                f"the return of {transition.agent!r} in episode {transition.episode} is {transition.return_}; returns "
                f"lie between -{GREATEST_RETURN:g} and {GREATEST_RETURN:g}. No step was taken, and the weights are as "
                "they were"
            )


def _step(
    learner: Learner,
    part: Sequence[Trajectory],
    algorithm: Algorithm,
    training: TrainingConfig,
    regularization: Regularization,
    *,
    learning_rate: float,
    kl_weight: float,
) -> dict[str, float]:
    """Take as many steps as the algorithm asks for; without any turn, none."""
    turns, needs = sum(not t.masked for trajectory in part for t in trajectory), algorithm.needs
    correct = training.staleness > 0 and not needs.off_policy
    loss = truncated(algorithm.loss) if correct else algorithm.loss
    equal_logprobs = correct or not needs.linear_loss
    rows = merge(part, fold=needs.linear_loss or needs.separate_signs, equal_logprobs=equal_logprobs)
    rows = [row for row in rows if any(row.counts)]
    if not rows:
        return {"turns": 0, "rows": 0}
    if needs.proximal:
        _set_proximal(learner, rows)
    metrics = _ages(part, learner.backend.version) if training.staleness else {}
    begun = time.perf_counter()
    for _ in range(needs.epochs):
        metrics |= learner.backend.forward_backward(
            rows, loss, denominator=turns, kl_weight=kl_weight, regularization=regularization
        )
        metrics["gradient_norm"] = learner.backend.step(
            learning_rate=learning_rate, max_grad_norm=training.max_grad_norm
        )
    metrics |= _speed(learner, rows, (time.perf_counter() - begun) / needs.epochs)
    learner.backend.version += 1
    learner.sampler.sync(learner.backend)
    return {"turns": turns, "rows": len(rows), **metrics}


def _ages(part: Sequence[Trajectory], version: int) -> dict[str, float]:
    """By how many updates the versions that sampled are older than the present one."""
    ages = [version - transition.version for trajectory in part for transition in trajectory]
    return {"staleness": sum(ages) / len(ages), "staleness_max": max(ages)}


def _speed(learner: Learner, rows: Sequence[Row], seconds: float) -> dict[str, float]:
    """How fast a step on these rows was.

    Args:
        learner: took it.
        rows: what it was taken on.
        seconds: the wall time of the step.
    """
    tokens, used = sum(sum(row.counts) for row in rows), learner.backend.utilization(rows, seconds)
    return {"tokens": tokens, "tokens_per_second": tokens / seconds, **({"mfu": used} if used is not None else {})}


def _set_proximal(learner: Learner, rows: Sequence[Row]) -> None:
    for row, logprobs in zip(rows, learner.backend.logprobs(rows), strict=True):
        row.proximal = logprobs


def _pay_divergence(
    batch: Batch, holders: Sequence[str], learners: Mapping[str, Learner], kl_weight: float
) -> tuple[Batch, float]:
    """Take kl_weight * (ln p - ln p_ref) of its sampled tokens from every turn's reward.

    Returns:
        the batch with these rewards and their returns, and the mean that a turn paid, in nats.
    """
    differences: dict[int, list[float]] = {}  # of each trajectory's turns
    for name, learner in learners.items():
        mine = [index for index, holder in enumerate(holders) if holder == name]
        part = [batch.trajectories[index] for index in mine]
        if not part:
            continue
        reference = learner.backend.logprobs(merge(part, fold=False), reference=True)
        expected = iter(split(reference, part))
        for index, trajectory in zip(mine, part, strict=True):
            differences[index] = [sum(turn.logprobs) - sum(next(expected)) for turn in trajectory]
    flat = [difference for index in range(len(batch.trajectories)) for difference in differences[index]]
    rewards = [t.reward - kl_weight * difference for t, difference in zip(batch.transitions, flat, strict=True)]
    return batch.with_rewards(rewards), sum(flat) / max(len(flat), 1)


def _valued(batch: Batch, holders: Sequence[str], learners: Mapping[str, Learner]) -> Batch:
    """The batch with what each policy's critic expects of its turns."""
    values: dict[int, list[float]] = {}
    final: dict[int, float] = {}
    for name, learner in learners.items():
        mine = [index for index, holder in enumerate(holders) if holder == name]
        if learner.critic is None or not mine:
            continue
        found = learner.critic.values([batch.trajectories[index] for index in mine])
        for index, (of_turns, after) in zip(mine, found, strict=True):
            values[index], final[index] = of_turns, after
    order = range(len(batch.trajectories))
    return batch.with_values([value for index in order for value in values[index]], [final[index] for index in order])


def _per_trajectory(values: Sequence[float], batch: Batch) -> list[list[float]]:
    """One value for each transition, cut into those of each trajectory."""
    following = iter(values)
    return [[next(following) for _ in trajectory] for trajectory in batch.trajectories]
