"""REINFORCE with return batch normalization (ReBN).

Source: GEM (arXiv 2510.01051), section 3.2, algorithm 1 and equation 4.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import msgspec

from marl_gem.trainers.algorithms.base import Advantages, Needs, policy_gradient
from marl_gem.trainers.algorithms.normalization import keys, normalize
from marl_gem.trainers.batch import Batch


class ReBN:
    """Advantage = (discounted return - mean) / std, over all transitions of the same agent in the batch."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        # What is normalized together: "agent" is per-agent ReBN, all transitions of one agent of one scenario;
        # "agent_turn" also keeps the turn indices apart; "all" takes all agents together; "none" takes the returns as
        # they are. Source: GEM, algorithm 1.
        group_by: Literal["agent", "agent_turn", "all", "none"] = "agent"

    METRICS: ClassVar = {
        "zero_variance": "the agents whose returns had no spread, so that their advantages are 0",
        "noise_gain": "1 + d^2, d = (mean of the agent's returns - mean of all) / std of the agent's: by how much the "
        "gradient's variance grows where all agents are normalized together",
        "group_size": "how many transitions the group had",
        "group_std": "the standard deviation of the group's returns, before they were normalized",
        "advantage_max": "the greatest absolute advantage in the batch",
    }

    def __init__(self, options: Options) -> None:
        self.options = options
        self.needs = Needs(linear_loss=True)
        self.loss = policy_gradient

    def advantages(self, batch: Batch) -> Advantages:
        group_by = self.options.group_by
        returns = [transition.return_ for transition in batch.transitions]
        groups = keys(batch.transitions, "all" if group_by == "none" else group_by)
        normalized, baselines = normalize(returns, groups)
        values = returns if group_by == "none" else normalized
        spread = {group: b for group, b in baselines.items() if not b.zero_variance}
        metrics: dict[str, Any] = {"zero_variance": sorted(" ".join(group) for group in baselines.keys() - spread)}
        metrics["advantage_max"] = max(map(abs, values), default=0.0)
        for group, b in baselines.items():
            metrics |= {f"group_size/{' '.join(group)}": b.size, f"group_std/{' '.join(group)}": b.std}
        if group_by == "agent":
            overall = math.fsum(returns) / len(returns) if returns else 0.0
            metrics |= {f"noise_gain/{' '.join(g)}": 1 + ((b.mean - overall) / b.std) ** 2 for g, b in spread.items()}
        return Advantages(values, metrics)
