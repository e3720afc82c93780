"""Calls of tools apart from the text of their messages, in the form of chat APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marl_gem.tools.calls import BrokenCall, ids_of_calls, read_calls

Message = dict[str, Any]


def with_native_calls(messages: Sequence[Message], ids: Mapping[int, Sequence[str]]) -> list[Message]:
    """The same messages with two more fields.

    `tool_calls` lists the calls of an assistant's message, each as {"id", "type": "function", "function": {"name",
    "arguments"}} with the arguments as a JSON text; `tool_call_id` is the call that a tool's message answers, in order.
    Both are empty elsewhere. A message with a call that cannot be read keeps its text, and has no calls.

    Args:
        messages: the conversation.
        ids: by the number of an assistant's message the ids that its server gave to its calls; others get new ones.
    """
    return list(_converted(messages, ids))


def _converted(messages: Sequence[Message], ids: Mapping[int, Sequence[str]]) -> Iterator[Message]:
    pending: list[str] = []
    for number, message in enumerate(messages):
        fields: Message = {"tool_calls": [], "tool_call_id": ""}
        if message["role"] == "assistant":
            content, calls = _split(message["content"], number, ids.get(number, ()))
            fields = {"content": content, "tool_calls": calls, "tool_call_id": ""}
            pending = [call["id"] for call in calls]
        elif message["role"] == "tool" and pending:
            fields["tool_call_id"] = pending.pop(0)
        yield message | fields


def _split(text: str, number: int, given: Sequence[str]) -> tuple[str, list[Message]]:
    """What stands outside of the calls, and the calls; new ids hold the message's number."""
    action = read_calls(text)
    if not action.calls or any(isinstance(call, BrokenCall) for call in action.calls):
        return text, []
    ids = ids_of_calls(given, len(action.calls), lambda index: f"call_{number}_{index}")
    return action.text, [
        {
            "id": id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for id, call in zip(ids, action.calls, strict=True)
        if not isinstance(call, BrokenCall)
    ]
