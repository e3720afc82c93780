"""What a tool gives back: text, perhaps with images, or an error that the model can read."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from marl_gem.faults import type_name
from marl_gem.types import ContentPart

MOST_IMAGE_BYTES = 20_000_000
"""A larger image is refused."""


class ToolError(Exception):
    """Raised by a tool's code to tell the model what was wrong: it reads `Error: <message>`, and may call again."""


class Image(msgspec.Struct, frozen=True):
    """An image that a tool returns, alone or in a list with texts: the bytes of a file, and their media type."""

    data: bytes
    type: str = "image/png"

    def part(self) -> ContentPart:
        """The image as a part of an observation."""
        return {"type": "image", "url": f"data:{self.type};base64,{base64.b64encode(self.data).decode()}"}


class ToolResult(msgspec.Struct, frozen=True):
    """The answer to a call.

    `content` is text, or content parts of the types "text" and "image". `error` is empty, or says in a word or two why
    the call failed: "arguments", "time-out", "refused" (the tool raised a ToolError), "raised", "answer" (it returned
    something that is no answer), "unknown tool", "broken call" or "limit". The content tells the model more.
    """

    content: str | list[ContentPart]
    error: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.error)

    @property
    def text(self) -> str:
        """The text of the content, without its images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part["text"] for part in self.content if part["type"] == "text")

    @property
    def images(self) -> list[ContentPart]:
        """The images of the content."""
        return [] if isinstance(self.content, str) else [part for part in self.content if part["type"] == "image"]


def failure(message: str, error: str) -> ToolResult:
    """The result of a call that failed, as a model reads it."""
    return ToolResult(f"Error: {message}", error)


def as_result(value: object, tool: str, max_length: int | None) -> ToolResult:
    """What a tool's code returned, as a result of bounded length.

    Text stays as it is; None is an empty text; numbers, lists, dicts and records are written as JSON. An `Image`, and a
    list in which there are some, become content parts.

    Args:
        value: anything.
        tool: the tool's name, for messages.
        max_length: the most characters of all texts together; None sets no limit.
    """
    if isinstance(value, ToolResult):
        if isinstance(value.content, str):
            return msgspec.structs.replace(value, content=cut(value.content, max_length))
        return msgspec.structs.replace(value, content=_cut_parts(value.content, max_length))
    try:
        if isinstance(value, Image) or (isinstance(value, (list, tuple)) and any(isinstance(v, Image) for v in value)):
            items = [value] if isinstance(value, Image) else list(value)  # type: ignore[call-overload]
            parts = [_part(item) for item in items]
            return ToolResult(_cut_parts(parts, max_length))
        return ToolResult(cut(_text(value), max_length))
    except ToolError as error:
        return failure(f"{tool} gave no answer that can be shown: {error}", "answer")


def cut(text: str, most: int | None) -> str:
    """A text of at most about `most` characters: its beginning and its end, and between them how much is left out."""
    if most is None or len(text) <= most:
        return text
    tail = most // 3
    left_out = f"\n[... {len(text) - most:,} of {len(text):,} characters are left out here ...]\n"
    return text[: most - tail] + left_out + text[len(text) - tail :]


def _cut_parts(parts: list[ContentPart], most: int | None) -> list[ContentPart]:
    left, bounded = most, []
    for part in parts:
        if part["type"] == "text":
            part = {**part, "text": cut(part["text"], left)}
            left = None if left is None else max(0, left - len(part["text"]))
        bounded.append(part)
    return bounded


def _part(value: object) -> ContentPart:
    if not isinstance(value, Image):
        return {"type": "text", "text": _text(value)}
    if len(value.data) > MOST_IMAGE_BYTES:
        raise ToolError(f"an image of {len(value.data):,} bytes; at most {MOST_IMAGE_BYTES:,} can be shown")
    return value.part()


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        if isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError
        return json.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False)  # a NaN is written NaN
    except (TypeError, ValueError, RecursionError):
        raise ToolError(f"it returned a {type_name(value)}") from None
