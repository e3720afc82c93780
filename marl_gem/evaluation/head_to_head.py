"""How well a policy does against an opponent, in every seat."""

from __future__ import annotations

from collections.abc import Callable

from marl_gem.env import MultiAgentEnv
from marl_gem.evaluation.tally import Tally, tally
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.runs.outcomes import contest_of
from marl_gem.seeding import derive_seed
from marl_gem.types import Episode


def head_to_head(
    make: Callable[[], MultiAgentEnv],
    policy: Policy,
    opponent: Policy,
    *,
    games: int,
    seed: int,
    contest: bool | None = None,
) -> tuple[dict[str, Tally], list[Episode]]:
    """Seat `policy` in every seat in turn, `opponent` in all others, for `games` games each.

    The seeds follow from `seed` and the game's number alone, so that two policies meet the same games.

    Args:
        make: gives a fresh env.
        policy, opponent: who plays.
        games: how many games in each seat.
        seed: fixes the games.
        contest: whether the games are contests, where the scenario declares nothing; see `tally`.

    Returns:
        a tally for each seat, and all episodes.

    Raises:
        MarlGemError: an episode failed.
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
    episodes = collect(make, jobs, concurrency=min(len(jobs), 1024), warn=False)
    contest = contest_of(episodes) if contest is None else contest
    by_seat = {seat: episodes[index * games : (index + 1) * games] for index, seat in enumerate(seats)}
    return {seat: tally(played, seat, contest) for seat, played in by_seat.items()}, episodes
