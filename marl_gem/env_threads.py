"""Threads in which blocking envs take their steps."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class EnvThreads:
    """Runs blocking calls in threads, for one event loop.

    There are as many threads as calls were ever running at the same time: a new one is started when none is idle,
    so that no call waits for another. (With `ThreadPoolExecutor` an env's step could wait for another env's; see
    docs/decisions.md.) A thread that has finished a call wakes the event loop only if no other has just woken it:
    with a thousand envs a wake-up for each step would cost more than all the rest.

    Make it in a running event loop, and `close` it at the end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._finished: deque[_Call] = deque()
        self._wakeup_pending = False
        self._busy = self._count = 0

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in a thread, and return or raise what it does.

        If the caller is cancelled, this waits until the call has ended, so that nobody closes an env at work.
        """
        if self._busy == self._count:
            threading.Thread(target=self._work, name=f"marl_gem-env-{self._count}").start()
            self._count += 1
        self._busy += 1
        context = contextvars.copy_context()  # with the clock of the caller's episode
        call = _Call(partial(context.run, function, *arguments), self._loop.create_future())
        self._calls.put(call)
        try:
            await call.done
        except asyncio.CancelledError:
            while not call.ended:
                await asyncio.sleep(0.005)
            raise
        finally:
            self._busy -= 1
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the threads end after the calls they are at."""
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while call := self._calls.get():
            try:
                call.result = call.function()
            except BaseException as error:
                call.error = error
            call.ended = True
            self._finished.append(call)
            if not self._wakeup_pending:
                self._wakeup_pending = True
                self._loop.call_soon_threadsafe(self._resolve_finished)

    def _resolve_finished(self) -> None:
        """In the event loop: let those go on that wait for calls that have ended."""
        self._wakeup_pending = False  # before looking, so that a call that ends after the look wakes the loop again
        while self._finished:
            done = self._finished.popleft().done
            if not done.done():
                done.set_result(None)


@dataclass(eq=False, slots=True)
class _Call:
    function: Callable[[], Any]
    done: asyncio.Future[None]
    ended: bool = False
    result: Any = None
    error: BaseException | None = None
