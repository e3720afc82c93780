"""Returns or advantages, normalized within groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from marl_gem.trainers.batch import Transition

GroupBy: TypeAlias = Literal["agent", "agent_turn", "all"]
"""What is normalized together: all transitions of one agent of one scenario, those at one turn index, or all."""

Key: TypeAlias = tuple[str, ...]


class Baseline(NamedTuple):
    """The number, mean and standard deviation of a group's values. With `zero_variance`, fewer than two values or no
    spread, there is nothing to normalize, and every value of the group becomes 0."""

    size: int
    mean: float
    std: float
    zero_variance: bool


def keys(transitions: Sequence[Transition], group_by: GroupBy) -> list[Key]:
    """The group of each transition."""
    if group_by == "all":
        return [("all",)] * len(transitions)
    if group_by == "agent":
        return [(t.scenario, t.agent) for t in transitions]
    return [(t.scenario, t.agent, str(t.turn)) for t in transitions]


def normalize(values: Sequence[float], groups: Sequence[Key]) -> tuple[list[float], dict[Key, Baseline]]:
    """(value - mean) / std within each group, and what each group was normalized with.

    Mean and population standard deviation are taken in float64 and two passes, so that a constant group gives 0.
    """
    members: dict[Key, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        members.setdefault(group, []).append(value)
    baselines = {group: baseline(members[group]) for group in dict.fromkeys(groups)}
    pairs = ((value, baselines[group]) for value, group in zip(values, groups, strict=True))
    return [0.0 if b.zero_variance else (value - b.mean) / b.std for value, b in pairs], baselines


def baseline(values: Sequence[float]) -> Baseline:
    """What a group is normalized with."""
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    constant = len(values) < 2 or max(values) - min(values) <= 1e-9 * max(1.0, abs(mean))
    return Baseline(len(values), mean, std, constant)
