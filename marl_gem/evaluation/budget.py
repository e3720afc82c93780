"""The limits of a run, and what it spends of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from marl_gem import bounds
from marl_gem.evaluation.summary import EpisodeSummary


class Budget(msgspec.Struct, frozen=True):
    """The limits of a run; None sets no limit. When one is reached no new episode starts, and those that are live are
    played to their end.

    What is live counts: of tokens and of money, an episode begins only if what is used already, and what it and the
    live ones are expected to take, is within the limit. So a run may exceed them by what its last episodes take more
    than those before them.

    Raises:
        ConfigError: a limit is out of range, see `marl_gem.bounds`.
    """

    # Finished episodes, all that the run's folder holds.
    episodes: int | None = None
    # Tokens that all models read and wrote, in all that the run's folder holds.
    tokens: int | None = None
    # Wall time of this call.
    seconds: float | None = None
    # US dollars, of all that the run's folder holds.
    cost: float | None = None

    def __post_init__(self) -> None:
        ranges = {
            "episodes": bounds.EPISODES,
            "tokens": bounds.RUN_TOKENS,
            "seconds": bounds.SECONDS,
            "cost": bounds.DOLLARS,
        }
        bounds.check_all("budget.", self, ranges)


class Spending:
    """What a run has used of one limit, and what its next episodes are expected to use.

    Attributes:
        used: by all episodes so far, also those that failed.
        limit: how much may be used.
    """

    def __init__(self, limit: float, used: float, finished: Iterable[float]) -> None:
        """`used` and what each of the finished episodes used, of the part of the run that was played before."""
        self.limit, self.used = limit, used
        self._count, self._sum, self._squares = 0, 0.0, 0.0
        for amount in finished:
            self._learn(amount)

    def add(self, amount: float, failed: bool) -> None:
        """Count an episode. What one used that failed says little about others."""
        self.used += amount
        if not failed:
            self._learn(amount)

    def _learn(self, amount: float) -> None:
        self._count += 1
        self._sum += amount
        self._squares += amount * amount

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.limit

    @property
    def mean(self) -> float:
        """What an episode uses; 0 as long as that is not known."""
        return self._sum / self._count if self._count else 0.0

    def has_room(self, live: int) -> bool:
        """Whether another episode may begin while so many are live.

        No more are live than have finished, so that there is something to estimate from. They are expected to use the
        mean, and one standard deviation of their sum above it.
        """
        if live > max(0, self._count - 1):
            return False
        episodes = live + 1
        variance = max(0.0, self._squares / self._count - self.mean**2) if self._count else 0.0
        expected = episodes * self.mean + math.sqrt(episodes * variance)
        return self.used + expected <= self.limit * (1 + 1e-9)


def spendings(
    budget: Budget, finished: Iterable[EpisodeSummary], tokens: int, cost: float | None
) -> dict[str, Spending]:
    """The spending of each limit of a budget on "tokens" and "cost".

    Args:
        budget: the limits.
        finished: the episodes that the run holds.
        tokens, cost: what it has used, also in episodes that failed; the cost in US dollars, None if it is unknown.
    """
    finished = list(finished) if budget.tokens is not None or budget.cost is not None else []
    found = {}
    if budget.tokens is not None:
        found["tokens"] = Spending(budget.tokens, tokens, (episode.tokens for episode in finished))
    if budget.cost is not None:
        found["cost"] = Spending(budget.cost, cost or 0.0, (episode.cost or 0.0 for episode in finished))
    return found
