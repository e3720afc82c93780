"""Runs a program whose functions are called from outside, by its tests. It never sees the tests, and judges nothing.

See check.py. The program's text is standard input.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from marl_gem.tools.sandbox.inside.plain import decoded, encoded, receive, send
from marl_gem.tools.sandbox.inside.worker import CHANNEL


def main() -> None:
    """Run the program, then answer calls until the tests are over."""
    incoming, outgoing = os.fdopen(CHANNEL, "rb"), os.fdopen(os.dup(CHANNEL), "wb")
    namespace = sys.modules["__main__"].__dict__
    code = sys.stdin.read()
    try:
        exec(compile(code, "<program>", "exec"), namespace)
    except BaseException as error:
        send(outgoing, {"error": type(error).__name__, "text": str(error)[:1000]})
        return
    names = [name for name, value in namespace.items() if callable(value) and not name.startswith("__")]
    send(outgoing, {"names": names})
    while True:
        call = receive(incoming)
        if call is None:
            return
        send(outgoing, answer(namespace, call))


def answer(namespace: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Call a function of the program."""
    try:
        value = namespace[call["name"]](*decoded(call["arguments"]), **decoded(call["named"]))
        return {"value": encoded(value)}
    except BaseException as error:
        return {"error": type(error).__name__, "text": str(error)[:1000]}
