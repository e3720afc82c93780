"""The base class of wrappers, and the order in which they can be put around one another."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NoReturn, Self, TypeAlias

from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConfigError, EpisodeOver, MarlGemError
from marl_gem.faults import shown
from marl_gem.types import Observation, Role

Aspect: TypeAlias = Literal["observations", "actions", "rewards", "ending", "prompts"]
"""What a wrapper may change."""


def forwarded(name: str) -> Any:
    """An attribute that is read from and set on the wrapped env."""
    return property(attrgetter(f"env.{name}"), lambda self, value: setattr(self.env, name, value))


class Wrapper(MultiAgentEnv):
    """An env around an env, which changes one thing and forwards the rest.

    To write one, override the methods that change, mostly `step`, and call `super()` for the wrapped env's part.
    Wrong actions must raise there, before the wrapper has changed anything. A wrapper writes infos and truncations
    into the dicts that the env gave; it leaves the other dicts and observations as they are, and returns new ones.

    A wrapper that a command line or a configuration can name takes, besides the env, plain values only: numbers,
    text, booleans, lists.

    A wrapper steps after its own `reset` only: an episode that had begun when the env was wrapped cannot be continued.

    Args:
        env: the env to wrap; nobody else uses it from now on.

    Raises:
        ConfigError: it is no env, or has a wrapper that must be outside this one; the message names the right order.
    """

    changes: frozenset[Aspect] = frozenset()
    """What this wrapper changes."""

    settles: frozenset[Aspect] = frozenset()
    """What no wrapper around this one may change, because this one relies on it."""

    def __init__(self, env: MultiAgentEnv) -> None:
        if not isinstance(env, MultiAgentEnv):
            raise ConfigError(
                f"{type(self).__name__} wraps an env, not {shown(env)}; make one, for instance with marl_gem.make(id)"
            )
        self.env = env
        _check_order(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        del cls.scenario  # the base class has set it to the class's name, but a wrapped env keeps its id

    # Attributes of the env

    possible_agents = forwarded("possible_agents")
    selector = forwarded("selector")
    max_steps = forwarded("max_steps")
    blocking = forwarded("blocking")
    tasks = forwarded("tasks")
    possible_actions = forwarded("possible_actions")
    trivial_baselines = forwarded("trivial_baselines")
    metadata = forwarded("metadata")
    seed = forwarded("seed")
    steps = forwarded("steps")
    returns = forwarded("returns")
    rewards = forwarded("rewards")
    terminations = forwarded("terminations")
    truncations = forwarded("truncations")
    infos = forwarded("infos")
    rng = forwarded("rng")

    @property
    def agents(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.env.agents if self._state == "live" else ()

    @property
    def acting(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.env.acting if self._state == "live" else ()

    @property
    def unwrapped(self) -> MultiAgentEnv:
        """The env within all wrappers."""
        env = self.env
        while isinstance(env, Wrapper):
            env = env.env
        return env

    # Methods of the env

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._state = "live"
        return observations, infos

    def step(self, actions: Mapping[str, str]) -> Step:
        if self._state != "live":
            raise EpisodeOver(f"{self.scenario}: the episode is {self._state}; call reset() to start a new one")
        return self.env.step(actions)

    def observe(self, agent: str) -> Observation:
        return self.env.observe(agent)

    def role(self, agent: str) -> Role:
        return self.env.role(agent)

    def legal_actions(self, agent: str) -> Sequence[str] | None:
        return self.env.legal_actions(agent)

    def fork(self) -> Self:
        """An equal, independent copy around a fork of the env. Functions and models that it calls are shared."""
        shared = {id(value): value for value in vars(self).values() if callable(value)}
        return copy.deepcopy(self, {**shared, id(self.env): self.env.fork()})

    def close(self) -> None:
        self.env.close()

    def _fault(self, where: str, error: BaseException) -> NoReturn:
        """A function that the wrapper calls raised in the middle of a step: the episode cannot be continued."""
        self._state = "not reset after a failure"
        if isinstance(error, MarlGemError):
            raise error
        super()._fault(f"{type(self).__name__}.{where}", error)


Wrapper.scenario = forwarded("scenario")  # here, because MultiAgentEnv gives every class its own name


def agent_ids(agents: str | Iterable[str] | None) -> frozenset[str] | None:
    """Agent ids that a wrapper was given, one or several, as a set; None stands for all agents."""
    if agents is None:
        return None
    return frozenset([agents] if isinstance(agents, str) else agents)


def _layers(env: MultiAgentEnv) -> Iterator[Wrapper]:
    """The wrappers of an env, the outermost first."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env


def _check_order(new: Wrapper) -> None:
    """Refuse a wrapper that changes what another one, further inside, relies on."""
    inside = list(_layers(new.env))
    conflicts = [wrapper for wrapper in inside if wrapper.settles & new.changes]
    if not conflicts:
        return
    innermost = conflicts[-1]
    name, other = type(new).__name__, type(innermost).__name__
    aspect = min(innermost.settles & new.changes)
    order = [type(wrapper).__name__ for wrapper in inside]
    if aspect not in innermost.changes:
        order.insert(inside.index(innermost) + 1, name)
    written = "(".join([*order, new.unwrapped.scenario]) + ")" * len(order)
    raise ConfigError(
        f"{name} changes the {aspect}, which must stay as they are around {other}. The right order is {written}"
    )
