"""Async tests without a plug-in of pytest."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")


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
