"""The warm start: a fresh model learns to answer at all, by imitating others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from marl_gem.trainers.learner import Learner
from marl_gem.trainers.transitions import Transition, merge


def imitate(
    learner: Learner, turns: Sequence[Transition], *, steps: int, batch: int, learning_rate: float, seed: int
) -> Iterator[dict[str, float]]:
    """Train `learner` to give the answers of `turns`, and yield each step's metrics.

    Every step learns from `batch` turns drawn at random; `loss` is the cross-entropy a turn, in nats. The
    learning rate falls linearly to a tenth.
    """
    rng = random.Random(seed)
    for step in range(steps):
        rows = merge([turn] for turn in rng.choices(turns, k=batch))
        rate = learning_rate * (1 - 0.9 * step / steps)
        yield learner.update(rows, learning_rate=rate, denominator=batch)
