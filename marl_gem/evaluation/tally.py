"""Counts of outcomes: how often an agent won, drew, lost or succeeded, with intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from marl_gem.errors import MarlGemError
from marl_gem.evaluation.estimates import agreeing, wilson
from marl_gem.runs.outcomes import contest_of, outcomes
from marl_gem.types import Episode


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's episodes came to. See `marl_gem.runs.outcomes` for what a win and a success are."""

    # How many episodes were won, drawn and lost; all 0 where they are no contests.
    win: int = 0
    draw: int = 0
    loss: int = 0
    # In how many episodes the agent took an illegal action.
    illegal: int = 0
    # How many episodes there are.
    games: int
    # How many of them are different games: those with the same seed and options count once. 0 in older records: all.
    distinct: int = 0
    # In how many the agent succeeded; in contests, those it won.
    success: int = 0
    # The sums of the agent's returns and of their squares.
    return_sum: float = 0.0
    return_square_sum: float = 0.0

    @property
    def is_contest(self) -> bool:
        """Whether the episodes were contests: win, draw and loss are known."""
        return self.win + self.draw + self.loss > 0

    @property
    def score(self) -> float:
        """In contests a win counts 1 and a draw 1/2, in tasks a success counts 1; the mean over all episodes."""
        return (self.win + self.draw / 2 if self.is_contest else self.success) / self.games

    @property
    def _trials(self) -> int:
        """How many games the intervals count: equal ones may have gone alike."""
        return self.distinct or self.games

    @property
    def score_interval(self) -> tuple[float, float]:
        """The 95% interval of the score: Wilson's in tasks; in contests that of `agreeing` where all ended alike, and
        otherwise by the normal approximation.
        """
        if not self.is_contest:
            return wilson(self.success * self._trials / self.games, self._trials)
        if self.games in (self.win, self.draw, self.loss):
            return agreeing(self.score, self._trials, 0.0, 1.0)
        second_moment = (self.win + self.draw / 4) / self.games
        half = 1.96 * math.sqrt(max(second_moment - self.score**2, 0.0) / self._trials)
        return max(0.0, self.score - half), min(1.0, self.score + half)

    @property
    def mean_return(self) -> float:
        """The mean of the agent's undiscounted returns."""
        return self.return_sum / self.games

    @property
    def return_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the mean return, by the normal approximation; None where all returns are the same, which
        says nothing about how much they vary."""
        variance = max(self.return_square_sum / self.games - self.mean_return**2, 0.0)
        if variance <= 1e-12 * max(1.0, self.mean_return**2):
            return None
        half = 1.96 * math.sqrt(variance / self._trials)
        return self.mean_return - half, self.mean_return + half

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


def mean_score_interval(groups: Sequence[Sequence[Tally]]) -> tuple[float, float]:
    """The 95% interval of the mean of several scores, from their own intervals (Zou and Donner, "Construction of
    confidence limits about effect measures", 2008).

    Args:
        groups: tallies of the same episodes stand together. Their errors are taken for equal, since two seats may
            succeed together; those of different groups are independent.
    """
    count = sum(map(len, groups))
    mean = sum(counts.score for group in groups for counts in group) / count
    below = [sum(counts.score - counts.score_interval[0] for counts in group) for group in groups]
    above = [sum(counts.score_interval[1] - counts.score for counts in group) for group in groups]
    return max(0.0, mean - math.hypot(*below) / count), min(1.0, mean + math.hypot(*above) / count)


def tally(episodes: Iterable[Episode], agent: str, contest: bool | None = None) -> Tally:
    """Count what an agent's episodes came to. Episodes in which it took no part are left out.

    Args:
        episodes: of one scenario.
        agent: whose outcomes are counted.
        contest: whether they are contests, where their records do not say; by default as `contest_of` finds.

    Raises:
        MarlGemError: an episode failed; one that was not played to its end has no outcome.
    """
    episodes = list(episodes)
    for episode in episodes:
        if episode.error:
            raise MarlGemError(f"episode {episode.id} failed in {episode.error.origin}: {episode.error.message}")
    contest = contest_of(episodes) if contest is None else contest
    played = [episode for episode in episodes if agent in episode.returns]
    judged = [outcomes(episode, contest)[agent] for episode in played]
    return Tally(
        win=sum(outcome.result == "win" for outcome in judged),
        draw=sum(outcome.result == "draw" for outcome in judged),
        loss=sum(outcome.result == "loss" for outcome in judged),
        illegal=sum(outcome.illegal > 0 for outcome in judged),
        games=len(judged),
        distinct=len({(episode.seed, json.dumps(episode.options, sort_keys=True)) for episode in played}),
        success=sum(outcome.success for outcome in judged),
        return_sum=math.fsum(outcome.return_ for outcome in judged),
        return_square_sum=math.fsum(outcome.return_**2 for outcome in judged),
    )


def overall(tallies: Mapping[str, Tally]) -> Tally:
    """The tallies of all agents added up."""
    first, *others = tallies.values()
    return sum(others, first)
