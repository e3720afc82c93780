"""How good the policies of a run are: against random play in every seat, or together in the seats they hold.

A measurement is plain data, which goes into metrics.jsonl and report.json:

    {"score": 0.88, "tallies": {"player_0": {"win", "draw", "loss", "illegal", "games"}, ...}}
    {"score": 0.93, "seatings": [{"seats": {"user": "user", ...}, "success": {"user": 372, ...}, "games": 400}, ...]}

A report has one from `before` and one from `after` the updates, and in `phase_ends` each seating at the end of the
phase in which it sat so. The score of the first kind is that of all games, a draw being half a win; that of the second
is the success of the last seating, as a mean over the seats whose policies learn there. What success is the scenario
says, see `marl_gem.runs.outcomes`; in a zero-sum one two learners share it, so that each seat's own tells more.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, TypeAlias

import msgspec

from marl_gem.evaluation.head_to_head import head_to_head
from marl_gem.evaluation.tally import overall
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.outcomes import outcomes
from marl_gem.seeding import derive_seed
from marl_gem.trainers.seating import ONE, Phase, test_ground
from marl_gem.trainers.self_play import SelfPlay
from marl_gem.trainers.transitions import whole
from marl_gem.types import Episode

Measurement: TypeAlias = dict[str, Any]


def measure(
    run: SelfPlay, games: int, label: str, phases: Sequence[Phase] | None = None
) -> tuple[Measurement, list[Episode]]:
    """Measure the policies as they are, in `games` games a seat or seating.

    Args:
        run: has the policies.
        games: how many.
        label: the seeds follow from the run's and this, so that the same label means the same games.
        phases: whose seatings are measured; by default all.

    Returns:
        the measurement, and all episodes.
    """
    seed = derive_seed(run.config.seed, label)
    if not run.config.seats:
        return _against_random(run, games, seed)
    seatings, episodes = [], []
    for phase in phases or run.phases:
        told, played = _together(run, phase, games, seed)
        seatings.append(told)
        episodes += played
    return {"score": rate(seatings[-1]), "seatings": seatings}, episodes


def rate(seating: dict[str, Any]) -> float:
    """The share of success in a measured seating, as a mean over the seats whose policies learn."""
    return fmean(count / seating["games"] for count in seating["success"].values())


def _against_random(run: SelfPlay, games: int, seed: int) -> tuple[Measurement, list[Episode]]:
    ground, policy = test_ground(run.config), run.trainees[ONE].policy
    tallies, episodes = head_to_head(ground.make, policy, RandomPolicy(), games=games, seed=seed)
    return {"score": overall(tallies).score, "tallies": msgspec.to_builtins(tallies)}, episodes


def _together(run: SelfPlay, phase: Phase, games: int, seed: int) -> tuple[Measurement, list[Episode]]:
    """Games of a phase's seating; where the scenario has tasks, each in turn. One that failed does not count."""
    ground = test_ground(run.config)
    env, seating = ground.make(), run.policies(phase, ground)
    jobs = [
        Job(
            derive_seed(seed, "together", game),
            seating,
            f"measured-{run.updates}-{phase.start}-{game}",
            options={"task": game % env.tasks} if env.tasks else {},
        )
        for game in range(games)
    ]
    episodes = collect(ground.make, jobs, concurrency=min(games, 1024))
    played = whole(episodes)
    judged = [outcomes(episode, contest=env.metadata.zero_sum is True) for episode in played]
    success = {seat: sum(by_agent[seat].success for by_agent in judged) for seat in phase.learning}
    return {"seats": phase.seats, "success": success, "games": len(played)}, episodes
