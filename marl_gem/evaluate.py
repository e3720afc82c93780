"""How well a policy plays: head to head against an opponent, in every seat, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import MarlGemError
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.types import Episode


class Tally(msgspec.Struct, frozen=True):
    """How many games one seat won, drew and lost, and in how many it made an illegal move."""

    win: int
    draw: int
    loss: int
    illegal: int
    games: int

    @property
    def score(self) -> float:
        """A win counts 1, a draw 1/2; the mean over all games."""
        return (self.win + self.draw / 2) / self.games

    @property
    def score_interval(self) -> tuple[float, float]:
        """The 95% interval of the score, by the normal approximation."""
        second_moment = (self.win + self.draw / 4) / self.games
        half = 1.96 * math.sqrt(max(second_moment - self.score**2, 0.0) / self.games)
        return max(0.0, self.score - half), min(1.0, self.score + half)

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95% interval of a proportion (Wilson, 1927); good at 0 and 1 too."""
    z, share = 1.96, successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return (0.0 if successes == 0 else (centre - half) / scale), (
        1.0 if successes == trials else (centre + half) / scale
    )


def tally(episodes: Iterable[Episode], agent: str) -> Tally:
    """Count how `agent` fared: it wins with the highest return, draws if it shares it, loses otherwise.

    Raises:
        MarlGemError: an episode failed; one that was not played out has no winner.
    """
    win = draw = loss = illegal = 0
    for episode in episodes:
        if episode.error:
            raise MarlGemError(f"episode {episode.id} failed in {episode.error.origin}: {episode.error.message}")
        best_other = max((value for other, value in episode.returns.items() if other != agent), default=0.0)
        own = episode.returns[agent]
        win, draw, loss = win + (own > best_other), draw + (own == best_other), loss + (own < best_other)
        illegal += any("illegal" in turn.info for turn in episode.turns_of(agent))
    return Tally(win, draw, loss, illegal, win + draw + loss)


def head_to_head(
    make: Callable[[], MultiAgentEnv], policy: Policy, opponent: Policy, *, games: int, seed: int
) -> tuple[dict[str, Tally], list[Episode]]:
    """Seat `policy` in every seat in turn, `opponent` in all others, for `games` games each.

    The seeds follow from `seed` and the game's number alone, so that two policies meet the same games.

    Returns:
        a tally for each seat, and all episodes.
    """
    seats = tuple(make().possible_agents)
    jobs = [
        Job(
            derive_seed(seed, "head to head", seat, game),
            {other: policy if other == seat else opponent for other in seats},
            f"{seat}-{game}",
        )
        for seat in seats
        for game in range(games)
    ]
    episodes = collect(make, jobs, concurrency=min(len(jobs), 1024))
    by_seat = {seat: episodes[place * games : (place + 1) * games] for place, seat in enumerate(seats)}
    return {seat: tally(played, seat) for seat, played in by_seat.items()}, episodes


def overall(tallies: Mapping[str, Tally]) -> Tally:
    """All seats together."""
    first, *others = tallies.values()
    return sum(others, first)
