"""What the code of others may do: scenarios, wrappers and policies can raise anything, and hold values of any class.

A message about such a value or exception must not fail in turn, so nothing here runs code of a value's own class.
"""

from __future__ import annotations

import signal
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from marl_gem.errors import MarlGemError

FAULTS = (Exception, SystemExit)
"""What the code of others raises when it fails; SystemExit, for games that call `exit()`."""

MOST_CHARACTERS = 10_000
"""So much of an exception's message is kept."""


class Env(Protocol):
    """What these functions need of an env."""

    @property
    def scenario(self) -> str: ...

    def close(self) -> None: ...


def is_interrupt(error: BaseException) -> bool:
    """Whether this is a KeyboardInterrupt of Ctrl-C, and not one that somebody's code raised.

    Ctrl-C interrupts the main thread alone, if it is not ignored, and leaves a frame of the handler that raised it.
    Python's own handler leaves none: with that one, every KeyboardInterrupt in the main thread counts as Ctrl-C.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler: Any = signal.getsignal(signal.SIGINT)
    if handler in (signal.SIG_IGN, signal.SIG_DFL):  # as in what a shell starts in the background
        return False
    handler = getattr(handler, "func", handler)  # asyncio's is a partial of a method
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code is None or any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


@contextmanager
def foreign_code(what: str, kind: type[MarlGemError], but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Whatever is raised in here becomes an error of marl_gem that says so; Ctrl-C and errors of marl_gem stay.

    Args:
        what: whose code it is and what it was to do, as in "game:X-v0 cannot be made".
        kind: the class of the error.
        but: exceptions that stay as they are.

    Raises:
        MarlGemError: an error of this kind, or one of marl_gem that was raised in here.
    """
    try:
        yield
    except BaseException as error:
        if is_interrupt(error) or isinstance(error, (MarlGemError, *but)):
            raise
        raise kind(f"{what}: {description(error)}") from error


def description(error: BaseException) -> str:
    """What was raised, its text, and where, as in "ValueError: too many (game.py, line 7)"."""
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") not in ("_sitebuiltins", __name__):  # exit() and quit()
            where = f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return f"{type(error).__name__}: {message_of(error)}{where}"


def type_name(value: object) -> str:
    """The name of a value's class, with its module where it is not built in, as in "numpy.ndarray"."""
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if type(module) is not str or module == "builtins" else f"{module}.{kind.__qualname__}"


def message_of(error: BaseException) -> str:
    """An exception's text, at most `MOST_CHARACTERS` of it; that it has none that can be read, if that is so."""
    try:
        text = str.__str__(str(error))
    except BaseException as second:
        if is_interrupt(second):
            raise
        return f"(its message cannot be read: str() raised {type_name(second)})"
    left = len(text) - MOST_CHARACTERS
    return text if left <= 0 else f"{text[:MOST_CHARACTERS]}... ({left:,} more characters)"


def shown(value: object, most: int = 200) -> str:
    """A value for a message, shortened: plain values as `repr` writes them, others by their class."""
    text = _shown(value, 4)
    return text if len(text) <= most else f"{text[:most]}..."


def _shown(value: object, levels: int) -> str:
    kind = type(value)
    if kind is str:
        return repr(value if len(value) <= 1000 else value[:1000])  # type: ignore[arg-type, index]
    if kind is int:
        bits = value.bit_length()  # type: ignore[attr-defined]
        return repr(value) if bits < 1000 else f"<an int of {bits:,} bits>"
    if kind in (float, bool, type(None)):
        return repr(value)
    if levels and kind in (list, tuple, set):
        parts = [_shown(part, levels - 1) for part in islice(value, 50)]  # type: ignore[call-overload]
        parts += ["..."] if len(value) > 50 else []  # type: ignore[arg-type]
        if not parts or (kind is tuple and len(parts) == 1):
            return f"({parts[0]},)" if parts else repr(value)
        return {list: "[{}]", tuple: "({})", set: "{{{}}}"}[kind].format(", ".join(parts))  # type: ignore[index]
    if levels and kind is dict:
        items = islice(value.items(), 50)  # type: ignore[attr-defined]
        pairs = ", ".join(f"{_shown(key, levels - 1)}: {_shown(part, levels - 1)}" for key, part in items)
        return f"{{{pairs}}}"
    return f"<{type_name(value)}>"


def scenario_of(env: Env) -> str:
    """The id of an env, or the name of its class if it has none that can be read."""
    try:
        return str.__str__(env.scenario)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return type(env).__qualname__


def close_env(env: Env) -> None:
    """Close an env; if that fails, warn and go on."""
    try:
        env.close()
    except BaseException as error:
        if is_interrupt(error):
            raise
        text = f"{scenario_of(env)}: close() raised {type_name(error)}: {message_of(error)}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
