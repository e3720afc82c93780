"""Waiting for what has to be awaited, from synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

Result = TypeVar("Result")

loop_of_rollout: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("marl_gem_loop_of_rollout", default=None)
"""In the thread of a blocking env: the event loop of the rollout, where its agents' models are asked."""


def wait_for(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, also where an event loop runs in this thread; that loop stands still meanwhile.

    In a thread of a rollout it runs in the rollout's event loop; else in one that all callers share, because a model
    must not be used in two event loops at the same time.
    """
    loop = loop_of_rollout.get()
    if loop is None or loop.is_closed() or asyncio._get_running_loop() is loop:
        return _shared_loop.wait_for(coroutine)
    answer = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return answer.result()
    finally:
        answer.cancel()  # if the wait was interrupted


class _SharedLoop:
    """An event loop in a thread; it exists as long as somebody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0

    def wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        with self._lock:
            if not self._waiting:
                self._begin()
            self._waiting += 1
            answer = asyncio.run_coroutine_threadsafe(coroutine, self._runner.get_loop())
        try:
            return answer.result()
        finally:
            answer.cancel()  # if the wait was interrupted, by Ctrl-C for instance
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._end()

    def _begin(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._runner.get_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._runner,), name="marl_gem-awaiting", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        loop = self._runner.get_loop()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def _serve(self, runner: asyncio.Runner) -> None:
        with runner:  # it is closed in this thread: in that of a caller an event loop may be running
            runner.get_loop().run_forever()


_shared_loop = _SharedLoop()
