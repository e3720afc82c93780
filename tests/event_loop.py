"""Async tests without a plug-in of pytest."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")


def async_test(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own. It must end within a minute and leave no task behind."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*arguments, **keywords)
            await wait_until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

        asyncio.run(bounded())

    return run


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; at most 5 seconds."""
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.002)
