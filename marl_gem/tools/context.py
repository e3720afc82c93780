"""What a tool may know of a call besides its arguments, and the resources that an episode has taken from pools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from marl_gem.errors import LLMError, ResourceError
from marl_gem.tools.resources import Resource, ResourcePool, submit

Scope: TypeAlias = Literal["agent", "episode", "call"]
"""Who uses a resource: one agent for an episode, all agents of an episode, or one call alone."""

Use: TypeAlias = Callable[[Mapping[str, Any], "Context"], Awaitable[Any]]
"""What is done with resources, which it gets by the names of the parameters, and the context of the call."""


class Leases:
    """The resources that one episode has taken from pools, to be given back together.

    A copy has no resources; when it first needs one it takes another from the pool, and what was done with the
    original is done again. So the copies of an episode are independent of each other.
    """

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str, int], tuple[ResourcePool[Any], Resource]] = {}  # by key, parameter and pool
        self._uses: dict[str, list[_Use]] = {}
        self._replay: dict[str, list[_Use]] = {}
        self._states: dict[tuple[str, object], Any] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._released = False

    async def use(self, key: str, pools: Mapping[str, ResourcePool[Any]], use: Use, context: Context) -> Any:
        """Do something with the resources of a key; call it in the event loop of the resources.

        They are taken from their pools at the first use, and stay with this episode: uses of the same key get the same
        resource under the same name from the same pool, and another one under another name. Uses of a key wait for each
        other. If a use is cancelled, which is what a time limit does, its resources are stopped.

        Raises:
            ResourceError: a pool could not give a resource, or the episode is over.
        """
        async with self._turns.setdefault(key, asyncio.Lock()):
            for earlier in self._replay.pop(key, ()):
                try:
                    await self._use(key, earlier, None)
                except (ResourceError, LLMError):
                    raise
                except Exception:
                    pass  # it raised when it was done first, too
            return await self._use(key, _Use(use, pools, context.agent, context.seed), context.env)

    async def use_once(self, pools: Mapping[str, ResourcePool[Any]], use: Use, context: Context) -> Any:
        """Do something with resources that are given back afterwards; call it in the event loop of the resources."""
        leases = Leases()
        try:
            return await leases.use("", pools, use, context)
        finally:
            leases.release()

    def state(self, key: str, make: Callable[[], Any]) -> Any:
        """An object that belongs to this episode, made at the first call. A copy of the episode has a copy of it."""
        if (key, make) not in self._states:
            self._states[key, make] = make()
        return self._states[key, make]

    def release(self) -> None:
        """Give all resources back, without waiting for it. What is used after that raises ResourceError."""
        self._released = True
        if self._taken:
            submit(self._release_all())

    async def _use(self, key: str, use: _Use, env: Any) -> Any:
        resources = {name: await self._get(key, name, pool) for name, pool in use.pools.items()}
        try:
            value = await use.function(resources, Context(use.agent, use.seed, env, self))
        except asyncio.CancelledError:
            await self._discard(key)
            raise
        except BaseException:
            self._uses.setdefault(key, []).append(use)
            raise
        self._uses.setdefault(key, []).append(use)
        return value

    async def _get(self, key: str, name: str, pool: ResourcePool[Any]) -> Resource:
        slot = key, name, id(pool)
        if slot in self._taken:
            _, taken = self._taken[slot]
            if await pool._is_healthy(taken):
                return taken
            del self._taken[slot]
            self._uses.pop(key, None)  # its state is lost
            await pool._release(taken, broken=True)
        resource: Resource = await pool._acquire()
        self._taken[slot] = pool, resource
        if self._released:
            await self._release_all()
            raise ResourceError(f"{pool.name}: the episode that asked for it is over")
        return resource

    async def _discard(self, key: str) -> None:
        self._uses.pop(key, None)
        for taken in [taken for taken in self._taken if taken[0] == key]:
            pool, resource = self._taken.pop(taken)
            await pool._release(resource, broken=True)

    async def _release_all(self) -> None:
        while self._taken:
            _, (pool, resource) = self._taken.popitem()
            await pool._release(resource)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._copy(deepcopy(self._states, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._copy(self._states)._replay, self._states)

    def _copy(self, states: dict[Any, Any]) -> Self:
        fork = type(self)()
        fork._states = states
        for uses in (self._replay, self._uses):
            for key, entries in uses.items():
                fork._replay.setdefault(key, []).extend(entries)
        return fork

    def __del__(self) -> None:
        if getattr(self, "_taken", None):
            with suppress(Exception):
                self.release()


@dataclass(frozen=True)
class Context:
    """What a tool may know of a call besides its arguments. A model sees nothing of it."""

    agent: str = ""
    """The id of the agent that calls."""

    seed: int = 0
    """For random choices: it depends on the episode's seed, the agent and the number of its call."""

    env: Any = None
    """The env in which the agent plays, None outside of one. Tools read it; only its steps change it."""

    leases: Leases = field(default_factory=Leases)
    """The resources that this episode has taken from pools."""


@dataclass(frozen=True)
class _Use:
    """A use of resources, as it is done again in a copy of the episode; without the env, which has gone on."""

    function: Use
    pools: Mapping[str, ResourcePool[Any]]
    agent: str
    seed: int


def _restored(replay: dict[str, list[_Use]], states: dict[Any, Any]) -> Leases:
    leases = Leases()
    leases._states, leases._replay = states, replay
    return leases
