"""Threads in which blocking envs take their steps."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from marl_gem.awaiting import loop_of_rollout
from marl_gem.faults import scenario_of

Result = TypeVar("Result")

PATIENCE = 5.0
"""Seconds for which `EnvThreads.close` waits for calls that nobody waits for any more."""


class EnvThreads:
    """Runs blocking calls in threads, for one event loop.

    There are as many threads as calls were ever running at the same time: a new one is started when none is idle,
    so that no call waits for another. (With `ThreadPoolExecutor` an env's step could wait for another env's; see
    docs/decisions.md.) A thread that has finished a call wakes the event loop only if no other has just woken it:
    with a thousand envs a wake-up for each step would cost more than all the rest.

    Python cannot stop a thread. If the caller of `run` is cancelled, the call is left to its thread, and its env is
    at work until the call returns: nobody may use or close it meanwhile. The threads are daemons, so that a call that
    never returns does not keep the process from its end.

    Make it in a running event loop, and `close` it at the end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._finished: deque[_Call] = deque()
        self._wakeup_pending = False
        self._busy = self._count = 0
        self._lock = threading.Lock()
        self._left: dict[int, _Call] = {}  # the calls that nobody waits for any more, by the id of their env
        self._none_left = asyncio.Event()

    async def run(self, env: object, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function that uses this env in a thread, and return or raise what it does.

        If the caller is cancelled, this ends at once; see `at_work`.
        """
        call = self._start(env, partial(function, *arguments))
        try:
            await call.done
        except asyncio.CancelledError:
            with self._lock:
                if not call.ended:
                    self._left[id(env)] = call
            raise
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[no-any-return]

    def at_work(self, env: object) -> bool:
        """Whether a call that uses this env was left to its thread, and has not returned."""
        with self._lock:
            return id(env) in self._left

    def run_last(self, env: object, function: Callable[[], None]) -> None:
        """Call a function in a thread, after the call that is at work with this env, if there is one; wait for neither.

        Args:
            function: raises nothing.
        """
        with self._lock:
            if call := self._left.get(id(env)):
                call.last = function
                return
        self._start(env, function, left=True)

    def envs_at_work(self) -> list[Any]:
        """The envs that are at work in calls that were left to their threads."""
        with self._lock:
            return [call.env for call in self._left.values()]

    async def close(self) -> None:
        """Let the threads end after the calls they are at. For calls that were left to them wait `PATIENCE` seconds."""
        for _ in range(self._count):
            self._calls.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._left:
                    self._none_left.clear()
                    await self._none_left.wait()

    def warn_at_work(self) -> None:
        """Warn of the calls that nobody waits for any more and that have not returned."""
        counts = Counter(map(scenario_of, self.envs_at_work()))
        which = ", ".join(f"{count} of {scenario}" for scenario, count in counts.items())
        warnings.warn(
            f"calls of blocking envs have not returned: {which}. Python cannot stop a thread, so each is left to its "
            "thread, which closes the env when the call returns. Set a time-out where the scenario waits",
            RuntimeWarning,
            stacklevel=1,  # one line of code for all, so that the same count is shown once
        )

    def _start(self, env: object, function: Callable[[], Any], left: bool = False) -> _Call:
        if self._busy == self._count:
            threading.Thread(target=self._work, name=f"marl_gem-env-{self._count}", daemon=True).start()
            self._count += 1
        context = contextvars.copy_context()  # with the clock of the caller's episode
        context.run(loop_of_rollout.set, self._loop)
        call = _Call(env, partial(context.run, function), self._loop.create_future())
        if left:
            with self._lock:
                self._left[id(env)] = call
        self._busy += 1
        self._calls.put(call)
        return call

    def _work(self) -> None:
        while call := self._calls.get():
            try:
                call.result = call.function()
            except BaseException as error:
                call.error = error
            with self._lock:
                last = call.last
                if last is None:
                    self._end(call)
            if last is not None:
                last()
                with self._lock:
                    self._end(call)
            self._finished.append(call)
            del call  # while this thread waits, it keeps no env alive
            if not self._wakeup_pending:
                self._wakeup_pending = True
                with suppress(RuntimeError):  # the loop has been closed
                    self._loop.call_soon_threadsafe(self._resolve_finished)

    def _end(self, call: _Call) -> None:
        call.ended = True
        if self._left.get(id(call.env)) is call:
            del self._left[id(call.env)]

    def _resolve_finished(self) -> None:
        """In the event loop: let those go on that wait for calls that have ended."""
        self._wakeup_pending = False  # before looking, so that a call that ends after the look wakes the loop again
        while self._finished:
            self._busy -= 1
            done = self._finished.popleft().done
            if not done.done():
                done.set_result(None)
        if not self._left:
            self._none_left.set()


@dataclass(eq=False, slots=True)
class _Call:
    env: object
    function: Callable[[], Any]
    done: asyncio.Future[None]
    ended: bool = False
    result: Any = None
    error: BaseException | None = None
    last: Callable[[], None] | None = None
