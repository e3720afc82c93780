"""Retries of model calls, with exponential backoff and a circuit breaker.

    policy = LLMPolicy(Retrying(HTTPModel("http://127.0.0.1:8000/v1")))

Only `TransientLLMError` is retried; `marl_gem.llm.http` lists which faults of a server raise it. There are two
kinds. A server that answers with an error gets `attempts` chances per call. An unreachable server
(`ServerUnreachable`) is retried for up to `patience` seconds. While it is unreachable, the circuit breaker lets one
call through at a time, the half-open probe, and all other callers wait for its result. One line in the log, which
Python shows on stderr, says which server is waited for, how long, and how to change that. Waits and failed attempts do
not count against an episode's limit of seconds (see `marl_gem.episode_clock`).

Nothing else in this package retries.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from marl_gem.episode_clock import infrastructure, waiting_for_model
from marl_gem.errors import ConfigError, LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm import LLM, Sampling
from marl_gem.printable import printable
from marl_gem.types import Message, Response, ToolSpec

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that an unreachable server is waited for: enough for a restart of a small server, too short to be left alone
with for an hour. `--wait SECONDS`, or `wait=SECONDS` in a policy's text, sets another time."""

ANNOUNCE_AFTER = 1.0
"""Seconds after which the log says that a server is waited for; shorter outages are not worth a line."""


class Backoff:
    """Waiting times between attempts: uniform between 0 and a bound that doubles each time ("full jitter").

    Source: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        first: the bound before the second attempt, in seconds.
        cap: the greatest bound, in seconds.
        rng: the generator that the waiting times are drawn from.
        clock: returns the time in seconds; replaced in tests.
        sleep: waits for so many seconds; replaced in tests.
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
        """The seconds to wait after this many failures in a row, from 1 up."""
        return self._rng.uniform(0.0, min(self.cap, self.first * 2.0 ** min(failures - 1, 60)))


class CircuitBreaker:
    """Limits the calls to an unreachable server.

    Closed, it lets every call through. After `failures` calls in a row found the server unreachable it opens: one
    caller, the half-open probe, tries again after a backoff, and all others wait. If the probe is answered, the
    breaker closes and all go ahead. If it is not, the next caller becomes the probe, after a longer backoff. Once the
    server has been unreachable for `patience` seconds, all waiting callers fail, and later calls fail immediately,
    except for a probe now and then.

    One breaker belongs to one server and may be shared by several `Retrying`. It is not thread-safe.

    Args:
        failures: consecutive unreachable calls after which the breaker opens.
        patience: seconds after which waiting callers fail.
        backoff: the waiting times between probes.

    Raises:
        ConfigError: `patience` is no number from 0 up.
    """

    def __init__(self, failures: int = 5, patience: float = PATIENCE, backoff: Backoff | None = None) -> None:
        _check_seconds("patience", patience)
        self.failures, self.patience = failures, patience
        self._backoff = backoff or Backoff()
        self._failed = 0
        self._announced = False
        self._unreachable_since = self._next_probe = 0.0
        self._probing = False
        self._waiting: list[asyncio.Future[None]] = []
        self._last: ServerUnreachable | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server counts as unreachable."""
        return self._failed >= self.failures

    async def enter(self) -> bool:
        """Wait until a call may be made; `leave` must be called with its result.

        Returns:
            Whether the call is the half-open probe.

        Raises:
            TransientLLMError: the server has been unreachable for `patience` seconds.
        """
        while self.is_open:
            now = self._backoff.clock()
            seconds = now - self._unreachable_since
            if self._probing:
                probe_ended = asyncio.get_running_loop().create_future()
                self._waiting.append(probe_ended)
                with infrastructure():
                    await probe_ended
            elif seconds >= self.patience and now < self._next_probe:
                raise TransientLLMError(f"unreachable for {seconds:.0f} s, in {self._failed} attempts: {self._last}")
            else:
                await self._become_probe(self._next_probe - now)
                return True
        return False

    async def _become_probe(self, wait: float) -> None:
        """Make the caller the half-open probe, after this many seconds."""
        self._probing = True
        try:
            if wait > 0:
                with infrastructure():
                    await self._backoff.sleep(wait)
        except BaseException:
            self._end_probe()
            raise

    def leave(self, probe: bool, error: BaseException | None) -> None:
        """Report the result of a call.

        Args:
            probe: what `enter` returned for it.
            error: what the call raised; None if it was answered.
        """
        if isinstance(error, ServerUnreachable):
            self._last, now = error, self._backoff.clock()
            if not self._failed:
                self._unreachable_since = now
            if probe or not self.is_open:
                self._count_failure(error, now)
        elif error is None or isinstance(error, LLMError):  # any answer shows that the server is reachable
            if self._announced:
                _log.warning("reachable again after %.0f s", self._backoff.clock() - self._unreachable_since)
            self._failed, self._announced = 0, False
        if probe:
            self._end_probe()
        elif self._waiting and not self.is_open:
            self._wake()

    def _count_failure(self, error: ServerUnreachable, now: float) -> None:
        self._failed += 1
        if not self._announced and now - self._unreachable_since >= ANNOUNCE_AFTER:
            self._announced = True
            _log.warning(
                "%s Its calls wait up to %g s for it; --wait SECONDS changes that, for one model wait=SECONDS "
                "after its URL",
                printable(str(error)).rstrip(".") + ("" if str(error).endswith("?") else "."),
                self.patience,
            )
        self._next_probe = now + self._backoff.wait(max(1, self._failed - self.failures + 1))
        end = self._unreachable_since + self.patience
        if now < end:
            self._next_probe = min(self._next_probe, end)  # one last probe before the waiting callers fail

    def _end_probe(self) -> None:
        self._probing = False
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for probe_ended in waiting:
            if not probe_ended.done():
                probe_ended.set_result(None)


class Retrying:
    """A model whose calls are retried; see the top of this file.

    Args:
        llm: the model.
        attempts: how often a call is made to a server that answers with an error.
        patience: seconds for which an unreachable server is waited for.
        retry_for: seconds after its first failure during which a call is made again to a server that answers with
            errors.
        longest_wait: a server that asks for a longer wait, in seconds, is not waited for.
        breaker: the circuit breaker; models of one server may share it.
        backoff: the waiting times.

    Raises:
        ConfigError: `attempts` is less than 1, or a time is no number from 0 up.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        attempts: int = 8,
        patience: float = PATIENCE,
        retry_for: float = 900.0,
        longest_wait: float = 120.0,
        breaker: CircuitBreaker | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        if attempts < 1:
            raise ConfigError(f"attempts is a number from 1 up, not {attempts}")
        for name, seconds in (("patience", patience), ("retry_for", retry_for), ("longest_wait", longest_wait)):
            _check_seconds(name, seconds)
        self.llm = llm
        self.attempts, self.patience, self.retry_for = attempts, patience, retry_for
        self.longest_wait = longest_wait
        self.backoff = backoff or Backoff()
        self.breaker = breaker or CircuitBreaker(patience=patience, backoff=self.backoff)

    @property
    def name(self) -> str:
        return self.llm.name

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer, retrying as often as allowed; `Response.retries` counts the retries.

        Raises:
            TransientLLMError: all attempts failed; the message gives their number, the seconds they took and the last
                error. A later call may succeed.
            LLMError: as the model raises it.
        """
        retries, answered_with_error, started = 0, 0, self.backoff.clock()
        last_retry = last_probe = float("inf")
        while True:
            probe = await self.breaker.enter()
            error: BaseException | None = None
            try:
                with waiting_for_model(self.name):
                    response = await self.llm.complete(messages, sampling, seed, tools)
                return msgspec.structs.replace(response, retries=response.retries + retries) if retries else response
            except TransientLLMError as failure:
                error = failure
            except BaseException as other:
                error = other
                raise
            finally:
                self.breaker.leave(probe, error)
            retries += 1
            now = self.backoff.clock()
            if isinstance(error, ServerUnreachable):
                limit = last_probe = min(last_probe, now + self.patience)
            else:
                answered_with_error += 1
                limit = last_retry = min(last_retry, now + self.retry_for)
                last_probe = float("inf")  # the server is there
            wait = self._wait(error, retries)
            if answered_with_error >= self.attempts or now + wait > limit:
                raise TransientLLMError(
                    f"gave up after {retries} attempts in {now - started:.0f} s; the last error: {error}"
                ) from error
            with infrastructure():
                await self.backoff.sleep(wait)

    def _wait(self, error: TransientLLMError, retries: int) -> float:
        """The seconds to wait after this failure.

        Raises:
            TransientLLMError: the server asks for more than `longest_wait`.
        """
        requested = error.retry_after or 0.0
        if requested > self.longest_wait:
            raise TransientLLMError(
                f"the server asks to wait {requested:.0f} s, and the limit is {self.longest_wait:.0f} s: {error}",
                requested,
            ) from error
        if self.breaker.is_open and isinstance(error, ServerUnreachable):
            return 0.0  # the breaker decides when the next call is made
        return requested + self.backoff.wait(retries)


def _check_seconds(name: str, seconds: float) -> None:
    if not seconds >= 0:  # nan is not
        raise ConfigError(f"{name} is a number of seconds from 0 up, not {seconds}")
