"""Seat the policies of a plan, and play its episodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from marl_gem.llm.models import Models
from marl_gem.policies import Policy
from marl_gem.policies.continuation import Continuation
from marl_gem.rollout import Job, stream
from marl_gem.seeding import derive_seed
from marl_gem.specs import ScenarioSpec, load_policy
from marl_gem.trainers.episode_plan import Plan, PlannedEpisode
from marl_gem.trainers.samplers.base import Player
from marl_gem.trainers.schedule import TrainingPhase
from marl_gem.trainers.sections import TrainConfig
from marl_gem.types import Episode, Turn


class Played(NamedTuple):
    """The episodes of a plan, in its order.

    `repeated` says for each episode of a group that was forked, by its id, how many of each agent's first turns it
    shares with the others of its group.
    """

    episodes: list[Episode]
    repeated: Mapping[str, Counter[str]]


class EpisodePlayer:
    """Plays episodes with the policies that learn and those that do not. It is used in one thread.

    Args:
        config: the run's.
        players: who answers for each policy that learns.
    """

    def __init__(self, config: TrainConfig, players: Mapping[str, Player]) -> None:
        self._specs = [scenario.spec for scenario in config.scenarios]
        self._resets = [scenario.reset for scenario in config.scenarios]
        self._players = players
        self._models = Models(wait=config.wait)  # shared by all seats, so that those who name the same model share it
        self._fixed: dict[tuple[str, str], Policy] = {}

    def policies(self, phase: TrainingPhase, scenario: int, spec: ScenarioSpec | None = None) -> dict[str, Policy]:
        """Who holds each seat of a scenario in a phase; those that do not learn are made for `spec`."""
        spec = spec or self._specs[scenario]
        return {
            seat: self._players[who].policy if who in self._players else self.fixed(who, spec, seat)
            for seat, who in phase.seatings[scenario].items()
        }

    def fixed(self, who: str, spec: ScenarioSpec, seat: str) -> Policy:
        """A policy that does not learn, made once for each scenario and seat."""
        key = (f"{who} {seat}", repr(spec.to_data()))
        if key not in self._fixed:
            self._fixed[key] = load_policy(who, spec, agents=(seat,), models=self._models)
        return self._fixed[key]

    async def play(self, plan: Plan) -> Played:
        """Play all episodes of the plan.

        Those of one scenario with the same earlier versions are played at the same time: a player answers with one
        earlier version at a time.

        Raises:
            LLMError: the server of a policy that learns has died for good.
        """
        episodes: dict[str, Episode] = {}
        repeated: dict[str, Counter[str]] = {}
        for index, spec in enumerate(self._specs):
            for versions, part in plan.parts(index):
                older = {name: self._players[name].opponent(plan.past[name, v]) for name, v in versions.items()}
                newest = self.policies(plan.phase, index)
                jobs = [self._job(plan.phase, entry, newest, older) for entry in part]
                if plan.fork:
                    jobs = await _forked(spec, part, jobs, repeated)
                async for episode in stream(spec.make, jobs, concurrency=len(jobs)):
                    episodes[episode.id] = episode
        for player in self._players.values():
            player.check()
        return Played([episodes[entry.id] for entry in plan.episodes], repeated)

    def _job(
        self, phase: TrainingPhase, entry: PlannedEpisode, newest: Mapping[str, Policy], older: Mapping[str, Policy]
    ) -> Job:
        """The job of an episode, with the opponents in their seats."""
        seating = dict(newest)
        for seat, opponent in entry.opponents.items():
            if opponent.kind == "past":
                seating[seat] = older[phase.seatings[entry.scenario][seat]]
            elif opponent.kind == "fixed":
                seating[seat] = self.fixed(opponent.name, self._specs[entry.scenario], seat)
        return Job(entry.seed, seating, entry.id, options=self._resets[entry.scenario], repeat=entry.repeat)


async def _forked(
    spec: ScenarioSpec, part: Sequence[PlannedEpisode], jobs: Sequence[Job], repeated: dict[str, Counter[str]]
) -> list[Job]:
    """The jobs of groups whose episodes continue from the same state in mid-episode.

    A further episode is played for each group, to its end. The state is the one before one of its turns, drawn among
    all that learning seats took. All episodes of the group repeat what came before, and then go on by themselves. So
    they are alike given the state: a baseline from the others favours no action, and no choice of the state biases the
    gradient of what follows it. (If the further episode were of the group, its length would have chosen the state.)
    """
    groups: dict[str, list[tuple[PlannedEpisode, Job]]] = {}
    for entry, job in zip(part, jobs, strict=True):
        groups.setdefault(entry.group, []).append((entry, job))
    firsts = {
        group: replace(members[0][1], id=f"{group}-first", repeat=len(members)) for group, members in groups.items()
    }
    found = {e.id: e async for e in stream(spec.make, firsts.values(), concurrency=len(firsts))}
    forked: dict[str, Job] = {}
    for group, members in groups.items():
        first, episode = firsts[group], found[firsts[group].id]
        shared = _before_a_turn(episode, members[0][0].learning)
        for entry, job in members:
            assert isinstance(job.seating, Mapping)
            seating = {
                seat: Continuation(policy, [t for t in shared if t.agent == seat], first.seed_of(seat))
                for seat, policy in job.seating.items()
            }
            forked[entry.id] = replace(job, seating=seating)
            repeated[entry.id] = Counter(turn.agent for turn in shared)
    return [forked[entry.id] for entry in part]


def _before_a_turn(episode: Episode, learning: Sequence[str]) -> Sequence[Turn]:
    """The turns before one that is drawn among those of the learning seats; none if the episode failed."""
    turns = [index for index, turn in enumerate(episode.turns) if turn.agent in learning]
    if episode.error is not None or not turns:
        return ()
    return episode.turns[: random.Random(derive_seed(episode.seed, "fork")).choice(turns)]
