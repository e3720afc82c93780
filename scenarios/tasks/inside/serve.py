"""A worker's loop: calls of functions come through a channel, and their results go back.

The process that has imported the libraries serves nothing itself: it forks one that does, and another when that one
has died. A call that takes too much CPU time dies by the kernel's signal, whatever it is doing; nothing else is lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

CHANNEL = 202
"""The file descriptor of the channel to the parent, as the sandbox gives it."""


def serve(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Serve until the parent hangs up."""
    sys.setrecursionlimit(2000)
    while True:
        pid = os.fork()
        if pid == 0:
            answer_calls(functions)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0:
            os._exit(0)
        send({"died": -code})


def answer_calls(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Answer one call after the other; a call that fails is answered by what it raised."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while True:
        size = int.from_bytes(read_exactly(4), "little")
        call = json.loads(read_exactly(size))
        signal.setitimer(signal.ITIMER_PROF, call["seconds"])
        reply: dict[str, Any]
        try:
            reply = {"value": functions[call["function"]](*call["arguments"])}
        except (Exception, SystemExit) as error:
            reply = {"raised": type(error).__name__, "text": message_of(error)}
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        send(reply)


def message_of(error: BaseException) -> str:
    """An exception's text, at most 500 characters of it."""
    try:
        return str(error)[:500]
    except Exception:
        return ""


def read_exactly(size: int) -> bytes:
    """Read so many bytes; ends this process if the parent has hung up."""
    data = b""
    while len(data) < size:
        part = os.read(CHANNEL, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def send(reply: dict[str, Any]) -> None:
    """Send a reply to the parent."""
    try:
        text = json.dumps(reply, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        text = json.dumps({"raised": type(error).__name__, "text": message_of(error)})
    data = text.encode()
    data = len(data).to_bytes(4, "little") + data
    while data:
        data = data[os.write(CHANNEL, data) :]
