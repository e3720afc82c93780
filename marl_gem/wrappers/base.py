"""What all wrappers have in common: an env around an env, and the order in which they make sense."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NoReturn, Self, TypeAlias

from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConfigError, EpisodeOver, MarlGemError
from marl_gem.types import Observation, Role

Aspect: TypeAlias = Literal["observations", "actions", "rewards", "ending", "prompts"]


def forwarded(name: str) -> Any:
    """An attribute that is the wrapped env's, to read and to set."""
    return property(attrgetter(f"env.{name}"), lambda self, value: setattr(self.env, name, value))


class Wrapper(MultiAgentEnv):
    """An env around an env, which changes one thing and forwards the rest.

    To write one, override what changes, mostly `step`, and call `super()` for what the env in it does. A
    wrong set of actions must raise there before anything has changed here. Infos and truncations are written
    into the dicts that the env gave, so that there is one of each; other dicts and observations are left alone.

    `changes` names what the wrapper changes, `settles` what no wrapper around it may change any more.

    A wrapper takes steps after its own `reset`: an episode that was under way when the env was wrapped
    cannot be gone on with.

    Args:
        env: the env to wrap; it is this wrapper's from now on.

    Raises:
        ConfigError: it is no env, or has a wrapper that must stay outside this one; the message names the
            right order.
    """

    changes: frozenset[Aspect] = frozenset()
    settles: frozenset[Aspect] = frozenset()

    def __init__(self, env: MultiAgentEnv) -> None:
        if not isinstance(env, MultiAgentEnv):
            raise ConfigError(
                f"{type(self).__name__} wraps an env, not {env!r}; make one, for instance with marl_gem.make(id)"
            )
        self.env = env
        _check_order(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        del cls.scenario  # set just now to the class's name, but a wrapped env keeps its own

    # What the env tells

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

    # What the env does

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = self.env.reset(seed=seed, options=options)
        self._state = "live"
        return begun

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

    def _fault(self, where: str, error: Exception) -> NoReturn:
        """What the wrapper calls has raised in the middle of a step, which cannot be gone on with."""
        self._state = "not reset after a failure"
        if isinstance(error, MarlGemError):
            raise error
        super()._fault(f"{type(self).__name__}.{where}", error)


Wrapper.scenario = forwarded("scenario")  # here, because MultiAgentEnv gives every class its own name


def _layers(env: MultiAgentEnv) -> Iterator[Wrapper]:
    """The wrappers of an env, the outermost first."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env


def _check_order(new: Wrapper) -> None:
    """Refuse a wrapper that changes what another one, further inside, counts on."""
    inside = list(_layers(new.env))
    offended = [wrapper for wrapper in inside if wrapper.settles & new.changes]
    if not offended:
        return
    name, other = type(new).__name__, type(offended[-1]).__name__
    aspect = min(offended[-1].settles & new.changes)
    order = [type(wrapper).__name__ for wrapper in inside]
    if aspect not in offended[-1].changes:
        order.insert(inside.index(offended[-1]) + 1, name)
    written = "(".join([*order, new.unwrapped.scenario]) + ")" * len(order)
    raise ConfigError(
        f"{name} changes the {aspect}, which must stay as they are around {other}. The right order is {written}"
    )
