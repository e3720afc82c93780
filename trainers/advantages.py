"""Credit: from rewards to returns to advantages."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple


class Baseline(NamedTuple):
    """What one group's returns were normalized with: their number, mean and standard deviation.

    `flat` tells that there was nothing to normalize, fewer than two returns or no spread, so that all
    advantages of the group are 0.
    """

    size: int
    mean: float
    std: float
    flat: bool


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return of every turn: G_t = r_t + gamma * G_{t+1}, over one agent's turns of one episode."""
    returns, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def rebn(returns: Sequence[float], groups: Sequence[Hashable]) -> tuple[list[float], dict[Hashable, Baseline]]:
    """Return batch normalization within groups: advantage = (return - mean) / std of the group.

    With the group (scenario, agent id) this is per-agent ReBN. Mean and population standard deviation are
    taken over all of the group's transitions in the batch, in float64 and two passes, so that a constant
    batch gives exactly 0. Source: GEM (arXiv 2510.01051), section 3.2 and algorithm 1.

    Args:
        returns: one discounted return a transition, for the whole batch.
        groups: what each transition is normalized together with.

    Returns:
        the advantages, in the order of the returns, and what each group was normalized with.
    """
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(returns, groups, strict=True):
        members.setdefault(group, []).append(value)
    baselines = {group: _baseline(values) for group, values in members.items()}
    advantages = [
        0.0 if (b := baselines[group]).flat else (value - b.mean) / b.std
        for value, group in zip(returns, groups, strict=True)
    ]
    return advantages, baselines


def _baseline(values: Sequence[float]) -> Baseline:
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    flat = len(values) < 2 or max(values) - min(values) <= 1e-9 * max(1.0, abs(mean))
    return Baseline(len(values), mean, std, flat)
