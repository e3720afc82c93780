"""Who acts next: the interface every turn order implements."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from marl_gem.seeding import derive_seed


class AgentSelector(ABC):
    """Answers who acts now, and moves on.

    The env calls `reset` when an episode starts, `advance` after every step, and `add` and `remove` as
    agents join and leave. An agent that leaves is removed before `advance`; one that joins is added
    before it too, so both count for the very next turn. Override `reset` and `advance` to define any
    order; both set `self.acting`. Source: the `AgentSelector` of GEM (arXiv 2510.01051, appendix D.3).
    """

    acting: tuple[str, ...] = ()
    """The agents that act now."""

    order: list[str]
    """The agents in the episode, in the order in which they were given or joined."""

    finished: bool = False
    """Whether the order has come to its end, which ends the episode; looked at after `advance`."""

    _seed: int = 0
    _rng: random.Random | None = None

    @property
    def rng(self) -> random.Random:
        """The turn order's own generator: an order that draws lots repeats under the env's seed."""
        if self._rng is None:  # made when it is asked for: it takes longer than all the rest of a reset
            self._rng = random.Random(derive_seed(self._seed, "selector"))
        return self._rng

    def reseed(self, seed: int) -> None:
        """The env has this seed; called before `reset`."""
        self._seed, self._rng = seed, None

    def reset(self, agents: Sequence[str]) -> None:
        """Start anew with these agents."""
        self.order = list(agents)

    @abstractmethod
    def advance(self) -> None:
        """Those in `acting` have acted: set `acting` to those who act next."""

    def add(self, agent: str) -> None:
        """An agent joins, at the end of the order."""
        self.order.append(agent)

    def remove(self, agent: str) -> None:
        """An agent leaves."""
        self.order.remove(agent)
