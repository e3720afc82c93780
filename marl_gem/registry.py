"""From an id to a live env.

An id is `family:Name-vN`. A family is a plug-in: an entry point of the group `marl_gem.scenarios`, named
like the family, whose module registers its scenarios when it is first asked for. So another package adds
a family with one line in its pyproject.toml, and nothing here knows a scenario by name.
"""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from marl_gem.analysis import Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError, InvalidOption, RegistryError, UnavailableScenario, UnknownScenario
from marl_gem.policies import Policy

GROUP = "marl_gem.scenarios"

Made = TypeVar("Made")
Offered = TypeVar("Offered")
Need: TypeAlias = Literal["judge", "env"]
"""What a strategy may ask for besides the policy it is made of: another policy that judges, or an env to look at."""


@dataclass(frozen=True)
class RegisteredScenario:
    """What is registered: how to make an env, and what to tell people about it.

    `agents` is the least and the greatest number of agents. `unavailable` says why the scenario cannot
    work on this machine and what would help; it is empty if it can.
    """

    id: str
    entry_point: str | Callable[..., MultiAgentEnv]
    description: str = ""
    agents: tuple[int, int] = (1, 1)
    unavailable: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisteredPolicy:
    """A policy that comes with a scenario or a family, and is seated as `scripted:NAME`."""

    name: str
    entry_point: str | Callable[..., Policy]
    description: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisteredStrategy:
    """What can be made of any model in one seat, and is seated as `MODEL,strategy=NAME`."""

    name: str
    agent: str
    entry_point: str | Callable[..., Policy]
    description: str = ""
    needs: tuple[Need, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisteredAnalysis:
    """An exact analysis of a scenario; see `marl_gem.analysis`."""

    entry_point: str | Callable[..., dict[str, float]]
    description: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


_scenarios: dict[str, RegisteredScenario] = {}
_analyses: dict[str, RegisteredAnalysis] = {}
_policies: dict[str, dict[str, RegisteredPolicy]] = {}
_strategies: dict[str, dict[tuple[str, str], RegisteredStrategy]] = {}  # by scenario or family, then by seat and name
_loaded: set[str] = set()


def register(
    id: str,
    entry_point: str | Callable[..., MultiAgentEnv],
    *,
    description: str = "",
    agents: int | tuple[int, int] = 1,
    unavailable: str = "",
    **options: Any,
) -> None:
    """Make a scenario known.

    Args:
        id: `family:Name-vN`.
        entry_point: a callable that returns an env, or where to find one: `"package.module:Class"`.
        description: one line for `marl-gem list`.
        agents: how many agents it hosts, or the least and the greatest number.
        unavailable: why it cannot work here, and what would help.
        options: passed to the entry point; `make` may override them.

    Raises:
        RegistryError: the id is taken, or has no family.
    """
    if id in _scenarios:
        raise RegistryError(f"{id!r} is registered already; choose another name or version")
    if not all(id.partition(":")):
        raise RegistryError(f"{id!r} is no scenario id; write family:Name-v0, for instance 'game:{id or 'Name-v0'}'")
    bounds = (agents, agents) if isinstance(agents, int) else agents
    _scenarios[id] = RegisteredScenario(id, entry_point, description, bounds, unavailable, options)


def get(id: str) -> RegisteredScenario:
    """The registered scenario with this id.

    Raises:
        UnknownScenario: there is none; the message names the nearest ids.
    """
    _load(id.partition(":")[0])
    if id not in _scenarios:
        raise UnknownScenario(_unknown(id))
    return _scenarios[id]


def make(id: str, **options: Any) -> MultiAgentEnv:
    """A fresh env of the scenario with this id.

    Args:
        id: for instance `"ta:TicTacToe-v0"`; `list()` tells them all.
        options: the scenario's own, such as `num_players`, and `max_steps`, which every scenario takes:
            after so many steps whoever is left is truncated.

    Raises:
        UnknownScenario, UnavailableScenario, InvalidOption, MissingPackage: each says what to do.
    """
    scenario = get(id)
    if scenario.unavailable:
        raise UnavailableScenario(f"{id} cannot work here: {scenario.unavailable}")
    options = {**scenario.options, **options}
    max_steps = options.pop("max_steps", None)
    if max_steps is not None and (not isinstance(max_steps, int) or max_steps < 1):
        raise InvalidOption(f"{id}: max_steps is a whole number of steps from 1 up, not {max_steps!r}")
    factory = _resolve(scenario.entry_point)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        known = [name for name in inspect.signature(factory).parameters if name not in scenario.options]
        raise InvalidOption(f"{id}: {error}. It takes: {', '.join([*known, 'max_steps'])}") from error
    env: MultiAgentEnv = factory(**options)
    env.scenario = id
    if max_steps is not None:
        env.max_steps = max_steps
    return env


def list(family: str | None = None) -> builtins.list[RegisteredScenario]:
    """All registered scenarios, or those of one family, sorted by id. A family that cannot be loaded is a warning."""
    for name in _families():
        try:
            _load(name)
        except RegistryError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    prefix = f"{family}:" if family else ""
    return sorted((s for s in _scenarios.values() if s.id.startswith(prefix)), key=lambda scenario: scenario.id)


def register_policy(
    scenario: str, name: str, entry_point: str | Callable[..., Policy], *, description: str = "", **arguments: Any
) -> None:
    """Make a policy known that comes with a scenario, to be seated as `scripted:NAME`.

        register_policy("tau", "oracle", "marl_gem.scenarios.tau.scripts:policy", script="oracle")

    Args:
        scenario: an id, or a family, whose scenarios then all offer it.
        name: what it is called there.
        entry_point: a callable that returns a policy, or where to find one: `"package.module:function"`. It is
            called with the scenario's id, the options that the scenario is made with, and `arguments` by name.
        description: one line about it.

    Raises:
        RegistryError: the name is taken, or is none.
    """
    offered = _policies.setdefault(scenario, {})
    if not name or name in offered:
        raise RegistryError(f"{scenario!r} needs another name than {name!r} for a policy; it offers {sorted(offered)}")
    offered[name] = RegisteredPolicy(name, entry_point, description, arguments)


def policies(id: str) -> dict[str, RegisteredPolicy]:
    """The policies that a scenario offers, by name: its own, then its family's.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    get(id)
    return {**_policies.get(id.partition(":")[0], {}), **_policies.get(id, {})}


def make_policy(id: str, name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """A scenario's own policy of this name.

    Args:
        id: the scenario.
        name: one of `policies(id)`.
        options: what the scenario is made with.

    Raises:
        UnknownScenario: there is no such scenario.
        RegistryError: it offers no such policy; the message names those it does.
    """
    script = _choose(name, policies(id), f"{id} has no scripted policy {name!r}")
    made_with = {**get(id).options, **(options or {})}
    policy: Policy = _resolve(script.entry_point)(id, made_with, **script.arguments)
    return policy


def register_strategy(
    scenario: str,
    agent: str,
    name: str,
    entry_point: str | Callable[..., Policy],
    *,
    description: str = "",
    needs: Sequence[Need] = (),
    **arguments: Any,
) -> None:
    """Make a strategy known: what makes more of a policy in one seat, to be seated as `MODEL,strategy=NAME`.

        register_strategy("tau", "user", "verify", "marl_gem.scenarios.tau.users:verify", needs=["judge"])

    Args:
        scenario: an id, or a family, whose scenarios then all offer it.
        agent: the seat. Another seat may offer something else by the same name.
        name: what it is called there.
        entry_point: a callable that takes a policy and returns one, or where to find it: `"package.module:function"`.
            It is called with the policy, and with `needs` and `arguments` by name.
        description: one line about it.
        needs: "judge", the policy that judges; "env", a fresh env of the scenario, only to look at.

    Raises:
        RegistryError: the name is taken in this seat, or is none; or it needs what there is not.
    """
    offered = _strategies.setdefault(scenario, {})
    if not name or (agent, name) in offered:
        taken = sorted(known for seat, known in offered if seat == agent)
        raise RegistryError(
            f"{scenario!r} needs another name than {name!r} for a strategy of {agent!r}; it offers {taken}"
        )
    if unknown := [need for need in needs if need not in get_args(Need)]:
        raise RegistryError(f"the strategy {name!r} needs {unknown}; there is only {', '.join(get_args(Need))}")
    offered[agent, name] = RegisteredStrategy(name, agent, entry_point, description, tuple(needs), arguments)


def strategies(id: str) -> dict[str, dict[str, RegisteredStrategy]]:
    """The strategies that a scenario offers, by seat and by name: its own, and its family's.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    get(id)
    by_seat: dict[str, dict[str, RegisteredStrategy]] = {}
    for (agent, name), offered in {**_strategies.get(id.partition(":")[0], {}), **_strategies.get(id, {})}.items():
        by_seat.setdefault(agent, {})[name] = offered
    return by_seat


def make_strategy(
    id: str,
    agent: str,
    name: str,
    policy: Policy,
    *,
    judge: Policy | None = None,
    options: Mapping[str, Any] | None = None,
) -> Policy:
    """What a strategy of this name makes of a policy in one seat of a scenario.

    Args:
        id: the scenario.
        agent: the seat.
        name: one of `strategies(id)[agent]`.
        policy: whose strategy it is to be.
        judge: judges, where the strategy needs that; by default the policy judges itself.
        options: what the scenario is made with.

    Raises:
        UnknownScenario: there is no such scenario.
        RegistryError: it offers no such strategy in this seat; the message names those it does.
        ConfigError: a judge is given, and nothing is judged; or the strategy cannot be made of this policy.
    """
    strategy = _choose(name, strategies(id).get(agent, {}), f"{id} has no strategy {name!r} for {agent!r}")
    given = dict(strategy.arguments)
    if "judge" in strategy.needs:
        given["judge"] = judge or policy
    elif judge:
        raise ConfigError(f"{id}: nobody judges in the strategy {name!r} of {agent!r}; leave the judge out")
    if "env" in strategy.needs:
        given["env"] = make(id, **(options or {}))
    made: Policy = _resolve(strategy.entry_point)(policy, **given)
    return made


def register_analysis(
    scenario: str, entry_point: str | Callable[..., dict[str, float]], *, description: str = "", **arguments: Any
) -> None:
    """Register a scenario's exact analysis of how well given policies play it.

        register_analysis("game:KuhnPoker-v0", "marl_gem.scenarios.games.kuhn_analysis:analyse")

    Args:
        scenario: its id.
        entry_point: a callable, or where to find one: `"package.module:function"`. It is called with a fresh env of
            the scenario, a `marl_gem.analysis.Strategy` and `arguments` by name, and returns numbers by name, such
            as `{"exploitability": 0.045}`.
        description: one line that says what the numbers mean.

    Raises:
        RegistryError: the scenario has an analysis already.
    """
    if scenario in _analyses:
        raise RegistryError(f"{scenario!r} has an analysis already; a scenario has one at most")
    _analyses[scenario] = RegisteredAnalysis(entry_point, description, arguments)


def analysis(id: str) -> RegisteredAnalysis | None:
    """The exact analysis of the scenario with this id; None if it has none, or no such scenario is registered."""
    family, colon, _ = id.partition(":")
    if colon:
        _load(family)
    return _analyses.get(id)


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """What the exact analysis of an env's scenario says of a strategy.

    Args:
        env: a fresh env, made with the options and wrappers that the policies are used with; it is reset.
        strategy: gives the probability of each legal action at a decision; see `marl_gem.analysis`.

    Returns:
        numbers by name, as the analysis' description explains them; empty if the scenario has no analysis.
    """
    registered = analysis(env.scenario)
    if registered is None:
        return {}
    numbers: dict[str, float] = _resolve(registered.entry_point)(env, strategy, **registered.arguments)
    return numbers


def _choose(name: str, offered: Mapping[str, Offered], lacking: str) -> Offered:
    """What is offered by this name.

    Raises:
        RegistryError: nothing is; the message opens with `lacking`, and names what there is.
    """
    if name in offered:
        return offered[name]
    near = difflib.get_close_matches(name, offered, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    told = f"it offers {', '.join(sorted(offered))}" if offered else "it offers none"
    raise RegistryError(f"{lacking}; {told}.{hint}")


def _families() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _load(family: str) -> None:
    """Import a family's plug-in, once."""
    if family not in _loaded and (point := _families().get(family)):
        tables: tuple[dict[Any, Any], ...] = (_scenarios, _policies, _strategies, _analyses)
        before: tuple[dict[Any, Any], ...] = (dict(_scenarios), _copy(_policies), _copy(_strategies), dict(_analyses))
        try:
            point.load()
        except Exception as error:
            for now, then in zip(tables, before, strict=True):
                now.clear()
                now.update(then)  # half a family would be registered twice at the next try
            raise RegistryError(
                f"the scenarios {family}:... of {point.value} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        _loaded.add(family)


def _copy(offers: Mapping[str, dict[Any, Offered]]) -> dict[str, dict[Any, Offered]]:
    return {scenario: dict(offered) for scenario, offered in offers.items()}


@functools.cache
def _resolve(entry_point: str | Callable[..., Made]) -> Callable[..., Made]:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _unknown(id: str) -> str:
    ids = {scenario.id.lower(): scenario.id for scenario in list()}
    near = difflib.get_close_matches(id.lower(), ids, n=3, cutoff=0.5)
    near = near or [known for known in ids if known.partition(":")[2].startswith(id.lower())][:3]
    hint = f" Did you mean {' or '.join(repr(ids[match]) for match in near)}?" if near else ""
    return f"There is no scenario {id!r}.{hint} `marl-gem list` shows all {len(ids)}."
