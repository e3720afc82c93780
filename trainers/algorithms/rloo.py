"""REINFORCE leave-one-out (RLOO): the baseline of an episode is the mean return of the others in its group.

Source: Ahmadian et al., "Back to Basics" (arXiv 2402.14740), equation 7; before that Kool et al. (2019).
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from marl_gem.trainers.algorithms.base import Advantages, Needs, policy_gradient
from marl_gem.trainers.algorithms.grouped import first_returns, group_key, zero_variance_groups
from marl_gem.trainers.batch import Batch


class RLOO:
    """Advantage = discounted return - mean over the group's other episodes of the agent's return from its first turn.

    One baseline serves all turns of an episode: it depends on the other episodes alone, so it is unbiased at every
    turn. (A baseline per turn index is not where the policy decides how many turns there are: which episodes reach
    the turn then depends on the policy.)
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        # How many episodes start from the same state: k of the paper, from 2 up. It divides training.episodes.
        group_size: Annotated[int, Meta(ge=2)] = 4

    METRICS: ClassVar = {
        "groups": "how many groups there are, counted for each scenario and agent",
        "zero_variance_groups": "in how many of them all episodes have the same return, so that nothing is learned",
    }

    def __init__(self, options: Options) -> None:
        self.needs = Needs(group_size=options.group_size, linear_loss=True)
        self.loss = policy_gradient

    def advantages(self, batch: Batch) -> Advantages:
        groups = first_returns(batch)
        values = []
        for t in batch.transitions:
            others = [value for id, value in groups[group_key(t)].items() if id != t.episode]
            values.append(t.return_ - math.fsum(others) / len(others) if others else 0.0)
        return Advantages(values, {"groups": len(groups), "zero_variance_groups": zero_variance_groups(groups)})
