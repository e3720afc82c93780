"""How good the policies of a run are, on the scenarios' test options.

In self-play the policy meets each of the configuration's opponents in each seat; where there is none to meet, it holds
all seats. In co-evolution the policies hold the seats of a phase together. Where a scenario comes with an exact
analysis, as of a policy's exploitability, that is computed, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from marl_gem import registry
from marl_gem.evaluation.tally import Tally, mean_score_interval, tally
from marl_gem.faults import close_env
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.specs import ScenarioSpec, is_learner_name
from marl_gem.trainers.batch import completed
from marl_gem.trainers.check import lists_legal_actions
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.schedule import SHARED_POLICY, Seating, TrainingPhase
from marl_gem.trainers.strategy import strategy_of
from marl_gem.types import Episode


class Matchup(msgspec.Struct, frozen=True):
    """Episodes with the same policies in the same seats."""

    # The scenario's id.
    scenario: str
    # For each seat who held it: the name of a policy that learns, or the text of another.
    seats: dict[str, str]
    # For each seat whose policy is measured what its episodes came to.
    agents: dict[str, Tally]
    # How many further episodes failed; they do not count.
    failed: int = 0

    @property
    def score(self) -> float:
        """The mean of the measured seats' scores: a win counts 1 and a draw 1/2 in a contest, a success 1 in a task."""
        return fmean(counts.score for counts in self.agents.values())


class Measurement(msgspec.Struct, frozen=True):
    """All that is measured at one moment of a run."""

    # In self-play the mean score against the first opponent, in co-evolution the one of the last seating; from 0 to 1.
    score: float
    # The mean undiscounted return in the same episodes, as a mean over the measured seats; older runs did not keep it.
    mean_return: float | None
    matchups: list[Matchup]
    # For each scenario with an exact analysis its numbers, by name.
    analyses: dict[str, dict[str, float]] = {}
    # The 95% interval of the score; older runs did not keep it.
    score_interval: tuple[float, float] | None = None
    # Who answered for the policies that learn: the run's `sampler`. Exact analyses are made in the run's process.
    sampler: str = "in_process"
    # The last phase's seatings with a partner of `evaluation.partners` in one seat; they are no part of the score.
    partners: list[Matchup] = []


def stored_measurement(row: Mapping[str, Any], scenario: str) -> Measurement:
    """The measurement in a row of metrics, also in one of an older run."""
    if "measurement" in row:
        return msgspec.convert(row["measurement"], Measurement)
    matchups = [
        Matchup(scenario, {**dict.fromkeys(row["tallies"], "random"), seat: SHARED_POLICY}, {seat: Tally(**counts)})
        for seat, counts in row.get("tallies", {}).items()
    ]
    return Measurement(row["score"], None, matchups + stored_matchups(row, scenario))


def stored_matchups(row: Mapping[str, Any], scenario: str) -> list[Matchup]:
    """The seatings that were measured at the end of a phase, also in a row of an older run."""
    if "matchups" in row:
        return msgspec.convert(row["matchups"], list[Matchup])
    return [
        Matchup(
            scenario,
            old["seats"],
            {seat: Tally(games=old["games"], success=count) for seat, count in old["success"].items()},
        )
        for old in row.get("seatings", [])
    ]


def measure(
    loop: TrainingLoop,
    episodes: int,
    label: str,
    phases: Sequence[TrainingPhase] | None = None,
    *,
    analyse: bool = False,
    partners: bool = False,
) -> tuple[Measurement, list[Episode]]:
    """Measure the policies as they are.

    Args:
        loop: has the policies.
        episodes: how many episodes a matchup has.
        label: the seeds follow from the run's and this, so that the same label means the same episodes.
        phases: whose seatings are measured; by default those of all.
        analyse: whether exact analyses are computed, which may take seconds.
        partners: whether the configuration's partners are met as well.

    Returns:
        the measurement, and all episodes.

    Raises:
        LLMError: the server of a policy has died for good.
    """
    matchups: list[Matchup] = []
    played: list[Episode] = []
    for _, scenario, seats in _planned(loop, phases or loop.phases):
        matchup, found = _play(loop, scenario, seats, episodes, label, number=len(matchups))
        matchups.append(matchup)
        played += found
    met: list[Matchup] = []
    for scenario, seats in _with_partners(loop) if partners else ():
        matchup, found = _play(loop, scenario, seats, episodes, label, number=len(matchups) + len(met))
        met.append(matchup)
        played += found
    counted = _counted(loop, matchups)
    scored = [counts for matchup in counted for counts in matchup.agents.values()]
    return Measurement(
        score=fmean(counts.score for counts in scored),
        mean_return=fmean(counts.mean_return for counts in scored),
        matchups=matchups,
        analyses=_analyses(loop, (phases or loop.phases)[-1]) if analyse else {},
        score_interval=mean_score_interval([list(matchup.agents.values()) for matchup in counted]),
        sampler=loop.config.sampler,
        partners=met,
    ), played


def _with_partners(loop: TrainingLoop) -> Iterator[tuple[int, Seating]]:
    """The last phase's seatings with a partner in one seat, where a policy is left to be measured."""
    for scenario, seats in enumerate(loop.phases[-1].seatings):
        for seat, partners in loop.config.evaluation.partners.items():
            rest = {who for other, who in seats.items() if other != seat and is_learner_name(who)}
            for partner in partners if seat in seats and rest else ():
                yield scenario, {**seats, seat: partner}


def _planned(loop: TrainingLoop, phases: Sequence[TrainingPhase]) -> Iterator[tuple[TrainingPhase, int, Seating]]:
    """The matchups to play: phase, scenario and who holds which seat."""
    for phase in phases:
        for scenario in range(len(loop.specs)):
            seats = phase.seatings[scenario]
            opponents = _opponents(loop, scenario) if set(seats.values()) == {SHARED_POLICY} and len(seats) > 1 else []
            if not opponents:
                yield phase, scenario, seats
            for opponent in opponents:
                for seat in seats:
                    yield phase, scenario, {**dict.fromkeys(seats, opponent), seat: SHARED_POLICY}


def _opponents(loop: TrainingLoop, scenario: int) -> list[str]:
    """Whom the policy meets in self-play; not random play where no legal actions are listed."""
    played = loop.config.scenarios[scenario]
    listed = lists_legal_actions(played.test_spec, played.reset)
    return [opponent for opponent in loop.config.evaluation.opponents if opponent != "random" or listed]


def _counted(loop: TrainingLoop, matchups: Sequence[Matchup]) -> list[Matchup]:
    """The matchups that make the score: against the first opponent, or of the last phase."""
    if not any(SHARED_POLICY in matchup.seats.values() for matchup in matchups):
        return list(matchups[-len(loop.specs) :])
    firsts: dict[str, set[str]] = {}
    for matchup in matchups:
        others = set(matchup.seats.values()) - {SHARED_POLICY}
        firsts.setdefault(matchup.scenario, others)
    return [m for m in matchups if set(m.seats.values()) - {SHARED_POLICY} == firsts[m.scenario]]


def _play(
    loop: TrainingLoop, scenario: int, seats: Seating, episodes: int, label: str, *, number: int
) -> tuple[Matchup, list[Episode]]:
    """Play one matchup; where the scenario has tasks, each in turn."""
    spec, reset = loop.config.scenarios[scenario].test_spec, loop.config.scenarios[scenario].reset
    seating = _seat(loop, seats, spec)
    tasks = spec.inspect().tasks
    seed, parts = derive_seed(loop.config.seed, label), _seed_parts(loop, scenario, seats)
    jobs = [
        Job(
            derive_seed(seed, *parts, episode),
            seating,
            f"measured-{loop.updates}-{number}-{episode}",
            options={**reset, **({"task": episode % tasks} if tasks else {})},
        )
        for episode in range(episodes)
    ]
    played = collect(spec.make, jobs, concurrency=min(episodes, 1024), warn=False)
    for who in seats.values():
        if who in loop.learners:
            loop.learners[who].sampler.check()
    finished = completed(played)
    agents = {seat: tally(finished, seat) for seat, who in seats.items() if is_learner_name(who)}
    return Matchup(spec.id, dict(seats), agents, len(played) - len(finished)), played


def _seed_parts(loop: TrainingLoop, scenario: int, seats: Seating) -> list[str]:
    """What the episodes of a matchup follow from besides the label: two policies in the same seats meet the same."""
    learners = [seat for seat, who in seats.items() if who == SHARED_POLICY]
    opponents = sorted(set(seats.values()) - {SHARED_POLICY})
    parts = ["head to head", *learners] if learners and opponents else ["together"]
    if learners and opponents != [*loop.config.evaluation.opponents[:1]]:
        parts += opponents
    return [*parts, *([loop.specs[scenario].id] if scenario else [])]


def _seat(loop: TrainingLoop, seats: Seating, spec: ScenarioSpec) -> dict[str, Policy]:
    return {
        seat: loop.learners[who].sampler.policy if who in loop.learners else loop.player.fixed(who, spec, seat)
        for seat, who in seats.items()
    }


def _analyses(loop: TrainingLoop, phase: TrainingPhase) -> dict[str, dict[str, float]]:
    """What the scenarios' exact analyses say of the policies in a phase, where all seats' policies learn."""
    found = {}
    for index, scenario in enumerate(loop.config.scenarios):
        holding = phase.policies(index)
        policies = {seat: loop.learners[who].sampler.exact_policy for seat, who in holding.items()}
        strategy = strategy_of(policies)
        if strategy is None or holding.keys() != phase.seatings[index].keys():
            continue
        env = scenario.test_spec.make()
        try:
            if numbers := registry.analyse(env, strategy):
                found[scenario.id] = numbers
        finally:
            close_env(env)
    return found
