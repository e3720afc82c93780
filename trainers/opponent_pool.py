"""Earlier versions of a policy, kept as opponents for the newest one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from marl_gem.trainers.backends.base import Weights


class Snapshot(NamedTuple):
    """A policy's weights after `version` updates."""

    version: int
    weights: Weights


class OpponentPool:
    """Versions that span the whole run, the first one included.

    When the pool is full, every second version goes, and versions are kept half as often from then on.

    Args:
        size: the greatest number of versions.
        every: a version is kept every so many updates of the policy.
        snapshots: those that are there already, oldest first.
    """

    def __init__(self, size: int, every: int, snapshots: Sequence[Snapshot] = ()) -> None:
        self._size, self._every = size, every
        self.snapshots = list(snapshots)

    def snapshot(self, version: int, weights: Callable[[], Weights]) -> None:
        """Keep this version, if it is time; only then its weights are asked for."""
        interval = self._every
        while version // interval >= self._size:
            interval *= 2
        if version % interval == 0 or not self.snapshots:
            kept = [old for old in self.snapshots if old.version % interval == 0 and old.version != version]
            self.snapshots = [*kept, Snapshot(version, weights())]

    def draw(self, rng: random.Random) -> Snapshot:
        """One of the versions, each as likely as the other."""
        return rng.choice(self.snapshots)
