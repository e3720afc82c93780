"""The base class of wrappers, and the order in which they can be put around one another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NoReturn, Self, TypeAlias

from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConfigError, EpisodeOver, MarlGemError
from marl_gem.faults import shown
from marl_gem.types import Observation, Role, SentMessage

Aspect: TypeAlias = Literal["observations", "actions", "rewards", "ending", "prompts"]
"""What a wrapper may change."""

AroundStep: TypeAlias = Generator[Mapping[str, str], Step, Step]
"""What `Wrapper.around_step` is: it yields actions, gets what the wrapped env made of them, and returns a step."""


def forwarded(name: str) -> Any:
    """An attribute that is read from and set on the wrapped env."""
    return property(attrgetter(f"env.{name}"), lambda self, value: setattr(self.env, name, value))


class Wrapper(MultiAgentEnv):
    """An env around an env, which changes one thing and forwards the rest.

    To write one, override the methods that change, and call `super()` for the wrapped env's part. For steps override
    `around_step`; what stands before its `yield` happens before the wrapped env's step, and what follows it after.
    Wrong actions must raise there, before the wrapper has changed anything. A wrapper writes infos and truncations
    into the dicts that the env gave; it leaves the other dicts and observations as they are, and returns new ones.

    A wrapper may override `step` itself, and call `super().step`. Around an env that `awaits` it is then stepped in a
    thread.

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

    _overrides_step = False

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
        if "step" in vars(cls) and "step_async" not in vars(cls):
            cls._overrides_step = True

    # Attributes of the env

    possible_agents = forwarded("possible_agents")
    selector = forwarded("selector")
    max_steps = forwarded("max_steps")
    tasks = forwarded("tasks")
    grades = forwarded("grades")
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
    channels = forwarded("channels")
    message_log = forwarded("message_log")

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.env.blocking or (self.env.awaits and self._overrides_step)

    @property
    def awaits(self) -> bool:  # type: ignore[override]
        return self.env.awaits and not self._overrides_step

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

    def around_step(self, actions: Mapping[str, str]) -> AroundStep:
        """What `step` and `step_async` do: yields the actions of a step of the wrapped env, is sent its results, and
        returns its own. As a rule it yields once; what the wrapped env raises is raised there.
        """
        return (yield actions)

    def step(self, actions: Mapping[str, str]) -> Step:
        around = self._enter_step(actions)
        given, step = _resume(around.send, None)
        while step is None:
            try:
                results = self.env.step(given)
            except BaseException as error:
                given, step = _resume(around.throw, error)
            else:
                given, step = _resume(around.send, results)
        return step

    async def step_async(self, actions: Mapping[str, str]) -> Step:
        if self._overrides_step:
            return self.step(actions)
        around = self._enter_step(actions)
        given, step = _resume(around.send, None)
        while step is None:
            try:
                results = await self.env.step_async(given)
            except BaseException as error:
                given, step = _resume(around.throw, error)
            else:
                given, step = _resume(around.send, results)
        return step

    def _enter_step(self, actions: Mapping[str, str]) -> AroundStep:
        if self._state != "live":
            raise EpisodeOver(f"{self.scenario}: the episode is {self._state}; call reset() to start a new one")
        return self.around_step(actions)

    def observe(self, agent: str) -> Observation:
        return self.env.observe(agent)

    def new_messages(self, agent: str) -> list[SentMessage]:
        return self.env.new_messages(agent)

    def render(self) -> str:
        return self.env.render()

    def role(self, agent: str) -> Role:
        return self.env.role(agent)

    def legal_actions(self, agent: str) -> Sequence[str] | None:
        return self.env.legal_actions(agent)

    def fork(self) -> Self:
        """An equal, independent copy around a fork of the env. Functions and models that it calls are shared."""
        shared = {id(value): value for value in vars(self).values() if callable(value)}
        return copy.deepcopy(self, {**shared, id(self.env): self.env.fork()})

    def release_resources(self) -> None:
        self.env.release_resources()

    def close(self) -> None:
        self.env.close()

    def _fault(self, where: str, error: BaseException) -> NoReturn:
        """A function that the wrapper calls raised in the middle of a step: the episode cannot be continued."""
        self._state = "not reset after a failure"
        if isinstance(error, MarlGemError):
            raise error
        super()._fault(f"{type(self).__name__}.{where}", error)


Wrapper.scenario = forwarded("scenario")  # here, because MultiAgentEnv gives every class its own name


def _resume(proceed: Callable[[Any], Mapping[str, str]], value: object) -> tuple[Mapping[str, str], Step | None]:
    """Let `around_step` go on: the actions that it yields, or the step that it returns."""
    try:
        return proceed(value), None
    except StopIteration as end:
        return {}, end.value


def agent_ids(agents: str | Iterable[str] | None) -> frozenset[str] | None:
    """Agent ids that a wrapper was given, one or several, as a set; None stands for all agents."""
    if agents is None:
        return None
    return frozenset([agents] if isinstance(agents, str) else agents)


def layers(env: MultiAgentEnv) -> Iterator[Wrapper]:
    """The wrappers of an env, the outermost first."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env


def _check_order(new: Wrapper) -> None:
    """Refuse a wrapper that changes what another one, further inside, relies on."""
    inside = list(layers(new.env))
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
