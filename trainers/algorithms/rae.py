"""Role-conditioned advantage estimation (RAE): a running mean of returns for each seat.

Source: Liu et al., "SPIRAL: self-play on zero-sum games" (arXiv 2506.24119), section 3.3, algorithm 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from marl_gem.trainers.algorithms.base import Advantages, Needs, policy_gradient
from marl_gem.trainers.batch import Batch


class RAE:
    """Advantage = discounted return - the running mean of the agent's returns, in the scenario.

    The mean moves with every episode: mean <- decay * mean + (1 - decay) * return from the agent's first turn. An
    episode's advantages are taken before its own return enters, so that the baseline is unbiased (SPIRAL takes them
    afterwards, which multiplies them by `decay`). The means are a part of the run's checkpoint.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        # How much of the running mean stays with each episode.
        decay: Annotated[float, Meta(ge=0, lt=1)] = 0.95

    METRICS: ClassVar = {"baseline": "the agent's running mean of returns after the update"}

    def __init__(self, options: Options) -> None:
        self.options = options
        self.needs = Needs(linear_loss=True)
        self.loss = policy_gradient
        self._means: dict[tuple[str, str], float] = {}

    def advantages(self, batch: Batch) -> Advantages:
        values, decay = [], self.options.decay
        for trajectory in batch.trajectories:
            key = trajectory[0].scenario, trajectory[0].agent
            mean = self._means.get(key, 0.0)
            values += [transition.return_ - mean for transition in trajectory]
            self._means[key] = decay * mean + (1 - decay) * trajectory[0].return_
        return Advantages(values, {f"baseline/{' '.join(key)}": mean for key, mean in sorted(self._means.items())})

    def state(self) -> dict[str, Any]:
        return {json.dumps(key): mean for key, mean in self._means.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._means = {tuple(json.loads(key)): float(mean) for key, mean in state.items()}
