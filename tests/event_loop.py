"""Async tests without a plug-in of pytest, and an event loop in which waiting takes no time."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


def async_test(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own. It must end within a minute and leave no task behind."""

    async def test_and_check(*arguments: P.args, **keywords: P.kwargs) -> None:
        await test(*arguments, **keywords)
        await wait_until(lambda: len(asyncio.all_tasks()) == 1)

    return async_test_with_tasks(functools.wraps(test)(test_and_check))


def async_test_with_tasks(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own. It must end within a minute; tasks may remain."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*arguments, **keywords)

        asyncio.run(bounded())

    return run


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; at most 5 seconds."""
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.002)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while all tasks wait, and then at once. Not for tasks that wait for threads
    or sockets."""

    def __init__(self) -> None:
        super().__init__(_NoWaiting())

    def time(self) -> float:
        return self._selector.seconds  # type: ignore[attr-defined,no-any-return]


class _NoWaiting(selectors.DefaultSelector):
    """Counts the seconds for which it should have waited."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait, and nothing will ever wake them"
            self.seconds += max(timeout, 0.0)
        return ready


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` in an event loop of virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
