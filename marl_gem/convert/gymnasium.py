"""Our envs as Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from marl_gem.convert.base import Converted, require_env, require_text
from marl_gem.convert.spaces import Content, FreeText
from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConversionError, EpisodeOver
from marl_gem.policies import Info
from marl_gem.types import Observation, Role

Others = Mapping[str, Callable[[Observation, Info], str]]


def to_gymnasium(
    env: MultiAgentEnv, seat: str | None = None, others: Others | None = None
) -> gymnasium.Env[Observation, str]:
    """One seat of an env as a Gymnasium env.

    A step lasts until the seat is to act again or the episode is over. Its reward is the sum of all rewards of the
    seat meanwhile, those after its end included. Rewards before the seat's first turn come with the first step. If
    the seat ends before its first turn, the first step reports that, whatever the action.

    Besides Gymnasium's API the result has `role()`, which holds the instructions that a model needs,
    `returns` and `marl_env`. `step` raises InvalidAction for what is not text, and EpisodeOver after the end.

    Args:
        env: used by the result from now on.
        seat: the agent to act for; not needed if there is only one.
        others: a function for each other agent, from its observation and info to its action.

    Raises:
        ConversionError: this is no env, there is no such seat, or some other agent has no function.
    """
    require_env(env)
    if seat is None and len(env.possible_agents) != 1:
        raise ConversionError(
            f"{env.scenario} has the agents {list(env.possible_agents)}; say which one is to act, seat=..., and "
            "who plays the others, others={...}; or use marl_gem.convert.to_aec(env)"
        )
    seat = env.possible_agents[0] if seat is None else seat
    if seat not in env.possible_agents:
        raise ConversionError(f"{env.scenario} has no agent {seat!r}; choose one of {list(env.possible_agents)}")
    others = dict(others or {})
    _require_players(env, [agent for agent in env.possible_agents if agent != seat], others)
    return _Gymnasium(env, seat, others)


class _Gymnasium(Converted, gymnasium.Env[Observation, str]):
    def __init__(self, env: MultiAgentEnv, seat: str, others: Others) -> None:
        super().__init__(env)
        self.seat, self._others = seat, others
        self.observation_space: Content = self._observation_spaces[seat]
        self.action_space: FreeText = self._action_spaces[seat]
        self._over = True

    def role(self) -> Role:
        """The instructions and tools of the seat, for before its first turn."""
        return self.marl_env.role(self.seat)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        observations, infos = self._reset_env(seed, options)
        super().reset(seed=None if seed is None else int(seed))
        self._reward, self._ended = 0.0, (False, False)
        self._info = dict(infos[self.seat])
        self._over = True
        self._advance(observations, infos)
        self._over = False
        return self._observe(), self._info

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EpisodeOver(f"{self.marl_env.scenario}: no episode is live; call reset() to start a new one")
        require_text(self.marl_env, self.seat, action)
        self._over = True  # if another agent's function raises, the episode cannot go on
        if not any(self._ended):
            self._info = {}
            self._advance(*self._now, action)
        self._over = any(self._ended)
        reward, self._reward = self._reward, 0.0
        return self._observe(), reward, *self._ended, self._info

    def _advance(self, observations: Observations, infos: Infos, action: str | None = None) -> None:
        """Apply the seat's action, then let the others act until it is the seat's turn, or no agent is left."""
        while observations and (action is not None or self.seat not in observations):
            actions = {agent: self._ask(agent, observations, infos) for agent in observations if agent != self.seat}
            if action is not None:
                actions[self.seat], action = action, None
            observations, rewards, terminations, truncations, infos = self._step_env(actions)
            if self.seat in infos:
                self._reward += rewards[self.seat]
                self._info |= infos[self.seat]
                self._ended = (terminations[self.seat], truncations[self.seat])
                counted = self.marl_env.returns[self.seat]
        self._now = observations, infos
        if any(self._ended) and self.marl_env.returns[self.seat] != counted:
            self._reward += self.marl_env.returns[self.seat] - counted

    def _ask(self, agent: str, observations: Observations, infos: Infos) -> str:
        _require_players(self.marl_env, [agent], self._others)  # it may have joined
        return self._others[agent](observations[agent], infos[agent])

    def _observe(self) -> Observation:
        return self._shown[self.seat] if not any(self._ended) else self._info["final_observation"]  # type: ignore[no-any-return]


def _require_players(env: MultiAgentEnv, agents: Sequence[str], others: Others) -> None:
    if missing := [agent for agent in agents if agent not in others]:
        raise ConversionError(
            f"{env.scenario}: nobody plays {missing}; give a function for each, "
            f"others={{{missing[0]!r}: lambda observation, info: ...}}"
        )
