"""Calls of tools apart from the text of their messages, in the form of chat APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from marl_gem.tools.calls import BrokenCall, read_calls

Message = dict[str, Any]


def with_native_calls(messages: Sequence[Message]) -> list[Message]:
    """The same messages with two more fields.

    `tool_calls` lists the calls of an assistant's message, each as {"id", "type": "function", "function": {"name",
    "arguments"}} with the arguments as a JSON text; `tool_call_id` is the call that a tool's message answers, in order.
    Both are empty elsewhere. A message with a call that cannot be read keeps its text, and has no calls.
    """
    return list(_converted(messages))


def _converted(messages: Sequence[Message]) -> Iterator[Message]:
    pending: list[str] = []
    for number, message in enumerate(messages):
        fields: Message = {"tool_calls": [], "tool_call_id": ""}
        if message["role"] == "assistant":
            content, calls = _split(message["content"], number)
            fields = {"content": content, "tool_calls": calls, "tool_call_id": ""}
            pending = [call["id"] for call in calls]
        elif message["role"] == "tool" and pending:
            fields["tool_call_id"] = pending.pop(0)
        yield message | fields


def _split(text: str, number: int) -> tuple[str, list[Message]]:
    """What stands outside of the calls, and the calls; ids hold the message's number."""
    action = read_calls(text)
    if not action.calls or any(isinstance(call, BrokenCall) for call in action.calls):
        return text, []
    return action.text, [
        {
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for index, call in enumerate(action.calls)
        if not isinstance(call, BrokenCall)
    ]
