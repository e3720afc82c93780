"""Where registrations are kept, and how plug-ins fill the tables.

Every table is a dict. A family of scenarios is a plug-in: an entry point of the group `marl_gem.scenarios`, named like
the family, whose module registers what it has when the family is first asked for.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from marl_gem.errors import RegistryError
from marl_gem.faults import description, foreign_code

GROUP = "marl_gem.scenarios"
"""The group of entry points that plug-ins belong to."""

Entry = TypeVar("Entry")
Made = TypeVar("Made")

_tables: list[dict[Any, Any]] = []
_loaded: dict[str, bool] = {}  # families whose plug-in has been imported


def new_table() -> dict[Any, Any]:
    """An empty table, which `preserved` and the loading of plug-ins restore."""
    table: dict[Any, Any] = {}
    _tables.append(table)
    return table


class Offers(Generic[Entry]):
    """What scenarios and families offer by name, to everybody or in the seat of one agent.

    Args:
        kind: what the entries are called in messages.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._table: dict[tuple[str, str, str], Entry] = new_table()

    def add(self, scenario: str, name: str, entry: Entry, agent: str = "") -> None:
        """Keep an entry of a scenario or a family.

        Raises:
            RegistryError: the name is empty or taken.
        """
        if not name or (scenario, agent, name) in self._table:
            taken = sorted(known for owner, seat, known in self._table if (owner, seat) == (scenario, agent))
            seat = f" of {agent!r}" if agent else ""
            raise RegistryError(
                f"{scenario!r} needs another name than {name!r} for a {self._kind}{seat}; it offers {taken}"
            )
        self._table[scenario, agent, name] = entry

    def by_agent(self, id: str) -> dict[str, dict[str, Entry]]:
        """What a scenario offers, by agent and name; its own entries hide its family's."""
        found: dict[str, dict[str, Entry]] = {}
        for owner in (id.partition(":")[0], id):
            for (scenario, agent, name), entry in self._table.items():
                if scenario == owner:
                    found.setdefault(agent, {})[name] = entry
        return found

    def get(self, id: str, name: str, agent: str = "") -> Entry:
        """The entry with this name.

        Raises:
            RegistryError: there is none; the message names those that there are.
        """
        seat = f" for {agent!r}" if agent else ""
        return choose(name, self.by_agent(id).get(agent, {}), f"{id} has no {self._kind} {name!r}{seat}; it offers")


def choose(name: str, offered: Mapping[str, Entry], lacking: str) -> Entry:
    """The entry with this name.

    Raises:
        RegistryError: there is none; the message opens with `lacking`, lists the names and suggests the nearest.
    """
    if name in offered:
        return offered[name]
    raise RegistryError(f"{lacking} {', '.join(sorted(offered)) or 'none'}.{did_you_mean(name, offered)}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question to append to a message; empty if nothing is near."""
    near = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


@contextmanager
def preserved() -> Iterator[None]:
    """For tests: what is registered within is forgotten afterwards. All plug-ins are loaded before."""
    _load_families_once(tuple(sys.path))
    before = _snapshot()
    try:
        yield
    finally:
        _restore(before)


@functools.lru_cache(maxsize=1)
def _load_families_once(path: tuple[str, ...]) -> None:
    """Import all plug-ins; their modules are imported once, so what they register must not be forgotten.

    They are searched for once for each `sys.path`: reading what is installed takes 12 ms, and tests come by thousands.
    """
    load_families()


def families() -> dict[str, importlib.metadata.EntryPoint]:
    """The plug-ins that are installed, by family."""
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def load_family(family: str) -> None:
    """Import a family's plug-in, once.

    Raises:
        RegistryError: it cannot be imported; nothing of it is registered.
    """
    if family not in _loaded and (point := families().get(family)):
        _load(family, point)


def load_families() -> list[RegistryError]:
    """Import all plug-ins, each once; gives the errors of those that cannot be imported."""
    errors = []
    for family, point in families().items():
        try:
            _load(family, point)
        except RegistryError as error:
            errors.append(error)
    return errors


def _load(family: str, point: importlib.metadata.EntryPoint) -> None:
    if family in _loaded:
        return
    before = _snapshot()
    try:
        with foreign_code(f"the scenarios {family}:... of {point.value} cannot be loaded", RegistryError):
            point.load()
    except BaseException:
        _restore(before)  # half a family would be registered twice at the next try
        raise
    _loaded[family] = True


def import_from_here(module: str) -> ModuleType:
    """Import a module that is installed or lies in the current folder.

    Raises:
        ImportError: there is no such module; whatever else the module raises.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(module)


@functools.cache
def resolve(entry_point: str | Callable[..., Made]) -> Callable[..., Made]:
    """The callable itself, or the one that `"package.module:name"` names.

    Raises:
        ImportError, AttributeError: there is no such module or name.
        RegistryError: the module ends the program.
    """
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    try:
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    except SystemExit as error:
        raise RegistryError(f"{entry_point} cannot be imported: {description(error)}") from error


def _snapshot() -> list[dict[Any, Any]]:
    return [dict(table) for table in (*_tables, _loaded)]


def _restore(before: list[dict[Any, Any]]) -> None:
    for table, earlier in zip((*_tables, _loaded), before, strict=True):
        table.clear()
        table.update(earlier)
    resolve.cache_clear()
