"""The warm start: fresh models learn to answer at all, by imitating demonstrations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marl_gem.errors import ConfigError
from marl_gem.seeding import derive_seed
from marl_gem.trainers.algorithms import policy_gradient
from marl_gem.trainers.backends.base import Backend
from marl_gem.trainers.batch import Trajectory
from marl_gem.trainers.demonstrations import demonstration_trajectories
from marl_gem.trainers.episode_plan import seed_part
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.rows import merge
from marl_gem.trainers.samplers.in_process import InProcessSampler
from marl_gem.trainers.schedule import TrainingPhase, learner_seats
from marl_gem.trainers.sections import TrainConfig
from marl_gem.trainers.start import start
from marl_gem.trainers.starting_point import imitators
from marl_gem.types import Episode
from marl_gem.views import view


def warm_started(config: TrainConfig) -> TrainingLoop:
    """A new run's loop, after its warm start."""
    loop, demonstrations = start(config)
    if config.imitation.steps:
        for _ in warm_up(config, loop.phases, loop.learners, demonstrations):
            pass
    return loop


def warm_up(
    config: TrainConfig,
    phases: Sequence[TrainingPhase],
    learners: Mapping[str, Learner],
    demonstrations: Sequence[Sequence[Episode]],
) -> Iterator[dict[str, Any]]:
    """Let each policy imitate what its seats do in the demonstrations, and yield each step's metrics.

    A policy that begins with what another run has learned does not. Where several policies learn, `policy` names the
    one that took the step.

    Args:
        config: the run's.
        phases: give the seats that each policy ever holds.
        learners: the policies, by name.
        demonstrations: for each scenario, see `collect_demonstrations`.

    Raises:
        ConfigError: there is nothing for a policy to imitate, or more than it can read.
    """
    plan = config.imitation
    seats_of = learner_seats(phases)
    for name in imitators(config, seats_of):
        learner, seats = learners[name], seats_of[name]
        assert isinstance(learner.sampler, InProcessSampler)  # a warm start needs the tokenizer
        shown = [
            trajectory
            for episodes, agents in zip(demonstrations, seats, strict=True)
            for trajectory in demonstration_trajectories(
                episodes, agents, learner.sampler.llm, view(for_policy(config, name).policy.view)
            )
        ]
        if not shown:
            agents = sorted({agent for of_scenario in seats for agent in of_scenario})
            raise ConfigError(
                f"there is nothing for {name} to imitate: in {sum(map(len, demonstrations))} episodes nobody had a "
                f"turn as {' or '.join(agents)}; play more (imitation.episodes), or seat random there"
            )
        steps = imitate(
            learner.backend,
            shown,
            steps=plan.steps,
            batch=plan.batch,
            learning_rate=plan.learning_rate,
            max_grad_norm=for_policy(config, name).training.max_grad_norm,
            seed=derive_seed(config.seed, "imitation", *seed_part(name)),
        )
        policy = {"policy": name} if len(learners) > 1 else {}
        yield from ({**policy, **metrics} for metrics in steps)
        learner.sampler.sync(learner.backend)


def imitate(
    backend: Backend,
    demonstrated: Sequence[Trajectory],
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    max_grad_norm: float,
    seed: int,
) -> Iterator[dict[str, float]]:
    """Train a model to give the responses that are demonstrated, and yield each step's metrics.

    Every step learns from trajectories drawn at random, of about `batch` turns together; `loss` is the cross-entropy a
    turn, in nats. The learning rate falls along a line to a tenth.
    """
    rng = random.Random(seed)
    count = max(1, round(batch * len(demonstrated) / sum(map(len, demonstrated))))
    for step in range(steps):
        drawn = rng.choices(demonstrated, k=count)
        rows, turns = merge(drawn, fold=True), sum(map(len, drawn))
        metrics = backend.forward_backward(rows, policy_gradient, denominator=turns)
        metrics["gradient_norm"] = backend.step(
            learning_rate=learning_rate * (1 - 0.9 * step / steps), max_grad_norm=max_grad_norm
        )
        yield metrics
