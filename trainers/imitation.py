"""The warm start: a fresh model learns to answer at all, by imitating others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from marl_gem.trainers.learner import Learner
from marl_gem.trainers.transitions import Trajectory, merge


def imitate(
    learner: Learner, demonstrated: Sequence[Trajectory], *, steps: int, batch: int, learning_rate: float, seed: int
) -> Iterator[dict[str, float]]:
    """Train `learner` to give the answers that are demonstrated, and yield each step's metrics.

    Every step learns from trajectories drawn at random, of about `batch` turns together; `loss` is the
    cross-entropy a turn, in nats. The learning rate falls linearly to a tenth.
    """
    rng = random.Random(seed)
    count = max(1, round(batch * len(demonstrated) / sum(map(len, demonstrated))))
    for step in range(steps):
        drawn = rng.choices(demonstrated, k=count)
        rate = learning_rate * (1 - 0.9 * step / steps)
        yield learner.update(merge(drawn), learning_rate=rate, denominator=sum(map(len, drawn)))
