"""Tools of a domain: functions with a schema, called as in the official benchmark.

    @tool
    def get_order_details(db: Session, order_id: str) -> str:
        \"\"\"Look up an order.

        Args:
            order_id: Its number, such as '#W0000000'.
        \"\"\"
        ...

The first parameter is the episode's data; the model gives the others. The caller sees the returned text, or
`Error: <text of the exception>`. Source of the behaviour: sierra-research/tau-bench, `envs/base.py`.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from marl_gem.scenarios.tau.database import Session, copy_json
from marl_gem.types import ToolSpec

_LEVELS = 100
"""The most levels of nesting in arguments, since the records that a tool stores are copied recursively."""

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}


class Outcome(NamedTuple):
    """The result of a call: the text that the caller sees, and a note where the official code would raise."""

    text: str
    note: str = ""


class Refused(Exception):
    """Raised by tools to refuse a call: the caller sees `Error: <message>`; earlier changes of the data stay."""


@dataclass(frozen=True)
class Tool:
    """A function of the data and the model's arguments, with its schema."""

    spec: ToolSpec
    function: Callable[..., str | None]
    parameters: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.spec.name


def tool(function: Callable[..., str | None]) -> Tool:
    """A tool from a function: its name, docstring and annotations become the schema.

    Args:
        function: takes the `Session` first, then the model's arguments, and returns the text for the caller.

    Raises:
        TypeError: a parameter has no annotation, or one without a JSON type.
    """
    parameters = tuple(inspect.signature(function).parameters)[1:]
    hints = typing.get_type_hints(function)
    if bare := [name for name in parameters if name not in hints]:
        raise TypeError(f"{function.__name__}: {', '.join(bare)} lacks an annotation, as in {bare[0]}: str")
    summary, described = _read_docstring(inspect.getdoc(function) or "")
    properties = {name: _schema(hints[name]) | _described(described.get(name, "")) for name in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return Tool(ToolSpec(function.__name__, summary, schema), function, parameters)


def call(tools: Mapping[str, Tool], session: Session, name: str, arguments: Mapping[str, Any], domain: str) -> Outcome:
    """Call a tool. Never raises.

    Args:
        tools: by name.
        session: the episode's data.
        name: the tool's name; an unknown one gives an error text.
        arguments: by name, JSON values.
        domain: the official domain's name, which is in one of its error texts.
    """
    if name not in tools:
        return Outcome(f"Unknown action {name}")
    tool = tools[name]
    try:
        if complaint := _misfit(tool, arguments, domain):
            return Outcome(f"Error: {complaint}")
        if not _is_flat(arguments, _LEVELS):
            return Outcome(f"Error: arguments nested in more than {_LEVELS} levels")
        result = tool.function(session, **copy_json(dict(arguments)))  # a tool may store them
    except Exception as error:
        return Outcome(f"Error: {_as_text(error, str)}")
    if not isinstance(result, str):
        note = f"{name} returned {_as_text(result, repr)}, at which the official environment breaks off"
        return Outcome(f"Error: {name} gave no answer", note)
    return Outcome(result)


def _is_flat(value: Any, levels: int) -> bool:
    """Whether a JSON value has at most this many levels; iterative, so that any depth is accepted."""
    level = [value]
    for _ in range(levels):
        parts = [part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer)]
        level = [part for part in parts if isinstance(part, (dict, list))]
        if not level:
            return True
    return False


def _as_text(value: Any, write: Callable[[Any], str]) -> str:
    """A value as text; the name of its type if Python cannot write it, such as a number of 5,000 digits."""
    try:
        return write(value)
    except Exception:
        return type(value).__name__


def _misfit(tool: Tool, arguments: Mapping[str, Any], domain: str) -> str:
    """Python 3.11's error for a call of a method `invoke(data, ...)` with these arguments; empty if they fit."""
    method = f"{''.join(part.capitalize() for part in tool.name.split('_'))}.invoke()"
    if "data" in arguments:
        return f"tau_bench.envs.{domain}.tools.{tool.name}.{method} got multiple values for keyword argument 'data'"
    for name in arguments:
        if name not in tool.parameters:
            return f"{method} got an unexpected keyword argument {name!r}"
    missing = [repr(name) for name in tool.parameters if name not in arguments]
    if not missing:
        return ""
    names = (
        missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])}{',' * (len(missing) > 2)} and {missing[-1]}"
    )
    return f"{method} missing {len(missing)} required positional argument{'s' * (len(missing) > 1)}: {names}"


def _schema(hint: Any) -> dict[str, Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if (origin or hint) is list and inner:
        return {"type": "array", "items": _schema(inner[0])}
    if (origin or hint) not in _TYPES:
        raise TypeError(f"{hint!r} has no JSON type; use str, int, float, bool, dict, list[...] or Literal[...]")
    return {"type": _TYPES[origin or hint]}


def _described(text: str) -> dict[str, str]:
    return {"description": text} if text else {}


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The part before `Args:`, and the description of each argument."""
    summary, _, rest = text.partition("\nArgs:\n")
    described = {name: " ".join(text.split()) for name, text in re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", rest, re.M)}
    return " ".join(summary.split()), described
