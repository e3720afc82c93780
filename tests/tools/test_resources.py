"""Pools of resources: at most so many, in order, reset, replaced when they die, and given back however it ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import ConfigError, ResourceError
from marl_gem.tools import Context, Resource, ResourcePool, tool
from marl_gem.tools.resources import submit

ROOT = Path(__file__).parents[2]


class Desk(Resource):
    """A resource that notes what happens to it."""

    made: list[Desk]
    fails = ""

    def __init__(self) -> None:
        self.papers: list[str] = []
        self.events: list[str] = []
        self.alive = True

    async def start(self) -> None:
        self._happens("start")

    async def reset(self) -> None:
        self._happens("reset")
        self.papers = []

    async def healthy(self) -> bool:
        self._happens("healthy")
        return self.alive

    async def stop(self) -> None:
        self._happens("stop")
        self.alive = False

    def _happens(self, event: str) -> None:
        self.events.append(event)
        if self.fails == event:
            raise OSError(f"{event} failed")


@pytest.fixture
def desks() -> list[Desk]:
    """All desks that were made in this test."""
    return []


@pytest.fixture
def pool(desks: list[Desk]) -> Any:
    def make() -> Desk:
        desks.append(Desk())
        return desks[-1]

    made = ResourcePool(make, size=2, timeout=30.0, name="desk")
    yield made
    asyncio.run(made.close())


def settled(pool: ResourcePool[Any]) -> None:
    """Wait until the pool has taken back what was given back."""
    for _ in range(10_000):
        submit(asyncio.sleep(0)).result()
        if pool.in_use == 0:
            return
    raise AssertionError(f"{pool.in_use} are still in use")


def test_nothing_is_started_before_it_is_needed(pool: ResourcePool[Desk], desks: list[Desk]) -> None:
    assert (pool.live, desks) == (0, [])
    with pool.lease() as desk:
        assert desk.events == ["start"] and (pool.live, pool.in_use) == (1, 1)
    assert (pool.live, pool.in_use) == (1, 0)


def test_what_comes_back_has_been_reset_and_is_used_again(pool: ResourcePool[Desk], desks: list[Desk]) -> None:
    with pool.lease() as desk:
        desk.papers.append("secret")
    with pool.lease() as again:
        assert again is desk and again.papers == []
    assert desk.events == ["start", "reset", "healthy", "reset"] and len(desks) == 1


def test_two_that_are_asked_for_are_two(pool: ResourcePool[Desk]) -> None:
    with pool.lease() as first, pool.lease() as second:
        assert first is not second


def test_a_waiter_wakes_when_one_is_given_back_and_the_first_is_served_first(pool: ResourcePool[Desk]) -> None:
    order: list[int] = []

    async def use(number: int) -> None:
        async with pool.lease():
            order.append(number)

    async def play() -> None:
        first, second = await pool.acquire(), await pool.acquire()
        waiting = []
        for number in range(5):
            waiting.append(asyncio.create_task(use(number)))
            while len(pool._waiting) <= number:
                await asyncio.sleep(0)
        await pool.release(first)
        await asyncio.gather(*waiting)
        await pool.release(second)

    asyncio.run(play())
    assert order == [0, 1, 2, 3, 4] and (pool.live, pool.in_use) == (2, 0)


def test_waiting_ends_with_an_error_that_says_what_to_do(desks: list[Desk]) -> None:
    pool = ResourcePool(Desk, size=1, timeout=0.05)
    with pool.lease():
        with pytest.raises(ResourceError, match=r"Desk: none was free within 0.05 s; all 1 are in use. Make the pool"):
            pool.lease().__enter__()
        assert len(pool._waiting) == 0
    with pool.lease():
        pass  # it was given back


@pytest.mark.parametrize("event", ["start", "healthy", "reset"])
def test_one_that_fails_is_stopped_and_replaced(pool: ResourcePool[Desk], desks: list[Desk], event: str) -> None:
    if event == "start":
        Desk.fails = event
        try:
            with pytest.raises(ResourceError, match="desk: it cannot be started: OSError: start failed"):
                pool.lease().__enter__()
        finally:
            Desk.fails = ""
    else:
        with pool.lease() as desk:
            desk.fails = event
    with pool.lease() as other:
        assert other is not desks[0]
    assert desks[0].events[-1] == "stop" and (pool.live, pool.in_use) == (1, 0)


def test_a_dead_one_is_replaced(pool: ResourcePool[Desk], desks: list[Desk]) -> None:
    with pool.lease() as desk:
        desk.alive = False
    with pool.lease() as other:
        assert other is not desk and other.alive
    assert "stop" in desk.events


def test_one_that_cannot_be_stopped_is_a_warning(pool: ResourcePool[Desk]) -> None:
    with pool.lease() as desk:
        desk.fails = "stop"
        with pytest.warns(RuntimeWarning, match="desk: a resource could not be stopped: OSError: stop failed"):
            asyncio.run(pool.release(desk, broken=True))
    assert pool.live == 0


def test_a_caller_that_is_cancelled_leaves_nothing_behind(pool: ResourcePool[Desk]) -> None:
    async def play() -> None:
        first, second = await pool.acquire(), await pool.acquire()
        waiter = asyncio.create_task(pool.acquire())
        while not pool._waiting:
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        await pool.release(first)
        await pool.release(second)

    asyncio.run(play())
    settled(pool)
    assert len(pool._waiting) == 0


def test_a_closed_pool_stops_all_and_gives_no_more(pool: ResourcePool[Desk], desks: list[Desk]) -> None:
    async def play() -> None:
        await pool.acquire()
        await pool.acquire()
        waiter = asyncio.create_task(pool.acquire())
        while not pool._waiting:
            await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ResourceError, match="closed"):
            await waiter
        with pytest.raises(ResourceError, match="closed"):
            await pool.acquire()

    asyncio.run(play())
    assert pool.live == 0 and [desk.events[-1] for desk in desks] == ["stop", "stop"]


@pytest.mark.parametrize(("size", "timeout"), [(0, 1.0), (True, 1.0), (2, 0), (2, "long")])
def test_sizes_and_times_that_make_no_sense(size: Any, timeout: Any) -> None:
    with pytest.raises(ConfigError, match="ResourcePool: "):
        ResourcePool(Desk, size, timeout)


def test_copies_share_a_pool() -> None:
    pool = ResourcePool(Desk, size=1)
    assert deepcopy(pool) is pool and pickle.loads(pickle.dumps(pool)) is pool
    assert ResourcePool.of(Desk) is ResourcePool.of(Desk)


# In tools


def desk_tools(pool: ResourcePool[Desk]) -> tuple[Any, Any]:
    @tool(resources={"desk": pool}, in_thread=False)
    def put(paper: str, desk: Desk) -> str:
        desk.papers.append(paper)
        return ", ".join(desk.papers)

    @tool(resources={"left": pool, "right": pool})
    def compare(left: Desk, right: Desk) -> str:
        return "same" if left is right else "two"

    return put, compare


def test_an_agent_keeps_its_resource_until_its_episode_ends(pool: ResourcePool[Desk]) -> None:
    put, _ = desk_tools(pool)
    ann = Context("ann")
    bob = Context("bob", leases=ann.leases)

    async def play() -> list[str]:
        calls = [(ann, "a"), (bob, "b"), (ann, "c")]
        return [(await put.call({"paper": paper}, context)).text for context, paper in calls]

    assert list(put.spec.parameters["properties"]) == ["paper"]
    assert asyncio.run(play()) == ["a", "b", "a, c"]
    assert pool.in_use == 2
    ann.leases.release()
    settled(pool)
    assert asyncio.run(put.call({"paper": "d"})).text == "d"  # it has been reset


def test_two_resources_asked_for_in_one_call_are_two(pool: ResourcePool[Desk]) -> None:
    _, compare = desk_tools(pool)
    assert asyncio.run(compare.call({})).text == "two"
    settled(pool)


def test_a_copy_of_the_episode_has_a_resource_in_the_same_state(pool: ResourcePool[Desk]) -> None:
    put, _ = desk_tools(pool)
    ann = Context("ann")

    def say(paper: str, context: Context) -> str:
        return asyncio.run(put.call({"paper": paper}, context)).text

    say("a", ann)
    fork = Context("ann", leases=deepcopy(ann.leases))
    assert say("b", ann) == "a, b"
    assert say("c", fork) == "a, c"
    ann.leases.release()
    fork_of_fork = Context("ann", leases=deepcopy(fork.leases))
    assert say("d", fork_of_fork) == "a, c, d"
    for context in (fork, fork_of_fork):
        context.leases.release()
    settled(pool)


def test_a_resource_that_died_between_two_calls_is_replaced(pool: ResourcePool[Desk], desks: list[Desk]) -> None:
    put, _ = desk_tools(pool)
    context = Context("ann")
    asyncio.run(put.call({"paper": "a"}, context))
    desks[0].alive = False
    assert asyncio.run(put.call({"paper": "b"}, context)).text == "b"
    context.leases.release()
    settled(pool)
    assert pool.live == 1


def test_a_call_that_takes_too_long_loses_its_resource(pool: ResourcePool[Desk], desks: list[Desk]) -> None:
    @tool(resources={"desk": pool}, timeout=0.05)
    async def hang(desk: Desk) -> None:
        await asyncio.sleep(60)

    assert asyncio.run(hang.call({})).error == "time-out"
    settled(pool)
    assert desks[0].events[-1] == "stop" and pool.live == 0


def test_what_the_pool_cannot_give_is_an_error_of_the_infrastructure() -> None:
    pool = ResourcePool(Desk, size=1, timeout=0.05)
    put, _ = desk_tools(pool)
    with pool.lease(), pytest.raises(ResourceError, match="none was free"):
        asyncio.run(put.call({"paper": "a"}))


def test_leases_that_are_dropped_give_back_what_they_had(pool: ResourcePool[Desk]) -> None:
    put, _ = desk_tools(pool)
    context = Context("ann")
    asyncio.run(put.call({"paper": "a"}, context))
    del context
    settled(pool)


# The end of the process

CHILD = """
import asyncio, os, subprocess, sys, time
from marl_gem.tools import Resource, ResourcePool

class Sleeper(Resource):
    async def start(self):
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    async def stop(self):
        self.process.kill()
        self.process.wait()
        print("stopped", flush=True)

pool = ResourcePool(Sleeper, size=1)
sleeper = asyncio.run(pool.acquire())
print(sleeper.process.pid, flush=True)
if sys.argv[1] == "wait":
    while True:
        time.sleep(0.05)
if sys.argv[1] == "raise":
    raise RuntimeError("the program fails")
if sys.argv[1] == "fork":
    if (child := os.fork()) == 0:
        assert pool.live == 0 and pool.in_use == 0
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
"""


def begin(what: str) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-c", CHILD, what]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", ["exit", "raise", "fork", "Ctrl-C", "kill"])
def test_the_end_of_the_process_leaves_nothing_behind(how: str) -> None:
    process, pid = begin(how if how in ("raise", "fork") else "exit" if how == "exit" else "wait")
    if how in ("Ctrl-C", "kill"):
        process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
    with process:
        assert process.stdout is not None
        output = process.stdout.read()
    assert ("stopped" in output) == (how != "kill"), output
    assert output.count("stopped") <= 1
    gone = threading.Event()
    for _ in range(600):
        if not exists(pid):
            gone.set()
            break
        threading.Event().wait(0.05)
    assert gone.is_set()
