"""REINFORCE with return batch normalization (ReBN).

Source: GEM (arXiv 2510.01051), section 3.2, algorithm 1 and equation 4.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import ClassVar, Literal, NamedTuple

import msgspec

from marl_gem.trainers.algorithms.base import Advantages, Needs, policy_gradient
from marl_gem.trainers.batch import Batch


class ReBN:
    """Advantage = (discounted return - mean) / std, over all transitions of the same agent in the batch."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        # What is normalized together: "agent" is per-agent ReBN, all transitions of one agent of one scenario; "all"
        # takes all agents together; "none" takes the returns as they are. Source: GEM, algorithm 1.
        group_by: Literal["agent", "all", "none"] = "agent"

    METRICS: ClassVar = {
        "zero_variance": "the agents whose returns had no spread, so that their advantages are 0",
        "noise_gain": "1 + d^2, d = (mean of the agent's returns - mean of all) / std of the agent's: by how much the "
        "gradient's variance grows where all agents are normalized together",
    }

    def __init__(self, options: Options) -> None:
        self.options = options
        self.needs = Needs(linear_loss=True)
        self.loss = policy_gradient

    def advantages(self, batch: Batch) -> Advantages:
        returns = [transition.return_ for transition in batch.transitions]
        per_agent = self.options.group_by == "agent"
        groups = [(t.scenario, t.agent) if per_agent else ("all",) for t in batch.transitions]
        normalized, baselines = normalize(returns, groups)
        overall = math.fsum(returns) / len(returns) if returns else 0.0
        spread = {group: b for group, b in baselines.items() if not b.zero_variance}
        metrics = {f"noise_gain/{' '.join(g)}": 1 + ((b.mean - overall) / b.std) ** 2 for g, b in spread.items()}
        constant = sorted(" ".join(group) for group in baselines if group not in spread)
        values = returns if self.options.group_by == "none" else normalized
        return Advantages(values, {"zero_variance": constant, **(metrics if per_agent else {})})


class Baseline(NamedTuple):
    """The number, mean and standard deviation of a group's returns. With `zero_variance`, fewer than two returns or
    no spread, there is nothing to normalize, and all advantages of the group are 0."""

    size: int
    mean: float
    std: float
    zero_variance: bool


def normalize(
    returns: Sequence[float], groups: Sequence[tuple[str, ...]]
) -> tuple[list[float], dict[tuple[str, ...], Baseline]]:
    """(return - mean) / std within each group, and what each group was normalized with.

    Mean and population standard deviation are taken in float64 and two passes, so that a constant group gives 0.
    """
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(returns, groups, strict=True):
        members.setdefault(group, []).append(value)
    baselines = {group: _baseline(members[group]) for group in dict.fromkeys(groups)}
    pairs = ((value, baselines[group]) for value, group in zip(returns, groups, strict=True))
    return [0.0 if b.zero_variance else (value - b.mean) / b.std for value, b in pairs], baselines


def _baseline(values: Sequence[float]) -> Baseline:
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    constant = len(values) < 2 or max(values) - min(values) <= 1e-9 * max(1.0, abs(mean))
    return Baseline(len(values), mean, std, constant)
