"""Build the record of an episode while it is being played.

A turn's reward is the sum of all that its agent received from this action until its next one. Rewards that come
after an agent has ended, which appear in `env.returns` alone, are added to its last turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marl_gem.errors import ScenarioFault
from marl_gem.types import Ending, Episode, EpisodeError, Observation, Response, Role, Turn


class EpisodeBuilder:
    """Collects agents' responses and the results of steps, and makes an `Episode` of them.

    For each step call `begin` and then `complete`; before an agent's first turn call `set_role`; at the end `episode`.
    """

    def __init__(self) -> None:
        self.turns: list[OpenTurn] = []
        self.last: dict[str, OpenTurn] = {}
        """Each agent's newest turn."""
        self.error: EpisodeError | None = None
        self.roles: dict[str, Role] = {}
        """The role of each agent that was asked to act."""
        self._final_infos: dict[str, dict[str, Any]] = {}
        self._returns_at_end: dict[str, float] = {}
        self._terminated = False
        self._started = time.monotonic()

    def set_role(self, agent: str, role: Role) -> None:
        """Keep the role of an agent that is about to be asked for the first time.

        Raises:
            ScenarioFault: it is no Role.
        """
        if not isinstance(role, Role):
            raise ScenarioFault(f"role({agent!r}) gave {role!r}; it must give a Role")
        self.roles[agent] = role

    def begin(self, observations: Mapping[str, Observation], responses: Mapping[str, Response]) -> None:
        """Add a turn for each response, with the observation that it answers."""
        for agent, response in responses.items():
            self.last[agent] = turn = OpenTurn(agent, observations[agent], response)
            self.turns.append(turn)

    def complete(
        self,
        returns: Mapping[str, float],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, dict[str, Any]],
    ) -> None:
        """Add the results of a step to the turns: the env's returns so far, and the four dicts that `step` gave."""
        for agent, reward in rewards.items():
            turn = self.last.get(agent)
            if turn:
                turn.reward += reward
                if turn.info is None:
                    turn.info = dict(infos[agent])  # a copy: an env or a wrapper may go on writing into its dict
            if terminations[agent] or truncations[agent]:
                self._final_infos[agent] = dict(infos[agent])
                self._returns_at_end[agent] = returns[agent]
                self._terminated = self._terminated or terminations[agent]

    def episode(self, *, returns: Mapping[str, float], cut_short: bool, **episode_fields: Any) -> Episode:
        """The record. Call it once, at the end.

        Args:
            returns: each agent's undiscounted sum of rewards.
            cut_short: the episode was left before it was over.
            episode_fields: the other fields of the `Episode`.
        """
        for agent, before in self._returns_at_end.items():
            if turn := self.last.get(agent):
                turn.reward += returns[agent] - before
        terminated = self._terminated and not cut_short
        ending: Ending = "error" if self.error else "terminated" if terminated else "truncated"
        return Episode(
            turns=tuple(Turn(t.agent, t.observation, t.response, t.reward, t.info or {}) for t in self.turns),
            returns=dict(returns),
            ending=ending,
            error=self.error,
            roles=self.roles,
            final_infos=self._final_infos,
            seconds=round(time.monotonic() - self._started, 6),
            **episode_fields,
        )


@dataclass(slots=True)
class OpenTurn:
    """A turn whose reward may still grow, and whose info is not known yet."""

    agent: str
    observation: Observation
    response: Response
    reward: float = 0.0
    info: dict[str, Any] | None = None
