"""The loop: policies learn from the episodes that they play with one another.

    loop = TrainingLoop(config, learners)
    while loop.updates < config.training.updates:
        metrics, episodes = loop.update()

One policy holds all seats (self-play), or several policies hold some each (co-evolution). An update plays episodes,
turns them into transitions, has the algorithm give them advantages, and lets every policy take its steps on its own.
In a share of the episodes one seat learns and earlier versions hold the other learning seats, so that policies do not
circle around their newest versions. The loop knows the protocols of algorithm, backend and sampler, and nothing of
models.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from marl_gem.llm.models import Models
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.runs.outcomes import outcomes
from marl_gem.seeding import derive_seed
from marl_gem.specs import ScenarioSpec, load_policy
from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.batch import Batch, Trajectory, completed, trajectories
from marl_gem.trainers.league import League, Opponent
from marl_gem.trainers.learn import learn
from marl_gem.trainers.learner import Learner
from marl_gem.trainers.schedule import SHARED_POLICY, TrainingPhase, learning_rate, linear, shares, training_phases
from marl_gem.trainers.sections import TrainConfig
from marl_gem.types import Episode


@dataclass(frozen=True)
class PlannedEpisode:
    """An episode that is to be played: its job, which scenario it is of, who learns from it, and its group.

    `opponents` hold the other seats whose policies learn, by seat; in the job the newest versions do.
    """

    job: Job
    scenario: int
    learning: tuple[str, ...]
    group: str
    opponents: Mapping[str, Opponent]


class TrainingLoop:
    """The policies that learn, and how many updates there have been: all the state there is in a run.

    Args:
        config: what to do.
        learners: the policies, by name.
        updates: how many updates there have been.
    """

    def __init__(self, config: TrainConfig, learners: Mapping[str, Learner], *, updates: int = 0) -> None:
        self.config = config
        self.learners = dict(learners)
        self.updates = updates
        self.algorithm = make_algorithm(config.algorithm.name, config.algorithm.options)
        self.specs = [scenario.spec for scenario in config.scenarios]
        self.phases = training_phases(config, [spec.inspect().agents for spec in self.specs])
        several = any(len(p.learning(index)) > 1 for p in self.phases for index in range(len(self.specs)))
        self._uses_pool = several and config.training.opponent_pool_fraction > 0
        self.league = League(config.league)
        self._models = Models()  # shared by all seats, so that those who name the same model share it
        self._fixed: dict[tuple[str, str], Policy] = {}

    @property
    def phase(self) -> TrainingPhase:
        """The phase of the next update, or the last one."""
        return [phase for phase in self.phases if phase.start <= self.updates][-1]

    def policies(self, phase: TrainingPhase, scenario: int, spec: ScenarioSpec | None = None) -> dict[str, Policy]:
        """Who holds each seat of a scenario in a phase; those that do not learn are made for `spec`."""
        spec = spec or self.specs[scenario]
        return {
            seat: self.learners[who].sampler.policy if who in self.learners else self.fixed(who, spec, seat)
            for seat, who in phase.seatings[scenario].items()
        }

    def fixed(self, who: str, spec: ScenarioSpec, seat: str) -> Policy:
        """A policy that does not learn, made once for each scenario and seat."""
        key = (f"{who} {seat}", repr(spec.to_data()))
        if key not in self._fixed:
            self._fixed[key] = load_policy(who, spec, agents=(seat,), models=self._models)
        return self._fixed[key]

    def update(self) -> tuple[dict[str, Any], list[Episode]]:
        """Play, learn, and return this update's metrics (see `metrics.METRIC_FORMULAS`) and episodes.

        An episode that failed is left out of the batch, and counted in `failed`.

        Raises:
            MarlGemError: every episode failed.
        """
        phase, begun = self.phase, time.perf_counter()
        for name in phase.learners:
            self._prepare(self.learners[name], begins=self.updates == phase.start)
        plan = self._plan(phase)
        episodes = self._play(phase, plan)
        planned = {entry.job.id: entry for entry in plan}
        finished = completed(episodes)
        self._record(phase, finished, planned)
        played = time.perf_counter()
        learned = self._learn(phase, finished, planned)
        self.updates += 1
        metrics = {
            "update": self.updates,
            "episodes_played": len(finished),
            "failed": len(episodes) - len(finished),
            **_mean_returns(finished, planned, several=len(self.specs) > 1),
            "illegal": fmean("illegal" in turn.info for episode in finished for turn in episode.turns),
            **learned,
            **self.league.metrics(),
            "seconds_playing": played - begun,
            "seconds_learning": time.perf_counter() - played,
        }
        return metrics, episodes

    def _prepare(self, learner: Learner, *, begins: bool) -> None:
        """Set the reference if a phase begins, and keep a snapshot if it is time."""
        training = self.config.training
        if begins and (training.kl or training.kl_final):
            learner.backend.set_reference()
        if self._uses_pool:
            half = training.precision == "bfloat16"
            learner.pool.snapshot(learner.backend.version, lambda: _halved(learner.backend.weights(), half))

    def _plan(self, phase: TrainingPhase) -> list[PlannedEpisode]:
        """This update's episodes, and who learns from each."""
        weights = [scenario.weight for scenario in self.config.scenarios]
        size = self.algorithm.needs.group_size
        counts = shares(self.config.training.episodes, weights, size)
        drawn: dict[tuple[str, str], Opponent] = {}
        plan: list[PlannedEpisode] = []
        for scenario, count in enumerate(counts):
            newest, learning = self.policies(phase, scenario), phase.learning(scenario)
            seats = list(learning)
            against_pool = round(self.config.training.opponent_pool_fraction * count) if len(seats) > 1 else 0
            for episode in range(count):
                index, start = len(plan), episode - episode % size  # of the group
                alone = start < against_pool
                trained = (seats[start // size % len(seats)],) if alone else tuple(seats)
                opponents = {
                    seat: self._opponent(learning[trained[0]], learning[seat], start, drawn)
                    for seat in seats
                    if seat not in trained
                }
                group = f"{self.updates}-{index - episode % size}"
                seed = derive_seed(self.config.seed, "game", self.updates, index - episode % size)
                job = Job(seed, newest, f"{self.updates}-{index}", repeat=episode % size)
                plan.append(PlannedEpisode(job, scenario, trained, group, opponents))
        return plan

    def _opponent(self, learner: str, name: str, start: int, drawn: dict[tuple[str, str], Opponent]) -> Opponent:
        """Whom a policy that learns meets in the seat of another, in a group of episodes.

        Args:
            learner, name: the policies.
            start: the index of the group's first episode.
            drawn: what was drawn for the whole update.
        """
        once = self.config.league.draw == "update"
        if once and (learner, name) in drawn:
            return drawn[learner, name]
        parts = ("older", self.updates) if once else ("opponent", self.updates, start)
        rng = random.Random(derive_seed(self.config.seed, *parts, *seed_part(name)))
        opponent = self.league.draw(learner, name, self.learners[name].pool.versions, rng)
        drawn[learner, name] = opponent
        return opponent

    def _play(self, phase: TrainingPhase, plan: Sequence[PlannedEpisode]) -> list[Episode]:
        """All episodes of the plan, in its order.

        Those of one scenario with the same earlier versions are played at the same time: a sampler answers with one
        earlier version at a time.
        """
        episodes: dict[str, Episode] = {}
        for index, spec in enumerate(self.specs):
            entries = [entry for entry in plan if entry.scenario == index]
            for versions, part in _by_versions(phase, entries):
                older = {
                    name: self.learners[name].sampler.opponent(self.learners[name].pool.get(version))
                    for name, version in versions.items()
                }
                jobs = [self._with_opponents(phase, entry, older) for entry in part]
                episodes |= {episode.id: episode for episode in collect(spec.make, jobs, concurrency=len(jobs))}
        return [episodes[entry.job.id] for entry in plan]

    def _with_opponents(self, phase: TrainingPhase, entry: PlannedEpisode, older: Mapping[str, Policy]) -> Job:
        """The job of an episode, with the opponents in their seats."""
        seating = dict(entry.job.seating) if isinstance(entry.job.seating, Mapping) else {}
        for seat, opponent in entry.opponents.items():
            if opponent.kind == "past":
                seating[seat] = older[phase.seatings[entry.scenario][seat]]
            elif opponent.kind == "fixed":
                seating[seat] = self.fixed(opponent.name, self.specs[entry.scenario], seat)
        return replace(entry.job, seating=seating)

    def _record(self, phase: TrainingPhase, episodes: Sequence[Episode], planned: Mapping[str, PlannedEpisode]) -> None:
        """Tell the league how the policies did against their opponents: 1 for a win or success, 0.5 for a draw."""
        results: dict[str, list[tuple[Opponent, float]]] = {}
        for episode in episodes:
            entry = planned[episode.id]
            if entry.opponents:
                (seat,) = entry.learning
                outcome = outcomes(episode)[seat]
                score = 0.5 if outcome.result == "draw" else float(outcome.success)
                met = results.setdefault(phase.seatings[entry.scenario][seat], [])
                met += [(opponent, score) for opponent in entry.opponents.values()]
        self.league.record(results)

    def _learn(
        self, phase: TrainingPhase, episodes: Sequence[Episode], planned: Mapping[str, PlannedEpisode]
    ) -> dict[str, Any]:
        """Let each policy take its steps on the turns of its seats."""
        training, critic = self.config.training, self.algorithm.needs.critic
        found: list[Trajectory] = []
        holders: list[str] = []  # the policy of each trajectory
        for episode in episodes:
            entry = planned[episode.id]
            seating = phase.seatings[entry.scenario]
            for agent in entry.learning:
                final_prompt = self.learners[seating[agent]].sampler.final_prompt if critic else None
                part = trajectories(episode, (agent,), training.gamma, entry.group, final_prompt)
                found += part
                holders += [seating[agent]] * len(part)
        done = self.updates - phase.start
        return learn(
            Batch(found, training.gamma),
            holders,
            {name: self.learners[name] for name in phase.learners},
            self.algorithm,
            training,
            learning_rate=learning_rate(training, done, phase.length),
            kl_weight=linear(training.kl, training.kl_final, done, phase.length),
            name_metrics=len(self.learners) > 1,
        )


def _halved(weights: Weights, half: bool) -> Weights:
    """The weights, in bfloat16 if `half`: what a run computes in, and enough for an opponent."""
    return {name: value.bfloat16() if half else value for name, value in weights.items()}


def _by_versions(
    phase: TrainingPhase, entries: Sequence[PlannedEpisode]
) -> list[tuple[dict[str, int], list[PlannedEpisode]]]:
    """Episodes of one scenario by the earlier versions that they need; those that need none join the first."""
    parts: dict[tuple[tuple[str, int], ...], list[PlannedEpisode]] = {}
    for entry in entries:
        seating = phase.seatings[entry.scenario]
        past = {seating[seat]: o.version for seat, o in entry.opponents.items() if o.kind == "past"}
        parts.setdefault(tuple(sorted(past.items())), []).append(entry)
    plain = parts.pop((), [])
    groups = [(dict(versions), part) for versions, part in parts.items()] or [({}, [])]
    first = {entry.job.id for entry in (*groups[0][1], *plain)}
    groups[0] = (groups[0][0], [entry for entry in entries if entry.job.id in first])
    return [(versions, part) for versions, part in groups if part]


def _mean_returns(
    episodes: Sequence[Episode], planned: Mapping[str, PlannedEpisode], *, several: bool
) -> dict[str, float]:
    """The mean undiscounted return of each seat, over the episodes in which it learned."""
    returns: dict[str, list[float]] = {}
    for episode in episodes:
        for agent in planned[episode.id].learning:
            key = f"return/{episode.scenario}/{agent}" if several else f"return/{agent}"
            returns.setdefault(key, []).append(episode.returns[agent])
    return {key: fmean(values) for key, values in sorted(returns.items())}


def seed_part(name: str) -> tuple[str, ...]:
    """What tells the seeds of one policy from another's; nothing for the one that holds all seats."""
    return () if name == SHARED_POLICY else (name,)
