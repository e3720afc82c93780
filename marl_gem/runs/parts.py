"""Observations and responses as parts: text, reasoning, tool calls, results, images.

The viewer shows parts and the export to inspect_ai writes them. The text in them was written by others, and may be
anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from marl_gem.tools.calls import CLOSE, OPEN, BrokenCall, read_calls
from marl_gem.types import Observation, Response, Role, ToolCall, ToolSpec

Kind: TypeAlias = Literal["text", "reasoning", "call", "broken call", "result", "image", "tool", "other"]


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a role, an observation or a response.

    `text` is the text or reasoning itself, a tool's description and schema, a call's arguments as JSON, a tool's
    result, or the URL of an image. `name` is the tool's for a tool, a call and a result, the reason for a broken call,
    and the type for content parts of another kind.
    """

    kind: Kind
    text: str
    name: str = ""


def role_parts(role: Role) -> list[Part]:
    """The parts of a role: its instructions, then its tools. None for an empty role."""
    instructions = [Part("text", role.instructions)] if role.instructions else []
    return [*instructions, *[Part("tool", _description(tool), tool.name) for tool in role.tools]]


def observation_parts(observation: Observation) -> list[Part]:
    """The parts of an observation; content parts of an unknown form become JSON."""
    if isinstance(observation, str):
        return [Part("text", observation)]
    return [_part(part) for part in observation]


def response_parts(response: Response) -> list[Part]:
    """The parts of a response in their order: reasoning, text and tool calls. There is at least one."""
    text, parts = response.text, []
    if response.reasoning:
        parts.append(Part("reasoning", response.reasoning))
    if text.lstrip().startswith("<think>"):  # from a back end that does not separate it
        thought, _, text = text.lstrip().removeprefix("<think>").partition("</think>")
        parts.append(Part("reasoning", thought))
    offset = 0
    while (start := text.find(OPEN, offset)) >= 0:
        end = text.find(CLOSE, start)
        end = len(text) if end < 0 else end + len(CLOSE)
        parts += [Part("text", text[offset:start].strip("\n")), *map(_call, read_calls(text[start:end]).calls)]
        offset = end
    parts.append(Part("text", text[offset:].lstrip("\n") if parts else text))
    kept = [part for part in parts if part.text.strip() or part.kind != "text"]
    return kept or [Part("text", "")]


def pretty(value: Any) -> str:
    """Plain data as indented JSON."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _part(part: Mapping[str, Any]) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return Part("text", text)
        case {"type": "image", "url": str(url)}:
            return Part("image", url)
        case {"type": "tool_result", "text": str(text)}:
            return Part("result", text, str(part.get("name", "")))
    return Part("other", pretty(part), str(part.get("type", "")))


def _description(tool: ToolSpec) -> str:
    return "\n".join([*[tool.description] * bool(tool.description), pretty(tool.parameters)])


def _call(call: ToolCall | BrokenCall) -> Part:
    if isinstance(call, BrokenCall):
        return Part("broken call", call.text, call.reason)
    return Part("call", pretty(call.arguments), call.name)
