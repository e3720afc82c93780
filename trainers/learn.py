"""What happens between a batch of trajectories and the policies' new weights."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class PolicyStep:
    """How a policy learns in an update: its algorithm, its section of the configuration, its rate and its pull."""

    learner: Learner
    algorithm: Algorithm
    training: TrainingConfig
    learning_rate: float
    kl_weight: float


def learn(
    trajectories: Sequence[Trajectory],
    holders: Sequence[str],
    steps: Mapping[str, PolicyStep],
    *,
    name_metrics: bool,
) -> dict[str, Any]:
    """Let every policy take its steps on its part of an update's trajectories.

    Policies with the same algorithm (the same object) learn from one batch: it sees the trajectories of all of them.

    Args:
        trajectories: those of the update.
        holders: the name of each trajectory's policy.
        steps: how each policy learns, by name.
        name_metrics: whether each policy's metrics end with its name.

    Returns:
        the metrics of the algorithms and of every policy. Where there are several algorithms, the metrics of each end
        with the names of its policies.
    """
    turns = [transition for trajectory in trajectories for transition in trajectory]
    metrics: dict[str, Any] = {"cut": sum(t.cut for t in turns) / max(len(turns), 1)}
    together: dict[int, list[str]] = {}
    for name, step in steps.items():
        together.setdefault(id(step.algorithm), []).append(name)
    prepared: dict[str, tuple[list[Trajectory], list[list[float]]]] = {}
    for names in together.values():
        mine = [index for index, holder in enumerate(holders) if holder in names]
        gamma = steps[names[0]].training.gamma
        batch = Batch([trajectories[index] for index in mine], gamma)
        batch, targets, found = _advantages(batch, [holders[index] for index in mine], {n: steps[n] for n in names})
        suffix = f"/{'+'.join(names)}" if len(together) > 1 else ""
        metrics |= {key + suffix: value for key, value in found.items()}
        for name in names:
            part = [position for position, index in enumerate(mine) if holders[index] == name]
            prepared[name] = [batch.trajectories[p] for p in part], [targets[p] for p in part] if targets else []
    for name, step in steps.items():
        learned = _step(step, *prepared[name])
        suffix = f"/{name}" if name_metrics else ""
        metrics |= {key + suffix: value for key, value in learned.items()}
    return metrics


def _advantages(
    batch: Batch, holders: Sequence[str], steps: Mapping[str, PolicyStep]
) -> tuple[Batch, list[list[float]], dict[str, Any]]:
    """The batch of policies with one algorithm with its advantages, what their critics are fitted to, and metrics."""
    metrics: dict[str, Any] = {}
    algorithm = next(iter(steps.values())).algorithm
    of_turns = [steps[holder] for holder, part in zip(holders, batch.trajectories, strict=True) for _ in part]
    turns = batch.transitions
    if any(step.training.cut_penalty for step in steps.values()):
        penalties = [step.training.cut_penalty * t.cut for t, step in zip(turns, of_turns, strict=True)]
        batch = batch.with_rewards([t.reward - penalty for t, penalty in zip(turns, penalties, strict=True)])
    if any(map(_pays, steps.values())):
        batch, metrics["kl_paid"] = _pay_divergence(batch, holders, steps)
    if algorithm.needs.critic:
        batch = _valued(batch, holders, {name: step.learner for name, step in steps.items()})
    _check_returns(batch)
    advantages = algorithm.advantages(batch)
    batch = batch.with_advantages(advantages.values)
    if any(step.training.cut_answers == "mask" for step in steps.values()):
        masks = [t.cut and step.training.cut_answers == "mask" for t, step in zip(turns, of_turns, strict=True)]
        batch = batch.with_masks(masks)
    targets = _per_trajectory(advantages.targets, batch) if algorithm.needs.critic else []
    return batch, targets, metrics | dict(advantages.metrics)


def _pays(step: PolicyStep) -> bool:
    """Whether the policy's divergence is paid as a reward."""
    return step.training.kl_in == "reward" and step.kl_weight > 0


def _check_returns(batch: Batch) -> None:
    """Raises TrainingError where sums and squares of the returns would not be finite."""
    for transition in batch.transitions:
        if not abs(transition.return_) < GREATEST_RETURN:
            raise TrainingError(
                f"the return of {transition.agent!r} in episode {transition.episode} is {transition.return_}; returns "
                f"lie between -{GREATEST_RETURN:g} and {GREATEST_RETURN:g}. No step was taken, and the weights are as "
                "they were"
            )


def _step(step: PolicyStep, part: Sequence[Trajectory], targets: Sequence[Sequence[float]]) -> dict[str, float]:
    """Take as many steps as the algorithm asks for, also with the critic; without any turn, none."""
    learner, training, needs = step.learner, step.training, step.algorithm.needs
    turns = sum(not t.masked for trajectory in part for t in trajectory)
    equal_logprobs = _is_corrected(step) or not needs.linear_loss
    rows = merge(part, fold=needs.linear_loss or needs.separate_signs, equal_logprobs=equal_logprobs)
    rows = [row for row in rows if any(row.counts)]
    metrics = _ages(part, learner.backend.version) if training.staleness and rows else {}
    if rows:
        metrics |= _optimize(step, rows, turns)
    if learner.critic is not None and part:
        metrics |= learner.critic.fit(
            part,
            targets,
            epochs=needs.epochs,
            learning_rate=training.critic_learning_rate,
            max_grad_norm=training.max_grad_norm,
        )
    return {"turns": turns if rows else 0, "rows": len(rows), **metrics}


def _optimize(step: PolicyStep, rows: Sequence[Row], turns: int) -> dict[str, float]:
    learner, training, needs = step.learner, step.training, step.algorithm.needs
    if needs.proximal:
        _set_proximal(learner, rows)
    loss = truncated(step.algorithm.loss) if _is_corrected(step) else step.algorithm.loss
    metrics: dict[str, float] = {}
    begun = time.perf_counter()
    for _ in range(needs.epochs):
        metrics = learner.backend.forward_backward(
            rows,
            loss,
            denominator=turns,
            kl_weight=0.0 if _pays(step) else step.kl_weight,
            regularization=Regularization(training.kl_estimator, training.kl_average == "token", training.entropy),
        )
        metrics["gradient_norm"] = learner.backend.step(
            learning_rate=step.learning_rate, max_grad_norm=training.max_grad_norm
        )
    metrics |= _speed(learner, rows, (time.perf_counter() - begun) / needs.epochs)
    learner.backend.version += 1
    learner.sampler.sync(learner.backend)
    return metrics


def _is_corrected(step: PolicyStep) -> bool:
    """Whether the loss gets importance weights, since it does not weigh what earlier versions sampled by itself."""
    return step.training.staleness > 0 and not step.algorithm.needs.off_policy


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


def _pay_divergence(batch: Batch, holders: Sequence[str], steps: Mapping[str, PolicyStep]) -> tuple[Batch, float]:
    """Take kl_weight * (ln p - ln p_ref) of its sampled tokens from every turn's reward, where the policy pays it so.

    Returns:
        the batch with these rewards and their returns, and the mean that a turn paid, in nats.
    """
    differences: dict[int, list[float]] = {}  # of the turns of each trajectory that pays
    for name, step in steps.items():
        mine = [index for index, holder in enumerate(holders) if holder == name]
        part = [batch.trajectories[index] for index in mine]
        if not part or not _pays(step):
            continue
        reference = step.learner.backend.logprobs(merge(part, fold=False), reference=True)
        expected = iter(split(reference, part))
        for index, trajectory in zip(mine, part, strict=True):
            differences[index] = [sum(turn.logprobs) - sum(next(expected)) for turn in trajectory]
    rewards = []
    for index, (holder, trajectory) in enumerate(zip(holders, batch.trajectories, strict=True)):
        paid = differences.get(index, [0.0] * len(trajectory))
        weight = steps[holder].kl_weight
        rewards += [turn.reward - weight * difference for turn, difference in zip(trajectory, paid, strict=True)]
    flat = [difference for index in sorted(differences) for difference in differences[index]]
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
