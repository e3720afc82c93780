"""The messages of OpenAI's chat-completions API, from those of views; calls of tools become calls of the API."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from marl_gem.errors import LLMError
from marl_gem.tools.calls import ids_of_calls, read_calls
from marl_gem.types import ContentPart, Message, ToolCall, ToolSpec


def write_messages(messages: Sequence[Message], *, native: bool) -> list[dict[str, Any]]:
    """Convert messages to those of the API.

    With `native`, tool calls in an assistant's text become tool calls of the API, if all can be parsed and all have a
    result, which the API requires. They have the ids that the server gave them, or new ones. Other calls stay in the
    text, and their results become user messages, in the tags that Hermes and Qwen templates use. The reasoning of a
    message, if it was kept, precedes its text in think tags.
    """
    written: list[dict[str, Any]] = []
    unanswered: deque[str] = deque()
    count = 0
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "assistant":
            text = _text(content)
            spoken, calls = _native_calls(text, messages, index) if native else (text, [])
            reasoning = f"<think>\n{message['reasoning']}\n</think>\n\n" if message.get("reasoning") else ""
            line: dict[str, Any] = {"role": role, "content": reasoning + spoken}
            if calls:
                ids = ids_of_calls(message.get("call_ids", ()), len(calls), partial(_made_id, count))
                line["tool_calls"] = [_write_call(id, call) for id, call in zip(ids, calls, strict=True)]
                unanswered.extend(ids)
                count += len(calls)
            written.append(line)
        elif role == "tool" and unanswered:
            written.append({"role": role, "tool_call_id": unanswered.popleft(), "content": _text(content)})
        elif role == "tool":
            answer = f"<tool_response>\n{_text(content)}\n</tool_response>"
            if index and messages[index - 1]["role"] == "tool":  # templates may require that roles alternate
                written[-1]["content"] += "\n" + answer
            else:
                written.append({"role": "user", "content": answer})
        else:
            written.append({"role": role, "content": _content(content)})
    return written


def _native_calls(text: str, messages: Sequence[Message], index: int) -> tuple[str, list[ToolCall]]:
    """The text of message `index` without its tool calls, and the calls.

    The complete text and no calls, if a call is broken or their number is not that of the results that follow.
    """
    spoken, found = read_calls(text)
    calls = [call for call in found if isinstance(call, ToolCall)]
    results = 0
    while index + results + 1 < len(messages) and messages[index + results + 1]["role"] == "tool":
        results += 1
    return (spoken, calls) if len(calls) == len(found) == results else (text, [])


def _made_id(before: int, index: int) -> str:
    return f"call{before + index:05}"  # Mistral: 9 characters


def _write_call(id: str, call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def function_schema(tool: ToolSpec) -> dict[str, Any]:
    """The schema of a tool for chat APIs and templates; some require one for tools without parameters too."""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _content(content: str | list[ContentPart]) -> str | list[dict[str, Any]]:
    if isinstance(content, str) or all(part.get("type") != "image" for part in content):
        return _text(content)
    return [_write_part(part) for part in content]


def _write_part(part: ContentPart) -> dict[str, Any]:
    if part.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": part["url"]}}
    return {"type": "text", "text": _text([part])}


def _text(content: str | list[ContentPart]) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") not in ("text", "tool_result"):
            raise LLMError(
                f"a chat API cannot express a part of the type {part.get('type')!r} here: "
                "users may send text and images, all others text"
            )
    return "\n".join(part["text"] for part in content)
