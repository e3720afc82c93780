"""Calls of tools, as they stand in an action: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

This is the one position that reads and writes them. A back end whose server tells calls apart from text
writes them with `write_call`; an env that offers tools reads them with `read_calls`. The format is that of
the Hermes and Qwen chat templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from marl_gem.types import ToolCall, read_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class BrokenCall(NamedTuple):
    """Something between the tags that is no call, and what is wrong with it, in words a model can use."""

    text: str
    reason: str


class Action(NamedTuple):
    """An action taken apart: what is said, and the calls in their order."""

    text: str
    calls: list[ToolCall | BrokenCall]


def read_calls(text: str) -> Action:
    """Take an action apart. Never raises, and takes time linear in the text's length.

    What stands outside the tags is what is said, less the white space around it. A tag that is never
    closed reaches to the end of the text. Arguments may also be given as JSON within a string, as the
    OpenAI API writes them.
    """
    outside: list[str] = []
    calls: list[ToolCall | BrokenCall] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        outside.append(text[position:start])
        end = text.find(CLOSE, start)
        inner = text[start + len(OPEN) : end if end >= 0 else len(text)]
        calls.append(_read_call(inner))
        position = end + len(CLOSE) if end >= 0 else len(text)
    outside.append(text[position:])
    return Action("".join(outside).strip(), calls)


def write_call(name: str, arguments: dict[str, Any] | str) -> str:
    """A call as it stands in an action. Arguments that are text are taken as JSON, broken or not."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    call = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {written or "{}"}}}'
    call = call.replace("</", "<\\/")  # the same JSON, and no closing tag within it
    return OPEN + call + CLOSE


def ids_of_calls(given: Sequence[str], count: int, made: Callable[[int], str]) -> list[str]:
    """The ids of a response's calls: those that its server gave them (`Response.call_ids`), if it gave one to each.

    Args:
        given: the server's.
        count: how many calls the response has.
        made: makes the id of the call at an index where the server gave none.
    """
    return list(given) if len(given) == count else [made(index) for index in range(count)]


def _read_call(text: str) -> ToolCall | BrokenCall:
    try:
        call = read_json(text)
    except ValueError as error:
        return BrokenCall(text, f"not JSON: {error}")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return BrokenCall(text, 'a call is {"name": ..., "arguments": {...}}')
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError as error:
            return BrokenCall(text, f"the arguments are not JSON: {error}")
    if not isinstance(arguments, dict):
        return BrokenCall(text, "the arguments must be an object, with a name for each")
    return ToolCall(call["name"], arguments)
