"""Scenarios: from an id to a live env."""

from __future__ import annotations

import builtins
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from marl_gem.errors import (
    InvalidOption,
    MarlGemError,
    RegistryError,
    ScenarioFault,
    UnavailableScenario,
    UnknownScenario,
)
from marl_gem.faults import description, is_interrupt
from marl_gem.registry.tables import import_from_here, load_families, load_family, new_table, resolve
from marl_gem.registry.wrappers import WrapperSpec
from marl_gem.types import TurnOrder

if TYPE_CHECKING:  # to list scenarios takes no envs, which take long to import
    from marl_gem.env import MultiAgentEnv


@dataclass(frozen=True)
class RegisteredScenario:
    """A scenario that can be made, and what to tell people about it.

    `agents` is the least and the greatest number of agents, `turn_order` as in `Metadata`. `unavailable` says why the
    scenario cannot work on this machine and what would help; it is empty if it can. `options` are passed to the entry
    point.
    """

    id: str
    entry_point: str | Callable[..., MultiAgentEnv]
    description: str = ""
    agents: tuple[int, int] = (1, 1)
    turn_order: TurnOrder | None = None
    unavailable: str = ""
    options: dict[str, Any] = field(default_factory=dict)


_scenarios: dict[str, RegisteredScenario] = new_table()


def register(
    id: str,
    entry_point: str | Callable[..., MultiAgentEnv],
    *,
    description: str = "",
    agents: int | tuple[int, int] = 1,
    turn_order: TurnOrder | None = None,
    unavailable: str = "",
    **options: Any,
) -> None:
    """Register a scenario.

    Args:
        id: `family:Name-vN`.
        entry_point: a callable that returns an env, or where to find one: `"package.module:Class"`.
        description: one line for `marl-gem list`.
        agents: how many agents it hosts, or the least and the greatest number.
        turn_order: "sequential", "parallel" or "mixed", for `marl-gem list`; the env's metadata must say the same.
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
    _scenarios[id] = RegisteredScenario(id, entry_point, description, bounds, turn_order, unavailable, options)


def get(id: str) -> RegisteredScenario:
    """The scenario that is registered under this id.

    Raises:
        UnknownScenario: there is none; the message names the nearest ids.
    """
    load_family(id.partition(":")[0])
    if id not in _scenarios:
        raise UnknownScenario(_unknown(id))
    return _scenarios[id]


def find(text: str) -> RegisteredScenario:
    """The scenario with this id, or an env's class in Python code: `module:Class` or `path/to/file.py:Class`.

    Modules are found as Python finds them, and in the working directory. Their code runs: call this with what a person
    asked for, and `get` with what stands in a file of records.

    Raises:
        UnknownScenario: there is neither such an id nor such a module or file.
        RegistryError: the code cannot be imported, or has no such class.
    """
    try:
        return get(text)
    except UnknownScenario as unknown:
        return RegisteredScenario(text, _imported(text, "class", unknown))


def load_function(text: str) -> Callable[..., Any]:
    """A function, or whatever can be called, in Python code: `module:name` or `path/to/file.py:name`.

    Modules are found as Python finds them, and in the working directory. Their code runs.

    Raises:
        RegistryError: there is no such module, file or function, or the code cannot be imported.
    """
    form = UnknownScenario(f"{text!r} names no function; write module:name or path/to/file.py:name.")
    return _imported(text, "function", form)


def _imported(text: str, kind: str, unknown: UnknownScenario) -> Callable[..., Any]:
    """What `module:name` or `path/to/file.py:name` names. `unknown` is raised if the text has not this form."""
    where, _, name = text.rpartition(":")
    if not name.isidentifier():
        raise unknown
    if where.endswith(".py"):
        module = _import_file(where, unknown)
    elif where and all(part.isidentifier() for part in where.split(".")):
        module = _import_module(where, unknown)
    else:
        raise unknown
    found = getattr(module, name, None)
    if not callable(found):
        raise RegistryError(f"{where} has no {kind} {name!r}")
    return found  # type: ignore[no-any-return]


def make(id: str, *, wrappers: Sequence[str | Mapping[str, Any] | WrapperSpec] = (), **options: Any) -> MultiAgentEnv:
    """A fresh env of a scenario.

        marl_gem.make("ta:TicTacToe-v0", wrappers=["time_limit=20", "reward_scale=0.5"], max_steps=50)

    Args:
        id: for instance `"ta:TicTacToe-v0"`; `list()` gives them all. Also `"module:Class"` and
            `"path/to/file.py:Class"`, an env's class in Python code.
        wrappers: wrappers by name with their values, the innermost first; see `registry.WrapperSpec`.
        options: the scenario's own, such as `num_players`, and `max_steps`, which every scenario takes:
            after so many steps whoever is left is truncated.

    Raises:
        UnknownScenario, UnavailableScenario, InvalidOption, MissingPackage: each says what to do.
        RegistryError: a wrapper is unknown, or what was made is no env.
        ScenarioFault: the scenario's constructor raised, and no options were given.
    """
    scenario = find(id)
    if scenario.unavailable:
        raise UnavailableScenario(f"{id} cannot work here: {scenario.unavailable}")
    env = _make(scenario, options)
    for wrapper in wrappers:
        env = WrapperSpec.parse(wrapper).wrap(env)
    return env


def list(family: str | None = None) -> builtins.list[RegisteredScenario]:
    """All registered scenarios, or those of one family, sorted by id. A family that cannot be loaded is a warning."""
    for error in load_families():
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    prefix = f"{family}:" if family else ""
    return sorted((s for s in _scenarios.values() if s.id.startswith(prefix)), key=lambda scenario: scenario.id)


def options(id: str) -> dict[str, Any]:
    """The options that `make` takes for a scenario besides `max_steps`, with their defaults; `...` for those without.

    What the entry point needs and the registration gives is no option.

    Raises:
        UnknownScenario: there is no such scenario.
        RegistryError: its code cannot be imported.
    """
    scenario = find(id)
    try:
        parameters = inspect.signature(resolve(scenario.entry_point)).parameters.values()
    except (ImportError, AttributeError) as error:
        raise RegistryError(f"{id} cannot be imported: {error}") from error
    found: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.default is not inspect.Parameter.empty:
            found[parameter.name] = scenario.options.get(parameter.name, parameter.default)
        elif parameter.name not in scenario.options and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[parameter.name] = ...
    return found


def _make(scenario: RegisteredScenario, given: dict[str, Any]) -> MultiAgentEnv:
    from marl_gem.env import MultiAgentEnv

    id, options = scenario.id, {**scenario.options, **given}
    max_steps = options.pop("max_steps", None)
    if max_steps is not None and (type(max_steps) is not int or max_steps < 1):
        raise InvalidOption(f"{id}: max_steps is a whole number of steps from 1 up, not {max_steps!r:.80}")
    factory = resolve(scenario.entry_point)
    try:
        _signature(factory).bind(**options)
    except TypeError as error:
        known = [name for name in _signature(factory).parameters if name not in scenario.options]
        raise InvalidOption(f"{id}: {error}. It takes: {', '.join([*known, 'max_steps'])}") from error
    try:
        env: MultiAgentEnv = factory(**options)
    except MarlGemError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        _check_types(id, factory, options)
        kind = InvalidOption if given else ScenarioFault
        values = f" with {', '.join(f'{name}={value!r:.80}' for name, value in given.items())}" if given else ""
        raise kind(f"{id} cannot be made{values}: {description(error)}") from error
    if not issubclass(type(env), MultiAgentEnv):
        raise RegistryError(f"{id} makes a {type(env).__name__}, not a MultiAgentEnv")
    _check_types(id, factory, options)  # now that the scenario has had its say: its own messages are better
    env.scenario = id
    if max_steps is not None:
        env.max_steps = max_steps
    return env


def _check_types(id: str, factory: Callable[..., MultiAgentEnv], options: Mapping[str, Any]) -> None:
    """Compare plain values, which texts and files give, with the types that the factory's signature names.

    Raises:
        InvalidOption: a value is of another type.
    """
    types = _types(factory) if options else {}
    for name, value in options.items():
        if name in types and isinstance(value, (bool, int, float, str, builtins.list, dict)):
            try:
                msgspec.convert(value, types[name])
            except msgspec.ValidationError as error:
                text = f"{id}: the option {name} cannot be {value!r:.80}: {error}"
                raise InvalidOption(text.replace("`null`", "nothing")) from error
            except TypeError:  # a type that holds no plain data alone, such as a callable
                pass


@functools.lru_cache(1024)
def _signature(factory: Callable[..., MultiAgentEnv]) -> inspect.Signature:
    return inspect.signature(factory)


@functools.lru_cache(1024)
def _types(factory: Callable[..., MultiAgentEnv]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except Exception:  # a name that is imported for type checkers alone
        return {}


def _import_module(name: str, unknown: UnknownScenario) -> ModuleType:
    try:
        return import_from_here(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UnknownScenario(f"{unknown} Nor is there a module {name!r} in {Path.cwd()} or installed.") from error
        raise RegistryError(f"the module {name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise RegistryError(f"the module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(path: str, unknown: UnknownScenario) -> ModuleType:
    """The module in a file, imported once in a process."""
    file = Path(path).resolve()
    if not file.is_file():
        raise UnknownScenario(f"there is no file {path}") from unknown
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"  # files may have equal names
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RegistryError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _unknown(id: str) -> str:
    ids = {scenario.id.lower(): scenario.id for scenario in list()}
    near = difflib.get_close_matches(id.lower(), ids, n=3, cutoff=0.5)
    near = near or [known for known in ids if known.partition(":")[2].startswith(id.lower())][:3]
    hint = f" Did you mean {' or '.join(repr(ids[match]) for match in near)}?" if near else ""
    if id.endswith(".py"):
        hint = f" For a file, name the class, too: {id}:Class."
    return f"There is no scenario {id!r}.{hint} `marl-gem list` shows all {len(ids)}."
