"""Resources that tools and scenarios use: processes, database connections, pages of a browser; and pools of them.

    class Database(Resource):
        async def start(self) -> None: ...
        async def reset(self) -> None: ...
        async def healthy(self) -> bool: ...
        async def stop(self) -> None: ...

    pool = ResourcePool(Database, size=8, timeout=30.0)
    async with pool.lease() as database: ...
    with pool.lease() as database: ...

All resources live in one event loop, which runs in a thread for as long as the process: whatever loop the code runs in
that uses them, and however often that is another one. At the end of the process all of them are stopped. A process that
is killed outright can stop nothing; so a resource that is a process should end when its standard input ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from marl_gem.errors import ConfigError, ResourceError
from marl_gem.faults import FAULTS, description, shown

PATIENCE = 10.0
"""Seconds that a resource may take to stop."""

Result = TypeVar("Result")


class Resource:
    """What a pool hands out. The methods run in the event loop of the resources, and must not block it for long."""

    async def start(self) -> None:
        """Begin: called once, before the first use."""

    async def reset(self) -> None:
        """Forget what the last user did: called after each use, before the next. Raise if that cannot be done."""

    async def healthy(self) -> bool:
        """Whether it can be used; one that cannot is stopped, and another takes its position."""
        return True

    async def stop(self) -> None:
        """End, whatever state it is in: called once, also if `start` has failed."""


Kind = TypeVar("Kind", bound=Resource)


class ResourcePool(Generic[Kind]):
    """At most `size` resources, which are started when they are needed and used again after a reset.

    Who asks first is served first. A resource that is not healthy, or cannot be reset, is stopped and replaced.

    Args:
        factory: makes a resource; it need not be started.
        size: the most resources that exist at the same time in this process; from 1 up.
        timeout: the seconds that a caller waits for a free resource, and that a start or a reset may take.
        name: for messages; by default the factory's.

    Raises:
        ConfigError: the size or the time-out is no positive number.
    """

    def __init__(self, factory: Callable[[], Kind], size: int, timeout: float = 60.0, name: str = "") -> None:
        if type(size) is not int or size < 1:
            raise ConfigError(f"ResourcePool: size is a number of resources from 1 up, not {shown(size)}")
        if not isinstance(timeout, (int, float)) or not timeout > 0:
            raise ConfigError(f"ResourcePool: timeout is a positive number of seconds, not {shown(timeout)}")
        self.size, self.timeout = size, timeout
        self.name = name or getattr(factory, "__name__", type(factory).__name__)
        self._factory = factory
        self._permits, self._closed = size, False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: list[Kind] = []
        self._live: list[Kind] = []
        _pools.add(self)

    @classmethod
    def of(cls, kind: type[Kind], size: int = 64) -> ResourcePool[Kind]:
        """The pool of a class that all those share who name no other."""
        pool = _pool_of_class.get(kind)
        if pool is None:
            pool = _pool_of_class.setdefault(kind, cls(kind, size))
        return pool  # type: ignore[no-any-return]

    @property
    def in_use(self) -> int:
        """How many resources are handed out, or being started or reset."""
        return self.size - self._permits

    @property
    def live(self) -> int:
        """How many resources exist."""
        return len(self._live)

    def lease(self) -> Lease[Kind]:
        """A resource for the time of a `with` or `async with` block."""
        return Lease(self)

    async def acquire(self) -> Kind:
        """A resource that nobody else uses until it is released.

        Raises:
            ResourceError: none was free in time, or it could not be started.
        """
        return await Lease(self).__aenter__()

    async def release(self, resource: Kind, broken: bool = False) -> None:
        """Give a resource back. It is reset before the next use; a broken one is stopped."""
        await in_resource_loop(self._release(resource, broken))

    async def close(self) -> None:
        """Stop all resources, those that are in use too; those who wait for one get an error."""
        await in_resource_loop(self._close())

    # In the event loop of the resources

    async def _acquire(self) -> Kind:
        await self._permit()
        try:
            while self._idle:
                resource = self._idle.pop()  # the one that was used last is the warmest
                if await self._is_healthy(resource):
                    return resource
                await self._stop(resource)
            return await self._start()
        except BaseException:
            self._return_permit()
            raise

    async def _permit(self) -> None:
        """Wait until fewer than `size` are in use; in the order of the callers."""
        if self._closed:
            raise ResourceError(f"{self.name}: the pool is closed")
        if self._permits:
            self._permits -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self.timeout):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                self._return_permit()
            if isinstance(error, TimeoutError):
                raise ResourceError(
                    f"{self.name}: none was free within {self.timeout:g} s; all {self.size} are in use. "
                    "Make the pool larger, or play fewer episodes at the same time"
                ) from None
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiter)

    def _return_permit(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._permits += 1

    async def _start(self) -> Kind:
        resource: Kind | None = None
        try:
            resource = self._factory()
            self._live.append(resource)
            async with asyncio.timeout(self.timeout):
                await resource.start()
            return resource
        except BaseException as error:
            if resource is not None:
                await self._stop(resource)
            if isinstance(error, FAULTS):
                raise ResourceError(f"{self.name}: it cannot be started: {description(error)}") from error
            raise

    async def _is_healthy(self, resource: Kind) -> bool:
        try:
            async with asyncio.timeout(self.timeout):
                return bool(await resource.healthy())
        except FAULTS:
            return False

    async def _release(self, resource: Kind, broken: bool = False) -> None:
        if not any(resource is other for other in self._live):
            return  # the pool was closed meanwhile
        try:
            if not broken:
                try:
                    async with asyncio.timeout(self.timeout):
                        await resource.reset()
                except FAULTS:
                    broken = True
            if broken or self._closed:
                await self._stop(resource)
            else:
                self._idle.append(resource)
        except BaseException:
            await self._stop(resource)
            raise
        finally:
            self._return_permit()

    async def _stop(self, resource: Kind) -> None:
        if not any(resource is other for other in self._live):
            return
        self._live = [other for other in self._live if other is not resource]
        try:
            async with asyncio.timeout(PATIENCE):
                await resource.stop()
        except FAULTS as error:
            text = f"{self.name}: a resource could not be stopped: {description(error)}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    async def _close(self) -> None:
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(ResourceError(f"{self.name}: the pool was closed"))
        self._idle.clear()
        await asyncio.gather(*(self._stop(resource) for resource in list(self._live)))

    def _forget(self) -> None:
        """Know of no resource: at the beginning, and in a forked process, whose parent has them."""
        self._permits, self._closed = self.size, False
        self._waiting.clear()
        self._idle.clear()
        self._live.clear()

    def __deepcopy__(self, memo: object) -> ResourcePool[Kind]:
        return self  # all envs share it

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._factory, self.size, self.timeout, self.name)


class Lease(Generic[Kind]):
    """A resource for the time of a block; see `ResourcePool.lease`. After an exception it is reset like any other."""

    def __init__(self, pool: ResourcePool[Kind]) -> None:
        self._pool = pool
        self._resource: Kind | None = None
        self._left = False

    async def __aenter__(self) -> Kind:
        try:
            return await in_resource_loop(self._enter())
        except BaseException:
            submit(self._exit())  # of a caller that was cancelled when the resource was ready
            raise

    async def __aexit__(self, *error: object) -> None:
        await asyncio.wrap_future(submit(self._exit()))

    def __enter__(self) -> Kind:
        future = submit(self._enter())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            submit(self._exit())
            raise

    def __exit__(self, *error: object) -> None:
        submit(self._exit()).result()

    async def _enter(self) -> Kind:
        self._resource = await self._pool._acquire()
        if self._left:
            await self._exit()
            raise asyncio.CancelledError
        return self._resource

    async def _exit(self) -> None:
        self._left = True
        resource, self._resource = self._resource, None
        if resource is not None:
            await self._pool._release(resource)


# The event loop of the resources


def submit(coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Run a coroutine in the event loop of the resources; from any thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop.get())


async def in_resource_loop(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Await a coroutine that runs in the event loop of the resources. Cancelling the caller cancels it."""
    loop = _loop.get()
    if asyncio.get_running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


class _ResourceLoop:
    """An event loop in a thread, from its first use to the end of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="marl_gem-resources", daemon=True).start()
            return self._loop

    def close(self) -> None:
        """Stop all resources of this process, at its end."""
        if self._loop is None:
            return
        with suppress(Exception):
            submit(_close_pools()).result(PATIENCE + 1.0)


async def _close_pools() -> None:
    await asyncio.gather(*(pool._close() for pool in list(_pools)), return_exceptions=True)


def _after_fork() -> None:
    """In a forked process the thread of the loop does not run, and the resources are the parent's."""
    global _loop
    _loop = _ResourceLoop()
    for pool in list(_pools):
        pool._forget()


def _unpickled(factory: Callable[[], Kind], size: int, timeout: float, name: str) -> ResourcePool[Kind]:
    """In another process, one pool for all that are equal."""
    key = (factory, size, timeout, name)
    if key not in _unpickled_pools:
        same = [p for p in _pools if (p._factory, p.size, p.timeout, p.name) == key]
        _unpickled_pools[key] = same[0] if same else ResourcePool(factory, size, timeout, name)
    return _unpickled_pools[key]


_loop = _ResourceLoop()
_pools: weakref.WeakSet[ResourcePool[Any]] = weakref.WeakSet()
_pool_of_class: dict[type[Resource], ResourcePool[Any]] = {}
_unpickled_pools: dict[Any, ResourcePool[Any]] = {}
atexit.register(lambda: _loop.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
