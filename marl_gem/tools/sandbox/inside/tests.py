"""Runs tests against a program in another sandbox, whose functions it calls through a channel.

See check.py. The tests' text is standard input. The exit code says how they went: 0 passed, 1 failed, 2 an error, 3 the
program does not start. What went wrong stands on standard error.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from marl_gem.tools.sandbox.inside.plain import decoded, encoded, receive, send
from marl_gem.tools.sandbox.inside.worker import CHANNEL

PASSED, FAILED, ERROR, NO_PROGRAM = range(4)


class ProgramEnded(BaseException):
    """The program is gone, or does not keep to the protocol. No test can catch that by accident."""


def main() -> None:
    """Run the tests, and exit with how they went."""
    incoming, outgoing = os.fdopen(CHANNEL, "rb"), os.fdopen(os.dup(CHANNEL), "wb")
    status, text = PASSED, ""
    try:
        started = exchange(incoming)
        if "error" in started:
            status, text = NO_PROGRAM, f"{started['error']}: {started['text']}"
        else:
            namespace = sys.modules["__main__"].__dict__
            hidden = {*dir(builtins), *namespace}  # a program must not replace what tests compare with
            for name in map(str, started["names"]):
                if name not in hidden:
                    namespace[name] = remote(name, incoming, outgoing)
            exec(compile(sys.stdin.read(), "<tests>", "exec"), namespace)
    except AssertionError as error:
        status, text = FAILED, f"AssertionError: {error}" if str(error) else line_of(error)
    except BaseException as error:
        status, text = ERROR, f"{type(error).__name__}: {error}"
    sys.stderr.write(text[:2000])
    sys.stderr.flush()
    os._exit(status)


def remote(name: str, incoming: BinaryIO, outgoing: BinaryIO) -> Callable[..., Any]:
    """A function of the program, for the tests to call."""

    def call(*arguments: Any, **named: Any) -> Any:
        request = {"name": name, "arguments": encoded(list(arguments)), "named": encoded(named)}
        try:
            send(outgoing, request)
        except OSError:
            raise ProgramEnded("the program ended") from None
        reply = exchange(incoming)
        if "error" in reply:
            kind = getattr(builtins, str(reply["error"]), None)
            expected = isinstance(kind, type) and issubclass(kind, Exception) and kind is not AssertionError
            raise (kind if expected else RuntimeError)(f"{reply['text']}")  # type: ignore[misc]
        return decoded(reply["value"])

    call.__name__ = name
    return call


def exchange(incoming: BinaryIO) -> dict[str, Any]:
    """What the program says next."""
    try:
        message = receive(incoming)
    except (ValueError, OSError, RecursionError) as error:
        raise ProgramEnded(f"the program broke the protocol: {error}") from None
    if message is None or not (message.keys() <= {"error", "text"} or len(message) == 1):
        raise ProgramEnded("the program ended")
    return message


def line_of(error: BaseException) -> str:
    """In which line of the tests an assertion failed."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"AssertionError in line {line} of the tests"
