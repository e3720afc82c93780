"""Other libraries' envs behind one interface: `reset` and `step` give a `Moment`.

A game keeps the seed and the actions of its episode, and copies itself by playing them again in a fresh env:
many of these envs cannot be copied, and some come out of `copy.deepcopy` as new, without an error.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import gymnasium

from marl_gem.convert.observations import plain
from marl_gem.errors import ConversionError
from marl_gem.seeding import derive_seed
from marl_gem.types import TurnOrder

_SEEDS = 2**31
"""Seeds are mapped below this number, since many envs take no larger ones."""


@dataclass
class Moment:
    """The state of a game after a step, as far as agents are concerned.

    `agents` are alive; those in `acting` act next. `rewards` came with the step. `observations` belong to the
    acting agents and to those that have just ended, which `terminations` and `truncations` mark.
    """

    agents: tuple[str, ...] = ()
    acting: tuple[str, ...] = ()
    observations: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    terminations: dict[str, bool] = field(default_factory=dict)
    truncations: dict[str, bool] = field(default_factory=dict)
    infos: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def earn(self, rewards: Mapping[str, Any]) -> None:
        for agent, reward in rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + float(reward)


class Game(ABC):
    """A live env of another library. `factory` makes a fresh one like it."""

    turn_order: TurnOrder
    possible_agents: tuple[str, ...]
    joins = False
    """Whether agents beyond `possible_agents` may join."""

    def __init__(self, env: Any, factory: Callable[[], Any] | None) -> None:
        self.env = env
        self._factory = factory
        self._start: tuple[int, Mapping[str, Any]] | None = None
        self._closed = False

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def action_space(self, agent: str) -> gymnasium.Space[Any]: ...

    @abstractmethod
    def observation_space(self, agent: str) -> gymnasium.Space[Any]: ...

    def observe(self, agent: str) -> Any:
        """The observation of an agent that is alive."""
        return self._now.observations[agent]

    @abstractmethod
    def _reset(self, seed: int, options: dict[str, Any] | None) -> Moment: ...

    @abstractmethod
    def _step(self, actions: dict[str, Any]) -> Moment: ...

    def reset(self, seed: int, options: Mapping[str, Any]) -> Moment:
        """Start an episode; a seed that is larger than many envs take is mapped to a smaller one.

        If there is a factory, every episode has a fresh env, since the `reset` of some envs leaves state
        behind: PettingZoo's knights_archers_zombies_v11 spawns zombies at other times after a broken-off episode.
        """
        if self._factory and self._start:
            fresh = self._made()
            self.close()
            self.env, self._closed = fresh, False
        self._start, self._history = (seed, options), list[dict[str, Any]]()
        self._now = self._reset(seed if seed < _SEEDS else derive_seed(seed) % _SEEDS, dict(options) or None)
        return self._now

    def step(self, actions: dict[str, Any]) -> Moment:
        """Apply the actions of those who act."""
        self._history.append(copy.deepcopy(actions))  # the env may change an array that it is given
        self._now = self._step(actions)
        return self._now

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.env.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._factory is None:
            raise ConversionError(
                f"{self.name} can be copied only if there is a function that makes a fresh one: convert that "
                "function, such as tictactoe_v3.env, and not an env"
            )
        fresh = type(self)(self._made(), self._factory)
        if self._start:
            moment = fresh.reset(*self._start)
            for actions in self._history:
                moment = fresh.step(actions)
            if _gist(moment) != _gist(self._now):
                raise ConversionError(
                    f"{self.name} cannot be copied: with the same seed and the same actions it has not played the "
                    "same episode again"
                )
        return fresh

    def _made(self) -> Any:
        assert self._factory
        env = self._factory()
        if env is self.env:
            raise ConversionError(f"the function that makes {self.name} must make a fresh env at every call")
        return env


class PettingZooGame(Game):
    """What PettingZoo's two APIs have in common."""

    def __init__(self, env: Any, factory: Callable[[], Any] | None) -> None:
        super().__init__(env, factory)
        self.possible_agents = _ids(getattr(env, "possible_agents", ()))
        self.joins = not hasattr(env, "possible_agents")

    @property
    def name(self) -> str:
        return str(self.env)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return self.env.action_space(agent)  # type: ignore[no-any-return]

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return self.env.observation_space(agent)  # type: ignore[no-any-return]


class AECGame(PettingZooGame):
    """One agent acts at a time."""

    turn_order = "sequential"

    def observe(self, agent: str) -> Any:
        return self.env.observe(agent)

    def _reset(self, seed: int, options: dict[str, Any] | None) -> Moment:
        self.env.reset(seed=seed, options=options)
        return self._go_on(Moment())

    def _step(self, actions: dict[str, Any]) -> Moment:
        moment = Moment()
        (action,) = actions.values()
        self.env.step(action)
        moment.earn(self.env.rewards)
        return self._go_on(moment)

    def _go_on(self, moment: Moment) -> Moment:
        """Take the last step, None, of every agent that has ended, until an agent is to act."""
        env = self.env
        while env.agents:
            agent = env.agent_selection
            moment.observations[agent], _, terminated, truncated, moment.infos[agent] = env.last()
            if not (terminated or truncated):
                moment.acting = (agent,)
                break
            if agent in moment.terminations:
                raise RuntimeError(f"{agent!r} has ended and taken its last step, but is still among the agents")
            moment.terminations[agent], moment.truncations[agent] = bool(terminated), bool(truncated)
            env.step(None)
            moment.earn(env.rewards)
        moment.agents = _ids(env.agents)
        moment.infos |= {agent: env.infos.get(agent, {}) for agent in moment.agents}
        return moment


class ParallelGame(PettingZooGame):
    """Every agent that is alive acts at every step."""

    turn_order = "parallel"

    def _reset(self, seed: int, options: dict[str, Any] | None) -> Moment:
        observations, infos = self.env.reset(seed=seed, options=options)
        agents = _ids(self.env.agents)
        return Moment(agents, agents, {agent: observations[agent] for agent in agents}, infos=_of(agents, infos, {}))

    def _step(self, actions: dict[str, Any]) -> Moment:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        agents = tuple(a for a in _ids(self.env.agents) if not (terminations.get(a) or truncations.get(a)))
        there = tuple(dict.fromkeys([*actions, *agents]))
        moment = Moment(agents, agents, {agent: observations[agent] for agent in there if agent in observations})
        moment.earn(_of(there, rewards, 0.0))
        moment.terminations = {agent: bool(ended) for agent, ended in _of(there, terminations, False).items()}
        moment.truncations = {agent: bool(ended) for agent, ended in _of(there, truncations, False).items()}
        moment.infos = _of(there, infos, {})
        return moment


class GymnasiumGame(Game):
    """Gymnasium's API: one agent, called "player_0" here."""

    turn_order = "sequential"
    possible_agents = ("player_0",)

    @property
    def name(self) -> str:
        spec = self.env.spec
        return str(spec.id if spec else self.env.metadata.get("name") or type(self.env.unwrapped).__name__)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return self.env.action_space  # type: ignore[no-any-return]

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return self.env.observation_space  # type: ignore[no-any-return]

    def _reset(self, seed: int, options: dict[str, Any] | None) -> Moment:
        observation, info = self.env.reset(seed=seed, options=options)
        (agent,) = agents = self.possible_agents
        return Moment(agents, agents, {agent: observation}, infos={agent: info})

    def _step(self, actions: dict[str, Any]) -> Moment:
        ((agent, action),) = actions.items()
        observation, reward, terminated, truncated, info = self.env.step(action)
        agents = () if terminated or truncated else (agent,)
        return Moment(
            agents,
            agents,
            {agent: observation},
            {agent: float(reward)},
            {agent: bool(terminated)},
            {agent: bool(truncated)},
            {agent: info},
        )


def _ids(agents: Any) -> tuple[str, ...]:
    """The agents, whose names must be text."""
    if strange := [agent for agent in agents if not isinstance(agent, str)]:
        raise ConversionError(f"agents are named by text here, but this env has {strange}; wrap it so that they are")
    return tuple(agents)


def _of(agents: tuple[str, ...], values: Mapping[str, Any], default: Any) -> dict[str, Any]:
    return {agent: values.get(agent, default) for agent in agents}


def _gist(moment: Moment) -> Any:
    return plain([moment.agents, moment.acting, moment.observations, moment.rewards, moment.infos])
