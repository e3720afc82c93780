"""Loads a user's domain: a folder that holds its tools beside the data, the policy and the tasks.

tools.py         functions under `@tool`, listed in `TOOLS`
other files      see `domain.py`

Loading runs tools.py and then every task's reference calls. A call that is refused is nearly always a mistake in the
task, and a tool that changes a record it only read would change other episodes. Official domains are not checked: it
takes time, and some of their reference calls are refused.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from marl_gem.errors import RecordError
from marl_gem.scenarios.tau.database import canonical
from marl_gem.scenarios.tau.domain import Domain, Task, load_domain
from marl_gem.scenarios.tau.tool import Tool
from marl_gem.tools.calls import write_call

_PARTS = {
    "tools.py": "its tools",
    "policy.md": "the assistant's instructions",
    "data/*.json": "its tables",
    "tasks_*.json": "its tasks",
}
_SHOWN = 5
"""The most mistakes in tasks that one error message lists."""


def load_folder(folder: str | Path) -> Domain:
    """Read a domain from its folder, whose name is the domain's.

    `tools.py` is run as a module with a unique name: the folder need not be on `sys.path`, and the modules of two
    domains do not conflict.

    Raises:
        RecordError: a part is missing or wrong; the message gives the file, the place in it and the error.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RecordError(f"there is no folder {str(folder)!r}")
    missing = [f"{pattern} ({what})" for pattern, what in _PARTS.items() if not any(folder.glob(pattern))]
    if missing:
        raise RecordError(f"{folder} is no domain yet: it has no {', no '.join(missing)}. See docs/tau-domains.md")
    tools = _import(folder / "tools.py")
    _check_tools(tools, folder / "tools.py")
    name = folder.resolve().name
    domain = load_domain(folder, tools, name=name, official=name)
    _try_tasks(domain, folder)
    return domain


# tools.py


def _import(file: Path) -> ModuleType:
    """Run a file as a module that is named after its path."""
    path = file.resolve()
    name = f"_tau_domain_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, for one, look for it there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RecordError(f"{file}{_line(error, str(path))} does not run: {type(error).__name__}: {error}") from error
    return module


def _line(error: Exception, path: str) -> str:
    """The line of the file that raised the error, if one did."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f", line {error.lineno},"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}," if lines else ""


def _check_tools(module: ModuleType, file: Path) -> None:
    if not getattr(module, "TOOLS", ()):
        raise RecordError(f"{file} has no TOOLS; end it with TOOLS = (this_tool, that_tool)")
    for name in ("TOOLS", "USER_TOOLS", "TERMINATING"):
        if not isinstance(getattr(module, name, ()), (tuple, list, set, frozenset)):
            raise RecordError(f"{file}: {name} is no tuple; write {name} = (one,) with a comma, even for a single one")
    for name in ("TOOLS", "USER_TOOLS"):
        names: set[str] = set()
        for tool in getattr(module, name, ()):
            if not isinstance(tool, Tool):
                raise RecordError(f"{file}: {name} holds {tool!r}, which is no tool; write @tool above its function")
            if tool.name in names:
                raise RecordError(f"{file}: {name} holds two tools called {tool.name}")
            names.add(tool.name)
    unknown = set(getattr(module, "TERMINATING", ())) - {tool.name for tool in module.TOOLS}
    if unknown:
        raise RecordError(f"{file}: TERMINATING names {sorted(map(str, unknown))}, not in TOOLS; give names of tools")


# Tasks


def _try_tasks(domain: Domain, folder: Path) -> None:
    """Make every task's reference calls; RecordError if one fails or a tool changes shared records."""
    mistakes = list(_mistakes(domain))
    if changed := _changed(domain):
        raise RecordError(
            f"{folder / 'tools.py'}: a tool has changed what it only read: {', '.join(changed[:_SHOWN])}. All episodes "
            "share that; change what db[table].edit(key) gives"
        )
    if mistakes:
        more = [f"and {len(mistakes) - _SHOWN} more"] * (len(mistakes) > _SHOWN)
        raise RecordError("\n  ".join([f"{folder} has tasks that cannot be solved:", *mistakes[:_SHOWN], *more]))


def _changed(domain: Domain) -> list[str]:
    """The shared records that differ from what was loaded."""
    database = domain.database
    return [
        f"{name} {key!r}"
        for name, records in database.tables.items()
        for key in records.keys() | database.texts[name].keys()
        if key not in records or canonical(records[key]) != database.texts[name].get(key)
    ]


def _mistakes(domain: Domain) -> Iterator[str]:
    """Each task that has a mistake, with the mistake."""
    for split, tasks in domain.splits.items():
        for number, task in enumerate(tasks):
            if mistake := _mistake(domain, task):
                yield f"tasks_{split}.json, task {number}: {mistake}"


def _mistake(domain: Domain, task: Task) -> str:
    """The first mistake in a task; empty if all its reference calls succeed."""
    for table in task.data:
        if table not in domain.database.tables:
            return f"its data has a table {table!r}, which the domain has not; write {{}} to data/{table}.json"
    session = domain.session(task)
    for action in task.actions:
        by_user = action.name not in domain.tools
        if by_user and action.name not in domain.user_tools:
            near = difflib.get_close_matches(action.name, [*domain.tools, *domain.user_tools], 1)
            return f"it calls {action.name!r}, which is no tool" + (f"; did you mean {near[0]!r}?" if near else "")
        answer = domain.call(session, action.name, action.arguments, by_user=by_user).text
        if answer.startswith("Error: "):
            return (
                f"its own call {write_call(action.name, action.arguments)} is answered {answer!r}; mend it or drop it"
            )
    return ""
