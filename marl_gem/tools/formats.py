"""The ways in which a response may call tools.

    tool_call    <tool_call>{"name": "search", "arguments": {"query": "Rome"}}</tool_call>: what models with native
                 calls write, and what their servers' calls are written as
    tags         <search>Rome</search>, a tag for each tool (GEM's); the text is its first argument
    fenced       a block of code between ``` marks with the language python, or bash and sh for the tool shell (GEM's)
    mcp          <tool_call><tool_name>search</tool_name><arguments>{"query": "Rome"}</arguments></tool_call> (GEM's)

A tag or block that is not closed reaches to the end of the text, so that a stop sequence may end it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from marl_gem.errors import ConfigError
from marl_gem.tools.calls import CLOSE, OPEN, BrokenCall, read_calls
from marl_gem.tools.signature import usage
from marl_gem.types import ToolCall, ToolSpec, read_json

Calls: TypeAlias = list[ToolCall | BrokenCall]


class CallFormat(NamedTuple):
    """A way to write calls."""

    read: Callable[[str, Mapping[str, ToolSpec]], Calls]
    """The calls in a text, in order, from the tools by name. Takes any text."""

    explain: Callable[[Sequence[ToolSpec]], str]
    """How calls are written, for the instructions of an agent; empty for native calls, which models know."""


def call_format(name: str) -> CallFormat:
    """A format by its name.

    Raises:
        ConfigError: there is no such format.
    """
    if name not in FORMATS:
        raise ConfigError(f"there is no format of calls {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def _read_native(text: str, tools: Mapping[str, ToolSpec]) -> Calls:
    return read_calls(text).calls if OPEN in text else []


def _read_tags(text: str, tools: Mapping[str, ToolSpec]) -> Calls:
    names = "|".join(map(re.escape, tools))
    opening = re.compile(f"<({names})>") if names else None
    calls: Calls = []
    position = 0
    while opening and (tag := opening.search(text, position)):
        closing = f"</{tag[1]}>"
        end = text.find(closing, tag.end())
        end, position = (len(text), len(text)) if end < 0 else (end, end + len(closing))
        calls.append(_call_with_text(tools[tag[1]], text[tag.end() : end].strip()))
    return calls


_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n?", re.MULTILINE)
_LANGUAGES = {"py": "python", "python3": "python", "bash": "shell", "sh": "shell"}


def _read_fenced(text: str, tools: Mapping[str, ToolSpec]) -> Calls:
    calls: Calls = []
    fence = _FENCE.search(text)
    while fence:
        name = _LANGUAGES.get(fence[1], fence[1])
        end = text.find("```", fence.end())
        code = text[fence.end() : end if end >= 0 else len(text)]
        if name in tools:
            calls.append(_call_with_text(tools[name], code.strip("\n")))
        fence = _FENCE.search(text, end + 3) if end >= 0 else None
    return calls


_TOOL_NAME = re.compile(r"<tool_name>([^<]*)</tool_name>")
_ARGUMENTS = re.compile(r"<arguments>(.*)</arguments>", re.DOTALL)


def _read_mcp(text: str, tools: Mapping[str, ToolSpec]) -> Calls:
    calls: Calls = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        end = text.find(CLOSE, start)
        inner = text[start + len(OPEN) : end if end >= 0 else len(text)]
        position = end + len(CLOSE) if end >= 0 else len(text)
        calls.append(_mcp_call(inner))
    return calls


def _mcp_call(text: str) -> ToolCall | BrokenCall:
    name, written = _TOOL_NAME.search(text), _ARGUMENTS.search(text)
    if not name:
        return BrokenCall(text, "a call is <tool_name>...</tool_name><arguments>{...}</arguments>")
    try:
        arguments = read_json(written[1]) if written else {}
    except ValueError as error:
        return BrokenCall(text, f"the arguments are not JSON: {error}")
    if not isinstance(arguments, dict):
        return BrokenCall(text, "the arguments must be an object, with a name for each")
    return ToolCall(name[1].strip(), arguments)


def _call_with_text(tool: ToolSpec, text: str) -> ToolCall:
    """A call whose first argument is a text."""
    names = [*tool.parameters.get("required", ()), *tool.parameters.get("properties", {})]
    return ToolCall(tool.name, {names[0]: text} if names else {})


def _explained(lines: Sequence[str], tools: Sequence[ToolSpec]) -> str:
    listed = [f"- {usage(tool)}: {' '.join(tool.description.split())}" for tool in tools]
    return "\n".join([*lines, "The answer comes back to you, and it stays your turn.", *listed])


def _explain_nothing(tools: Sequence[ToolSpec]) -> str:
    return ""


def _explain_tags(tools: Sequence[ToolSpec]) -> str:
    first = tools[0].name
    return _explained(
        [f"You may use tools: write <{first}>...</{first}>, with the first argument between the tags."], tools
    )


def _explain_fenced(tools: Sequence[ToolSpec]) -> str:
    return _explained(
        ["You may run code: write it between ```python and ```, or ```bash and ``` for the shell."], tools
    )


def _explain_mcp(tools: Sequence[ToolSpec]) -> str:
    written = "<tool_call><tool_name>NAME</tool_name><arguments>{...}</arguments></tool_call>"
    return _explained([f"You may use tools: write {written}, with the arguments as JSON."], tools)


FORMATS = {
    "tool_call": CallFormat(_read_native, _explain_nothing),
    "tags": CallFormat(_read_tags, _explain_tags),
    "fenced": CallFormat(_read_fenced, _explain_fenced),
    "mcp": CallFormat(_read_mcp, _explain_mcp),
}
