"""Seat the policies of a plan, and play its episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marl_gem.llm.models import Models
from marl_gem.policies import Policy
from marl_gem.rollout import Job, stream
from marl_gem.specs import ScenarioSpec, load_policy
from marl_gem.trainers.episode_plan import Plan, PlannedEpisode
from marl_gem.trainers.samplers.base import Player
from marl_gem.trainers.schedule import TrainingPhase
from marl_gem.types import Episode


class EpisodePlayer:
    """Plays episodes with the policies that learn and those that do not. It is used in one thread.

    Args:
        specs: the run's scenarios.
        players: who answers for each policy that learns.
    """

    def __init__(self, specs: Sequence[ScenarioSpec], players: Mapping[str, Player]) -> None:
        self._specs = specs
        self._players = players
        self._models = Models()  # shared by all seats, so that those who name the same model share it
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

    async def play(self, plan: Plan) -> list[Episode]:
        """All episodes of the plan, in its order.

        Those of one scenario with the same earlier versions are played at the same time: a player answers with one
        earlier version at a time.

        Raises:
            LLMError: the server of a policy that learns has died for good.
        """
        episodes: dict[str, Episode] = {}
        for index, spec in enumerate(self._specs):
            for versions, part in plan.parts(index):
                older = {name: self._players[name].opponent(plan.past[name, v]) for name, v in versions.items()}
                newest = self.policies(plan.phase, index)
                jobs = [self._job(plan.phase, entry, newest, older) for entry in part]
                async for episode in stream(spec.make, jobs, concurrency=len(jobs)):
                    episodes[episode.id] = episode
        for player in self._players.values():
            player.check()
        return [episodes[entry.id] for entry in plan.episodes]

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
        return Job(entry.seed, seating, entry.id, repeat=entry.repeat)
