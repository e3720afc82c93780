"""The clock of an episode: what counts against `Limits.seconds`.

Only the time counts in which the agents and the env of the episode worked. Waiting for infrastructure does not: the
pauses between the attempts of a model call, the attempts that failed, the waits of the circuit breaker. So an outage
of a server is never scored as a lost episode.

    with waiting_for_model(llm.name):      # a call that fails, or is given up, does not count
        response = await llm.complete(...)
    with infrastructure():                 # time in here does not count
        await asyncio.sleep(pause)

A rollout starts a clock for each episode; code that runs outside of one may use both as well.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar

from marl_gem.errors import ContextTooLong

GRACE = 2.0
"""A model call that is in flight when the limit strikes may end until this many times the limit has passed."""


class EpisodeClock:
    """Measures the seconds in which an episode's agents and env worked, and ends the episode at a limit of them.

    Where several agents act at the same time, no time counts while any of them waits for infrastructure.

    If the limit strikes while a model call is in flight, it is not known yet whose time that is, and the call gets as
    long again. If it is answered, its time was the agent's, and the limit holds. If it fails, its time does not count,
    and the episode goes on. If neither happens, the call is `unanswered`.

    Calls and waits may begin and end in any thread.

    Args:
        limit: the seconds that may count; None sets no limit.
        now: returns the time in seconds.
    """

    def __init__(self, limit: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.unanswered: tuple[str, ...] = ()
        """The names of the models whose calls were in flight when the time was up."""
        self._now, self._started = now, now()
        self._lock = threading.RLock()
        self._excluded: list[tuple[float, float]] = []  # what does not count: from, until; in order, without overlap
        self._waits: dict[object, float] = {}  # when each wait for infrastructure began
        self._calls: dict[object, str] = {}  # the names of the models whose calls began before the limit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """The seconds that count so far."""
        with self._lock:
            end = min(self._waits.values(), default=self._now())
            return end - self._started - sum(min(until, end) - since for since, until in self._excluded if since < end)

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and self.seconds >= self.limit

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Be the clock of the task that enters, and of the tasks that it starts.

        Raises:
            TimeoutError: the time was up; `unanswered` says whether models were waited for.
        """
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        token = _current.set(self)
        try:
            async with self._timeout:
                self._set_timer()
                yield
        finally:
            _current.reset(token)
            with self._lock:
                self._loop = None
                if self._timer:
                    self._timer.cancel()

    def begin_wait(self) -> object:
        """A wait for infrastructure begins; give what this returns to `end_wait`."""
        wait = object()
        with self._lock:
            self._waits[wait] = self._now()
        self._update()
        return wait

    def end_wait(self, wait: object) -> None:
        """A wait for infrastructure ends."""
        with self._lock:
            self._exclude(self._waits.pop(wait))
        self._update()

    def begin_call(self, model: str) -> tuple[object, float]:
        """A model call begins; give what this returns to `end_call`."""
        call = object()
        with self._lock:
            if not self.over:
                self._calls[call] = model
            since = self._now()
        self._update()
        return call, since

    def end_call(self, call: tuple[object, float], counts: bool) -> None:
        """A model call ends, and its time counts or not."""
        key, since = call
        with self._lock:
            self._calls.pop(key, None)
            if not counts:
                self._exclude(since)
        self._update()

    def _exclude(self, since: float) -> None:
        """The time from `since` until now does not count."""
        until = self._now()
        while self._excluded and self._excluded[-1][1] >= since:
            since = min(since, self._excluded.pop()[0])
        self._excluded.append((since, until))

    # The timer

    def _left(self) -> float | None:
        """The seconds until the time is up, if no call or wait begins or ends; None if it never is."""
        if self.limit is None or self._waits:
            return None
        return self.limit * (GRACE if self._calls else 1.0) - self.seconds

    def _update(self) -> None:
        """Set the timer anew, from any thread."""
        loop = self._loop
        if self.limit is None or loop is None:
            return
        if asyncio._get_running_loop() is loop:
            self._set_timer()
        else:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._set_timer)

    def _set_timer(self) -> None:
        with self._lock:
            if self._timer:
                self._timer.cancel()
            left = self._left()
            if self._loop and left is not None and not self._timeout.expired():
                self._timer = self._loop.call_later(max(left, 0.0), self._strike)

    def _strike(self) -> None:
        """End the task if the time is up."""
        with self._lock:
            left = self._left()
            if left is not None and left <= 0 and self._loop and not self._timeout.expired():
                self.unanswered = tuple(dict.fromkeys(self._calls.values()))
                self._timeout.reschedule(self._loop.time())
                return
        self._set_timer()


_current: ContextVar[EpisodeClock | None] = ContextVar("marl_gem_episode_clock", default=None)


@contextmanager
def infrastructure() -> Iterator[None]:
    """Time in here is spent on infrastructure, and does not count against the episode's limit of seconds."""
    clock = _current.get()
    if clock is None:
        yield
        return
    wait = clock.begin_wait()
    try:
        yield
    finally:
        clock.end_wait(wait)


@contextmanager
def waiting_for_model(name: str, *, counts: bool = True) -> Iterator[None]:
    """In here a model is called. The time counts against the episode's limit of seconds only if it answers.

    An exception other than `ContextTooLong` means that it did not. Calls within calls are allowed.

    Args:
        name: the model's, for messages.
        counts: false for a model that is no agent's, such as a judge: its time never counts.
    """
    clock = _current.get()
    if clock is None:
        yield
        return
    call, answered = clock.begin_call(name), False
    try:
        yield
        answered = True
    except ContextTooLong:
        answered = True
        raise
    finally:
        clock.end_call(call, answered and counts)
