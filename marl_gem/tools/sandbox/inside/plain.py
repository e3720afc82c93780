"""Values as they travel between a program and its tests: plain data alone, one JSON text a line.

See check.py: this runs on both sides, each in its own sandbox. What is decoded is never more than numbers, texts and
collections of them, of exactly Python's own types: an object whose `==` always holds cannot pass.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

MOST = 16 << 20
"""Bytes that a message may have."""

_COLLECTIONS = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encoded(value: Any) -> Any:
    """A value as JSON can hold it.

    Raises:
        TypeError: it is no plain data.
    """
    if value is None or isinstance(value, (bool, float, str)):
        return value if type(value) in (type(None), bool) else float(value) if isinstance(value, float) else str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list):
        return [encoded(item) for item in value]
    for name, kind in _COLLECTIONS.items():
        if isinstance(value, kind):
            return {name: [encoded(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if hasattr(value, "tolist"):  # of numpy
        return encoded(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot leave the program; only plain data can")


def decoded(value: Any) -> Any:
    """The value that was encoded.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name in _COLLECTIONS:
        return _COLLECTIONS[name](map(decoded, content))
    if name == "dict":
        return {decoded(key): decoded(item) for key, item in content}
    if name == "bytes":
        return bytes.fromhex(content)
    if name == "complex":
        return complex(*content)
    raise ValueError(f"there is no kind of value {name!r}")


def send(file: BinaryIO, message: dict[str, Any]) -> None:
    """Write a message."""
    file.write(json.dumps(message).encode() + b"\n")
    file.flush()


def receive(file: BinaryIO) -> dict[str, Any] | None:
    """Read a message. None when the other side is gone.

    Raises:
        ValueError: it is none, or too long.
    """
    line = file.readline(MOST)
    if not line:
        return None
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("no message")
    return message
