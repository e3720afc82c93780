"""Our envs as PettingZoo's.

    env = to_aec(marl_gem.make("game:KuhnPoker-v0"))
    env.reset(seed=7)
    for agent in env.agent_iter():
        observation, reward, termination, truncation, info = env.last()
        env.step(None if termination or truncation else env.action_space(agent).sample())

`to_parallel` gives the parallel API instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]

from marl_gem.convert.base import Converted, require_env, require_text
from marl_gem.convert.spaces import Content, FreeText
from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConversionError, EpisodeOver, InvalidAction
from marl_gem.types import ContentPart, Observation, Role


def to_aec(env: MultiAgentEnv) -> AECEnv:
    """An env as a PettingZoo AEC env, for every turn order.

    Agents that act together are asked one after the other; their actions are applied when the last one is known,
    and no agent sees the actions of the others before that. Actions and observations are text. `infos` are
    those of the env, with `legal_actions` where it lists them. An agent that has left observes what it saw last.

    Besides PettingZoo's API the result has `role(agent)`, which holds the instructions that a model needs,
    `returns` and `marl_env`. PettingZoo's API cannot hand over a reward that an agent gets after it has left:
    such a reward counts in `returns` alone. An agent that joins is added to `possible_agents`.

    Args:
        env: used by the result from now on.

    Raises:
        ConversionError: this is no env.
        InvalidAction: from `step`: the action is not text, or not None for an agent that has ended. Nothing
            has changed.
        EpisodeOver: from `step` and `last`: no agent is left. From `observe`: the agent has not taken part in
            this episode.
    """
    return _AEC(env)


def to_parallel(env: MultiAgentEnv) -> ParallelEnv:
    """An env in which every agent that is alive acts at every step, as a PettingZoo parallel env.

    As with `to_aec` there are `role(agent)`, `returns` and `marl_env`, and an agent that joins is added to
    `possible_agents`. `step` raises InvalidAction, and changes nothing, unless it gets exactly one text for
    every agent in `agents`.

    Args:
        env: used by the result from now on.

    Raises:
        ConversionError: this is no env, or it declares that its agents take turns; if it declares no turn
            order, this comes from the `reset` or `step` after which some agents are to wait.
    """
    require_env(env)
    if env.metadata.turn_order not in (None, "parallel") and len(env.possible_agents) > 1:
        raise ConversionError(_not_parallel(env, f"its turn order is {env.metadata.turn_order}"))
    return _Parallel(env)


class _Zoo(Converted):
    """What both of PettingZoo's APIs have in common."""

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self.metadata["is_parallelizable"] = env.metadata.turn_order == "parallel"
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []

    def role(self, agent: str) -> Role:
        """The instructions and tools of `agent`, for before its first turn."""
        return self.marl_env.role(agent)

    def observation_space(self, agent: str) -> Content:
        """Any text, or content parts; always the same object for the same agent."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> FreeText:
        """Any text. `sample()` draws a legal one where the env lists them; always the same object."""
        return self._action_spaces[agent]

    def _set_agents(self, agents: Iterable[str]) -> None:
        """Set who is alive. An agent that has joined is a possible agent from now on."""
        self.agents = list(agents)
        self.possible_agents += [agent for agent in self.agents if agent not in self.possible_agents]


class _AEC(_Zoo, AECEnv):  # type: ignore[misc]
    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._chosen: dict[str, str] = {}  # actions of agents that act together, until the last is known
        self._final: dict[str, Observation] = {}  # what agents that have ended saw last

    def last(self, observe: bool = True) -> tuple[Observation | None, float, bool, bool, dict[str, Any]]:
        if not self.agents:
            raise EpisodeOver(f"{self}: no agent is left; call reset() to start a new episode")
        return super().last(observe)  # type: ignore[no-any-return]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        _, self.infos = self._reset_env(seed, options)
        self._set_agents(self.infos)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._chosen, self._final = {}, {}
        self._select()

    def observe(self, agent: str) -> Observation:
        if agent in self._final:
            return _typed(self._final[agent])
        if agent not in self.agents:
            raise EpisodeOver(
                f"{self}: {agent!r} has not taken part in this episode; the agents are {self.agents}. If there are "
                "none, call reset()"
            )
        return _typed(self.marl_env.observe(agent))

    def step(self, action: str | None) -> None:
        if not self.agents:
            raise EpisodeOver(f"{self}: no agent is left; call reset() to start a new episode")
        agent = self.agent_selection
        if self._has_ended(agent):
            if action is not None:
                raise InvalidAction(f"{self}: {agent!r} has ended; step it with None, not with {action!r}")
            self._was_dead_step(None)
            return
        chosen = {**self._chosen, agent: require_text(self.marl_env, agent, action)}
        if len(chosen) == len(self.marl_env.acting):
            chosen, result = {}, self._step_env(chosen)
            _, self.rewards, self.terminations, self.truncations, self.infos = result
            self._final |= {a: info["final_observation"] for a, info in self.infos.items() if self._has_ended(a)}
            self._set_agents(self.infos)
        else:
            self._clear_rewards()
        self._chosen = chosen
        self._cumulative_rewards[agent] = 0.0
        self._cumulative_rewards = {
            other: self._cumulative_rewards.get(other, 0.0) + reward for other, reward in self.rewards.items()
        }
        self._select()

    def _has_ended(self, agent: str) -> bool:
        return bool(self.terminations[agent] or self.truncations[agent])

    def _select(self) -> None:
        """Agents that have ended come first, then acting agents whose action is not known yet."""
        waiting = [agent for agent in self.marl_env.acting if agent not in self._chosen]
        self.agent_selection = (waiting or self.agents)[0]
        self._deads_step_first()


class _Parallel(_Zoo, ParallelEnv):  # type: ignore[misc]
    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        observations, infos = self._reset_env(seed, options)
        self._check_parallel()
        return {agent: _typed(seen) for agent, seen in observations.items()}, infos

    def step(self, actions: Mapping[str, str]) -> Step:
        observations, rewards, terminations, truncations, infos = self._step_env(actions)
        self._check_parallel()
        last_seen = {agent: info["final_observation"] for agent, info in infos.items() if agent not in self.agents}
        seen = {agent: _typed(shown) for agent, shown in {**last_seen, **observations}.items()}
        return seen, rewards, terminations, truncations, infos

    def _check_parallel(self) -> None:
        env = self.marl_env
        if set(env.acting) != set(env.agents):
            raise ConversionError(_not_parallel(env, f"now {list(env.acting)} act, and not all of {list(env.agents)}"))
        self._set_agents(env.agents)


def _not_parallel(env: MultiAgentEnv, reason: str) -> str:
    return (
        f"{env.scenario} cannot be a parallel env, where every agent acts at every step: {reason}. "
        "Use marl_gem.convert.to_aec(env)"
    )


class _Text(str):
    """Text with a dtype, which PettingZoo's `api_test` asks of every observation."""

    __slots__ = ()
    dtype = np.dtype(str)


class _Parts(list[ContentPart]):
    """Content parts with a dtype."""

    dtype = np.dtype(str)


def _typed(observation: Observation) -> Observation:
    return _Text(observation) if isinstance(observation, str) else _Parts(observation)
