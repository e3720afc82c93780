"""Who answers during rollouts, and how new weights reach it: two protocols."""

from __future__ import annotations

from typing import Protocol

from marl_gem.policies import Policy
from marl_gem.trainers.backends.base import Backend
from marl_gem.trainers.opponent_pool import Snapshot


class WeightSync(Protocol):
    """How new weights reach a sampler."""

    def sync(self, backend: Backend) -> None:
        """Let the backend's present weights answer from now on; responses tell its version."""
        ...


class Sampler(WeightSync, Protocol):
    """What answers while episodes are played."""

    @property
    def policy(self) -> Policy:
        """Answers with the weights that were synchronized last."""
        ...

    def opponent(self, snapshot: Snapshot) -> Policy:
        """Answers with the weights of a snapshot, until the next call."""
        ...
