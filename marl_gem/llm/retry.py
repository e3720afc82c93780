"""Asking again: the one place where calls of models are retried.

    policy = LLMPolicy(Retrying(HTTPModel("http://127.0.0.1:8000/v1")))

Asked again is what fails with `TransientLLMError`, and nothing else; `marl_gem.llm.http` tells which faults of
a server those are. There are two kinds. A server that answers, but not well, is given `attempts` chances for a
call. A server that is away (`ServerUnreachable`) is waited for up to `patience` seconds, and a breaker sees to it
that while it is away only one caller knocks, and all others wait for what comes of that.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from marl_gem.errors import LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm import LLM, Sampling
from marl_gem.types import Message, Response, ToolSpec

_log = logging.getLogger(__name__)


class Backoff:
    """How long to wait before the next attempt: anything up to a bound that doubles each time ("full jitter").

    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        first: the bound before the second attempt, in seconds.
        cap: what the bound grows up to.
        rng: where the waits are drawn from.
        clock, sleep: for tests; seconds that pass, and how to let them pass.
    """

    def __init__(
        self,
        first: float = 0.5,
        cap: float = 30.0,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.first, self.cap = first, cap
        self.clock, self.sleep = clock, sleep
        self._rng = rng or random.Random()

    def wait(self, failures: int) -> float:
        """The seconds to wait after so many failures in a row, from 1 up."""
        return self._rng.uniform(0.0, min(self.cap, self.first * 2.0 ** min(failures - 1, 60)))


class Breaker:
    """Keeps everybody from knocking at a server that is away.

    After `failures` calls in a row that found nobody there it is open: one caller tries again after a while,
    the others wait. If that one is answered, all go ahead; if not, the next one tries, after a longer while.
    When the server has been away for `patience` seconds, all that wait fail at once, and so do later calls, but
    for one now and then that looks whether it is back.

    One breaker serves one server; give it to every `Retrying` whose model is there. Not for several threads.
    """

    def __init__(self, failures: int = 5, patience: float = 900.0, backoff: Backoff | None = None) -> None:
        self.failures, self.patience = failures, patience
        self._backoff = backoff or Backoff()
        self._failed = 0
        self._away_since = self._next_try = 0.0
        self._trying = False
        self._waiting: list[asyncio.Future[None]] = []
        self._last: ServerUnreachable | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server is taken to be away."""
        return self._failed >= self.failures

    async def enter(self) -> bool:
        """Wait until the server may be asked; call `leave` with the result afterwards.

        Returns:
            Whether the caller is the one that tries a server that is away.

        Raises:
            TransientLLMError: the server has been away for too long.
        """
        while self.is_open:
            now = self._backoff.clock()
            away = now - self._away_since
            if self._trying:
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
            elif away >= self.patience and now < self._next_try:
                raise TransientLLMError(f"nobody there for {away:.0f} s, in {self._failed} attempts: {self._last}")
            else:
                await self._knock(self._next_try - now)
                return True
        return False

    async def _knock(self, wait: float) -> None:
        """Be the one that tries, after a while."""
        self._trying = True
        try:
            if wait > 0:
                await self._backoff.sleep(wait)
        except BaseException:
            self._hand_on()
            raise

    def leave(self, trying: bool, error: BaseException | None) -> None:
        """Tell what became of a call: None or the error it ended with."""
        if isinstance(error, ServerUnreachable):
            self._last, now = error, self._backoff.clock()
            if not self._failed:
                self._away_since = now
            if trying or not self.is_open:
                self._failed += 1
                if self._failed == self.failures:
                    _log.warning("%s. All wait for it now, up to %.0f s", error, self.patience)
                self._next_try = now + self._backoff.wait(max(1, self._failed - self.failures + 1))
                end = self._away_since + self.patience
                if now < end:
                    self._next_try = min(self._next_try, end)  # one last time before all is given up
        elif error is None or isinstance(error, LLMError):
            if self.is_open:
                _log.warning("the server is back after %.0f s", self._backoff.clock() - self._away_since)
            self._failed = 0  # whatever it said, somebody is there
        if trying:
            self._hand_on()
        elif self._waiting and not self.is_open:
            self._wake()

    def _hand_on(self) -> None:
        self._trying = False
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


class Retrying:
    """Asks a model again when that may help; see the top of this file.

    Args:
        llm: the model.
        attempts: how often a call is asked of a server that answers.
        patience: after so many seconds since its first failure a call is not asked again.
        longest_wait: a server that asks us to wait longer than so many seconds is not waited for.
        breaker: what keeps us from a server that is away; a server's models may share one.
        backoff: how long to wait.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        attempts: int = 8,
        patience: float = 900.0,
        longest_wait: float = 120.0,
        breaker: Breaker | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.llm = llm
        self.attempts, self.patience, self.longest_wait = attempts, patience, longest_wait
        self.backoff = backoff or Backoff()
        self.breaker = breaker or Breaker(patience=patience, backoff=self.backoff)

    @property
    def name(self) -> str:
        return self.llm.name

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer, asking again as often as it takes; `Response.retries` counts how often that was.

        Raises:
            TransientLLMError: it never went well; the message tells how often and how long it was tried, and
                what failed last. Later it may.
            LLMError: as the model raises it.
        """
        retries, poor, started = 0, 0, self.backoff.clock()
        give_up_at = float("inf")
        while True:
            trying = await self.breaker.enter()
            error: BaseException | None = None
            try:
                response = await self.llm.complete(messages, sampling, seed, tools)
                return msgspec.structs.replace(response, retries=response.retries + retries) if retries else response
            except TransientLLMError as failure:
                error = failure
            except BaseException as other:
                error = other
                raise
            finally:
                self.breaker.leave(trying, error)
            retries += 1
            poor += not isinstance(error, ServerUnreachable)
            now = self.backoff.clock()
            give_up_at = min(give_up_at, now + self.patience)
            wait = self._wait(error, retries)
            if poor >= self.attempts or now + wait > give_up_at:
                raise TransientLLMError(
                    f"gave up after {retries} attempts in {now - started:.0f} s; the last one: {error}"
                ) from error
            await self.backoff.sleep(wait)

    def _wait(self, error: TransientLLMError, retries: int) -> float:
        """The seconds to wait after this failure."""
        asked = error.retry_after or 0.0
        if asked > self.longest_wait:
            raise TransientLLMError(
                f"asked to wait {asked:.0f} s, and we wait {self.longest_wait:.0f} s at most: {error}", asked
            ) from error
        if self.breaker.is_open and isinstance(error, ServerUnreachable):
            return 0.0  # the breaker tells when
        return asked + self.backoff.wait(retries)
