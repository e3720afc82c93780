"""What a scenario reports of one step: four dicts, their defaults, and checks of what they hold."""

from __future__ import annotations

import asyncio
import contextlib
import numbers
import random
from collections.abc import Container, Coroutine, Mapping, Sequence
from inspect import isawaitable
from math import isfinite
from typing import Any, NoReturn, TypeAlias

from marl_gem.errors import InvalidAction, InvalidOption, LLMError, ResourceError, ScenarioFault, SelectorError
from marl_gem.faults import message_of, shown, type_name
from marl_gem.seeding import as_seed

Infos: TypeAlias = dict[str, dict[str, Any]]
Results: TypeAlias = tuple[dict[str, float], dict[str, bool], dict[str, bool], Infos]
"""Rewards, terminations, truncations and infos, each by agent id."""

RESULTS: dict[str, Any] = {"rewards": float, "terminations": bool, "truncations": bool, "infos": dict}
"""The names of the four dicts, and the type of what they hold; called, it gives the default."""

_STEP = ("observations", *RESULTS)


class StepBuffers:
    """Gives each step its four dicts, as copies of dicts that are made once for the same agents."""

    __slots__ = ("_agents", "_no_flags", "_no_rewards")

    def __init__(self) -> None:
        self._agents: tuple[str, ...] | None = None
        self._no_rewards: dict[str, float] = {}
        self._no_flags: dict[str, bool] = {}

    def __deepcopy__(self, memo: object) -> StepBuffers:
        return StepBuffers()

    def defaults(self, agents: tuple[str, ...]) -> Results:
        """New dicts for these agents: reward 0.0, not terminated, not truncated, an empty info."""
        if agents is not self._agents:
            self._agents = agents
            self._no_rewards = dict.fromkeys(agents, 0.0)
            self._no_flags = dict.fromkeys(agents, False)
        infos: Infos = {}
        for agent in agents:
            infos[agent] = {}
        return self._no_rewards.copy(), self._no_flags.copy(), self._no_flags.copy(), infos


def episode_seed(seed: object, scenario: str) -> int:
    """The seed of an episode: the given one, or where that is None a fresh one.

    Raises:
        InvalidOption: it is no integer from 0 up.
    """
    checked = random.SystemRandom().getrandbits(32) if seed is None else as_seed(seed)
    if checked is None:
        raise InvalidOption(f"{scenario}: a seed is an integer from 0 up, not {seed!r}")
    return checked


def check_nobody_left(terminations: Mapping[str, bool], truncations: Mapping[str, bool], scenario: str) -> None:
    """Raise ScenarioFault if an agent is terminated or truncated before the first turn."""
    if any(terminations.values()) or any(truncations.values()):
        raise ScenarioFault(f"{scenario}: _reset terminates or truncates an agent; nobody leaves before the first turn")


def check_joining(agent: object, joined: Container[str], scenario: str) -> str:
    """The id of an agent that joins.

    Raises:
        ScenarioFault: it is no text, or was in this episode already.
    """
    if not isinstance(agent, str):
        raise ScenarioFault(f"{scenario}: an agent's name is text, not {shown(agent)}")
    agent = str.__str__(agent)
    if agent in joined:
        raise ScenarioFault(f"{scenario}: agent {agent!r} joins twice; every agent joins once an episode")
    return agent


def check_possible_agents(agents: Sequence[str], scenario: str) -> tuple[str, ...]:
    """Check the agents that a scenario declares; these agents if they cannot change and are plain text, else none.

    Raises:
        ScenarioFault: they are no ids, each once, in a tuple or a list.
    """
    ordered = isinstance(agents, Sequence) and not isinstance(agents, str)  # a set has another order in every run
    if not ordered or not all(isinstance(agent, str) for agent in agents) or len(set(agents)) != len(agents):
        raise ScenarioFault(f"{scenario}: possible_agents are names, each once, in a tuple, not {shown(agents)}")
    return agents if type(agents) is tuple and _ALL_TEXT.issuperset(map(type, agents)) else ()


def check_actions(actions: Mapping[str, str], acting: tuple[str, ...], scenario: str) -> None:
    """Raise what `step` raises on actions that are not those of the acting agents.

    Raises:
        InvalidAction: they are not exactly one text for each of them.
    """
    if not isinstance(actions, (dict, Mapping)):
        raise InvalidAction(f"{scenario}: actions must be a dict of agent to text, not {type(actions).__name__}")
    if tuple(actions) != acting and actions.keys() != set(acting):
        missing = [agent for agent in acting if agent not in actions]
        extra = [agent for agent in actions if agent not in acting]
        raise InvalidAction(
            f"{scenario}: actions must come from exactly {list(acting)}; "
            f"missing {missing}, not acting now {extra}. See env.acting"
        )
    for agent, action in actions.items():
        if not isinstance(action, str):
            raise InvalidAction(f"{scenario}: the action of {agent!r} must be text, not {shown(action)}")


def as_acting(given: object, agents: Sequence[str], who: str, when: str) -> tuple[str, ...]:
    """The agents that a selector names, if they are some; a selector of an author's may give anything.

    Raises:
        SelectorError: it names none, one twice, or one that is not among `agents`.
    """
    acting = tuple(given) if isinstance(given, tuple | list) else ()
    if not acting or any(agent not in agents for agent in acting) or len(set(acting)) != len(acting):
        raise SelectorError(
            f"{who} {shown(list(given) if type(given) is tuple else given)} {when}; "
            f"it must name one or more of {list(agents)}, each once"
        )
    return acting


async def awaited(rewards: Any) -> Any:
    """Rewards with what the awaitables among them give, all of which are awaited at the same time."""
    pending = {agent: reward for agent, reward in rewards.items() if isawaitable(reward)} if rewards else {}
    if not pending:
        return rewards
    tasks = [asyncio.ensure_future(reward) for reward in pending.values()]
    try:
        given = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()  # if one has failed, or the step is cancelled
    return {**rewards, **dict(zip(pending, given, strict=True))}


def complete(
    name: str, given: Any, alive: Sequence[str], agents: Sequence[str], known: Container[str], scenario: str
) -> dict[str, Any]:
    """One of the four dicts with an entry for every agent that was alive; what is missing gets the default.

    Args:
        name: which of `RESULTS` it is.
        given: what the scenario reported.
        alive: the agents that were alive when the step began.
        agents: the agents that are alive now.
        known: every agent that was in this episode.
        scenario: its id, for the errors.

    Raises:
        ScenarioFault: it is no dict, names an agent that was never in this episode, terminates or truncates one that
            joined in this step, or holds a value of another type.
    """
    if not isinstance(given, Mapping):
        raise ScenarioFault(f"{scenario}: {name} must be a dict, not {shown(given)}")
    if strangers := [agent for agent in given if agent not in known]:
        raise ScenarioFault(f"{scenario}: {name} for {strangers}, who never were in this episode")
    joined = given.keys() & set(agents) - set(alive)
    if RESULTS[name] is bool and any(given[agent] for agent in joined):
        raise ScenarioFault(f"{scenario}: {name} of an agent that joined in this very step: {shown(given)}")
    default = RESULTS[name]
    return {agent: as_declared(name, given[agent], scenario) if agent in given else default() for agent in alive}


def as_reward(value: Any, agent: str, where: str) -> float:
    """A reward as a float.

    Args:
        value: what the scenario gave.
        agent: whose reward it is.
        where: the scenario's id and the step, for the error.

    Raises:
        ScenarioFault: it is no finite real number.
    """
    if isinstance(value, (int, float, numbers.Real)):
        with contextlib.suppress(OverflowError):  # an integer that no float can hold
            if isfinite(number := float(value)):
                return number
    if isinstance(value, Coroutine):
        value.close()
    advice = ", or awaitables of them where the env declares awaits = True" if isawaitable(value) else ""
    raise ScenarioFault(f"{where} gave {agent!r} the reward {shown(value)}; rewards are finite numbers{advice}")


def as_declared(name: str, value: Any, scenario: str) -> Any:
    """An entry of the dict with this name, in the type the contract declares.

    A flag may be anything that equals True or False, such as NumPy's. Rewards are left to `as_reward`.

    Raises:
        ScenarioFault: it has another type.
    """
    kind = RESULTS[name]
    if kind is float or isinstance(value, kind):
        return value
    if kind is bool:
        with contextlib.suppress(TypeError, ValueError):  # an array has no truth value
            if value == bool(value):
                return bool(value)
    raise ScenarioFault(f"{scenario}: {name} must hold a {kind.__name__} for each agent, not {shown(value)}")


def as_reset(returned: Any, scenario: str) -> tuple[dict[str, Any], Infos]:
    """What a `reset` returned, which an author may have written: observations and infos.

    Raises:
        ScenarioFault: it is something else.
    """
    if type(returned) is not tuple or len(returned) != 2:
        raise ScenarioFault(f"{scenario}: reset returned {_kind(returned)}, not observations and infos")
    observations, infos = returned
    return _by_agent("observations", observations, scenario), _by_agent("infos", infos, scenario)


def as_step(returned: Any, scenario: str) -> tuple[dict[str, Any], *Results]:
    """What a `step` returned, which an author may have written: observations, and the four dicts of `RESULTS`.

    Raises:
        ScenarioFault: it is something else, or the four dicts are not about the same agents, or a reward is no finite
            number, or a flag no truth value.
    """
    if type(returned) is not tuple or len(returned) != len(_STEP):
        raise ScenarioFault(f"{scenario}: step returned {_kind(returned)}, not the five dicts {', '.join(_STEP)}")
    observations, rewards, terminations, truncations, infos = returned
    if not _ALL_DICTS.issuperset(map(type, returned)) or not _ALL_TEXT.issuperset(map(type, (*observations, *rewards))):
        observations, rewards, terminations, truncations, infos = (
            _by_agent(name, part, scenario) for name, part in zip(_STEP, returned, strict=True)
        )
    if not rewards.keys() == terminations.keys() == truncations.keys() == infos.keys():
        known = ", ".join(f"{name} {sorted(part)}" for name, part in zip(RESULTS, returned[1:], strict=True))
        raise ScenarioFault(f"{scenario}: step must return these for the same agents, not {known}")
    for agent, reward in rewards.items():
        if type(reward) is not float or not isfinite(reward):
            rewards = {**rewards, agent: as_reward(reward, agent, f"{scenario}: step")}
        if type(terminations[agent]) is not bool or type(truncations[agent]) is not bool:
            terminations = {**terminations, agent: as_declared("terminations", terminations[agent], scenario)}
            truncations = {**truncations, agent: as_declared("truncations", truncations[agent], scenario)}
    return observations, rewards, terminations, truncations, infos


_ALL_DICTS, _ALL_TEXT = frozenset({dict}), frozenset({str})


def _by_agent(name: str, given: Any, scenario: str) -> dict[str, Any]:
    """One of the dicts that `reset` or `step` returned."""
    kind = type(given)
    if kind is not dict:
        if not issubclass(kind, dict):
            raise ScenarioFault(f"{scenario}: {name} were returned as {_kind(given)}; they are a dict by agent")
        given = dict(dict.items(given))
    for agent in given:
        if type(agent) is not str:
            raise ScenarioFault(f"{scenario}: {name} were returned for {shown(agent)}; an agent's id is text")
    return given  # type: ignore[no-any-return]


def _kind(value: object) -> str:
    return f"a tuple of {len(value)}" if type(value) is tuple else f"a {type_name(value)}"


def returned_something(scenario: str, method: str, returned: object) -> ScenarioFault:
    """The fault of a method that sets attributes and returned something as well, which nobody would read."""
    instead = (
        "Set state that observe(agent) reads, and self.infos"
        if method == "_reset"
        else "Set self.rewards, self.terminations, self.truncations and self.infos"
    )
    if isinstance(returned, Coroutine):
        returned.close()
        instead = "It must not be a coroutine function"
    return ScenarioFault(
        f"{scenario}: {method} returned a {type_name(returned)}, which is not used. {instead}; return nothing. "
        "Observations come from observe(agent)"
    )


def raise_fault(error: BaseException, where: str, scenario: str, steps: int, seed: int) -> NoReturn:
    """The scenario's code raised: raise a fault that says where, and how to get there again.

    Raises:
        ScenarioFault: the error is a fault of the scenario.
        InvalidOption, SelectorError, LLMError, ResourceError: it is one of these, which are raised as they are.
    """
    if isinstance(error, (InvalidOption, SelectorError, LLMError, ResourceError)):
        raise error
    raise ScenarioFault(
        f"{scenario}: {where} raised {type(error).__name__} at step {steps} of the episode with seed {seed}: "
        f"{message_of(error)}"
    ) from error
