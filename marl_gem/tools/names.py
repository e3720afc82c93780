"""Tools by name, as a text, a configuration or a command line gives them.

    calculator                      a tool that was registered
    search:corpus=notes.jsonl       with values of its parameters
    my_tools.py:weather             a tool in a file, or a function
    my_package.tools:weather        the same in a module

Equal texts give the same tools, so that all envs of a process share what they have built.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from marl_gem.errors import ConfigError, MarlGemError
from marl_gem.faults import foreign_code, shown
from marl_gem.overrides import split_call
from marl_gem.tools.functions import Tool, tool

ToolSource: TypeAlias = str | Tool | Callable[..., Any]
"""Whatever names a tool or several: a text, a tool, or a function that `tool` makes one of."""


def register_tool(name: str, entry_point: str | ToolSource, *, description: str = "") -> None:
    """Register a tool, so that `--tool`, `ToolEnv` and a training file can name it.

        register_tool("weather", "my_package.tools:weather", description="The weather of a city.")

    Args:
        name: letters, digits, underscores and hyphens.
        entry_point: a tool, or a callable that gives a tool or a list of them and takes plain data by name; or where
            to find it, as `module:name`.
        description: one line.

    Raises:
        ConfigError: the name is taken, or holds other characters.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ConfigError(f"{name!r} is no name for a tool; use letters, digits, _ and -")
    if name in _registered:
        raise ConfigError(f"a tool {name!r} is registered already; choose another name")
    _registered[name] = entry_point, description


def registered_tools() -> dict[str, str]:
    """The names of all registered tools, sorted, with their descriptions."""
    return {name: description for name, (_, description) in sorted(_registered.items())}


def load_tools(sources: ToolSource | Iterable[ToolSource]) -> list[Tool]:
    """The tools that are named.

    Args:
        sources: a text, a tool or a function, or several of them.

    Raises:
        ConfigError: there is no such tool, it cannot be made, or two tools have the same name.
        MissingPackage: a tool needs a package that is not installed.
    """
    given = [sources] if isinstance(sources, str) or callable(sources) or isinstance(sources, Tool) else sources
    if not isinstance(given, Iterable):
        raise ConfigError(f"a tool is a text, a Tool or a function, not {shown(given)}")
    tools = [one_tool for source in given for one_tool in _load(source)]
    names = [one_tool.name for one_tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"there are two tools with the name {twice[0]!r}")
    return tools


def _load(source: Any) -> list[Tool]:
    if isinstance(source, Tool):
        return [source]
    if callable(source):
        try:
            return [tool(source)]
        except TypeError as error:
            raise ConfigError(str(error)) from error
    if not isinstance(source, str):
        raise ConfigError(f"a tool is a text, a Tool or a function, not {shown(source)}")
    with _lock:
        if source not in _loaded:
            _loaded[source] = _make(source)
        return _loaded[source]


def _make(text: str) -> list[Tool]:
    name, colon, rest = text.partition(":")
    if name in _registered:
        entry_point, values = _registered[name][0], read_values(rest, text) if colon else {}
        return _as_tools(_resolve(entry_point, text), values, text)
    if colon and "=" not in rest:
        return _as_tools(find_object(name, rest, text), {}, text)
    near = difflib.get_close_matches(name, _registered, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"there is no tool {name!r}; there are {', '.join(registered_tools())}, and path/to/file.py:name or "
        f"module:name for others.{hint}"
    )


def read_values(rest: str, text: str) -> dict[str, Any]:
    """The values in `corpus=notes.jsonl,top=3`."""
    first, pairs = split_call(f"tool,{rest}")
    if first != "tool" or not pairs or any(not name for name, _ in pairs):
        raise ConfigError(f"the tool {text!r}: write name:parameter=value,parameter=value")
    return dict(pairs)


def _resolve(entry_point: str | ToolSource, text: str) -> Any:
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    return find_object(module, name, text)


def find_object(module: str, name: str, text: str) -> Any:
    """What stands under a name in a module or a file."""
    with foreign_code(f"the tool {text!r} cannot be loaded", ConfigError):
        found: Any = _import_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    return found


def _import_file(path: Path) -> Any:
    name = f"marl_gem_tools_{path.resolve().as_posix().replace('/', '_').removesuffix('.py')}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ConfigError(f"there is no file {str(path)!r}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _as_tools(found: Any, values: dict[str, Any], text: str) -> list[Tool]:
    """The tools that were found, or that a factory makes with these values."""
    if not isinstance(found, Tool) and getattr(found, "makes_tools", False):
        with foreign_code(f"the tool {text!r} cannot be made", ConfigError, but=(MarlGemError,)):
            found = found(**values)
        values = {}
    if values:
        raise ConfigError(f"the tool {text!r} takes no values")
    return load_tools(found)


def makes_tools(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that gives a tool or several, so that it is called and does not become one itself."""
    function.makes_tools = True  # type: ignore[attr-defined]
    return function


_registered: dict[str, tuple[str | ToolSource, str]] = {}
_loaded: dict[str, list[Tool]] = {}
_lock = threading.RLock()

register_tool("calculator", "marl_gem.tools.calculator:calculator", description="Arithmetic with exact fractions.")
register_tool("python", "marl_gem.tools.python:python", description="Runs Python code in a sandbox.")
register_tool("shell", "marl_gem.tools.shell:shell", description="Runs shell commands in a sandbox.")
register_tool("search", "marl_gem.tools.search:search", description="Finds passages of a corpus by BM25.")
register_tool("mcp", "marl_gem.tools.mcp:mcp", description="The tools of an MCP server.")
