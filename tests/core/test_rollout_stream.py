"""Many episodes at once: order, threads, stopping early."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from marl_gem import (
    Episode,
    MultiAgentEnv,
    Response,
    Role,
)
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect, stream
from tests.core.rollout_scenarios import Blocking, ones, played
from tests.toys import Delayed, NumberGame, SimultaneousNumbers

# Many episodes


def test_collect_answers_in_the_order_of_the_jobs() -> None:
    slow_first = [Job(seed, Delayed(lambda _, s=seed: 0.01 * (5 - s))) for seed in range(5)]  # type: ignore[misc]
    assert [episode.seed for episode in collect(NumberGame, slow_first)] == [0, 1, 2, 3, 4]
    assert [episode.seed for episode in played(NumberGame, *slow_first)] == [4, 3, 2, 1, 0]


def test_a_fast_episode_is_yielded_while_a_slow_one_goes_on() -> None:
    async def first() -> tuple[Episode, float]:
        started = time.monotonic()
        episodes = stream(NumberGame, [Job(0, Delayed(lambda _: 30)), Job(1, ones)])
        episode = await anext(episodes)
        await episodes.aclose()
        return episode, time.monotonic() - started

    episode, seconds = asyncio.run(first())
    assert episode.seed == 1 and seconds < 5


def test_jobs_are_taken_one_by_one_so_there_may_be_any_number() -> None:
    taken: list[int] = []

    def endless() -> Iterator[Job]:
        while True:
            taken.append(len(taken))
            yield Job(len(taken), ones)

    async def some() -> list[int]:
        episodes = stream(NumberGame, endless(), concurrency=3)
        seeds = [(await anext(episodes)).seed for _ in range(10)]
        await episodes.aclose()
        return seeds

    assert sorted(asyncio.run(some())) == list(range(1, 11))
    assert len(taken) < 20


def test_there_are_as_many_envs_as_live_episodes_and_all_are_closed() -> None:
    made, closed = [], []

    class Closes(NumberGame):
        def close(self) -> None:
            closed.append(self)

    def make() -> MultiAgentEnv:
        made.append(Closes())
        return made[-1]

    episodes = collect(make, [Job(seed, Delayed(lambda _: 0.001)) for seed in range(20)], concurrency=4)
    assert len(episodes) == 20 and all(episode.returns == {"a": 2.0, "b": 2.0} for episode in episodes)
    assert len(made) == 4 and closed and set(map(id, closed)) == set(map(id, made))


def test_ids() -> None:
    assert [episode.id for episode in collect(NumberGame, [Job(5, ones), Job(5, ones, "x"), Job(5, ones)])] == [
        "0",
        "x",
        "2",
    ]
    with pytest.raises(ValueError, match="same id"):
        collect(NumberGame, [Job(5, ones, "x"), Job(6, ones, "x")])
    assert collect(NumberGame, []) == []


@pytest.mark.parametrize("concurrency", [0, -1])
def test_concurrency_below_one(concurrency: int) -> None:
    with pytest.raises(ValueError, match="from 1 up"):
        collect(NumberGame, [Job(0, ones)], concurrency=concurrency)


def test_acting_agents_answer_at_the_same_time() -> None:
    """Each waits until the other has been asked: one after the other, they would wait for ever."""
    asked = {"a": asyncio.Event(), "b": asyncio.Event()}

    class Meets:
        name = "meets"

        def agent(self, agent_id: str, role: Role, seed: int) -> Meets:
            self.events = asked[agent_id], asked["b" if agent_id == "a" else "a"]
            meets = Meets()
            meets.events = self.events
            return meets

        async def act(self, observation: Any, info: Any) -> Response:
            mine, other = self.events
            mine.set()
            await asyncio.wait_for(other.wait(), 5)
            return Response("1")

    (episode,) = collect(SimultaneousNumbers, [Job(0, Meets())])
    assert episode.error is None and len(episode.turns) == 8


# Threads


def test_blocking_envs_step_side_by_side_in_threads() -> None:
    kind: Any = type("SideBySide", (Blocking,), {"threads": set()})
    episodes = collect(kind, [Job(seed, ones) for seed in range(8)], concurrency=8)
    assert all(episode.returns == {"a": 2.0, "b": 2.0} for episode in episodes)
    assert kind.most > 1
    assert threading.current_thread().name not in kind.threads
    assert_no_threads()


def test_a_blocking_env_holds_up_nobody() -> None:
    """A hundred quick episodes pass beside some that hardly move."""

    quick_are_over = threading.Event()

    class Slow(Blocking):
        threads: ClassVar[set[str]] = set()

        def _process_actions(self, actions: dict[str, str]) -> None:
            if "slow" in actions.values():
                quick_are_over.wait(60)
            NumberGame._process_actions(self, actions)

    slow, order = ScriptedPolicy(lambda observation, info: "slow"), []
    jobs = [Job(seed, slow if seed < 3 else ones) for seed in range(103)]

    async def play() -> None:
        async for episode in stream(Slow, jobs, concurrency=6):
            order.append(episode.seed)
            if len(order) == 100:
                quick_are_over.set()

    asyncio.run(play())
    assert set(order[-3:]) == {0, 1, 2}


def test_threads_are_used_again() -> None:
    kind: Any = type("Again", (Blocking,), {"threads": set(), "seconds": 0.0})
    collect(kind, [Job(seed, ones) for seed in range(40)], concurrency=2)
    assert len(kind.threads) <= 2


def assert_no_threads() -> None:
    """The threads of blocking envs end, perhaps after a moment."""
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("marl_gem-env") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


# Stopping early


class Guarded(NumberGame):
    """Says when it is closed, and whether a step was under way then."""

    live: ClassVar[list[Guarded]] = []
    closed_at_work: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        self.at_work = False
        self.live.append(self)

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.at_work = True
        if self.blocking:
            time.sleep(0.1)
        self.at_work = False
        super()._process_actions(actions)

    def close(self) -> None:
        self.closed_at_work.append(self.at_work)
        self.live.remove(self)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("how", ["close", "cancel", "raise"])
def test_stopping_early_closes_envs_and_leaves_nothing_behind(how: str, blocking: bool) -> None:
    kind: Any = type(
        "GuardedOnce", (Guarded,), {"live": [], "closed_at_work": [], "blocking": blocking, "length": 10**9}
    )
    breaks = Job(0, ScriptedPolicy(["break"]))  # the only one that ever ends
    jobs = [breaks, *(Job(seed, Delayed(lambda _: 0.001)) for seed in range(5))]

    some_were_played = asyncio.Event()

    async def read() -> None:
        async for _ in stream(kind, jobs, concurrency=6):
            await until(lambda: len(kind.live) == 5)  # that episode's env is closed, the others play
            some_were_played.set()
            if how == "raise":
                raise LookupError("enough")

    async def stop() -> set[Any]:
        if how == "close":
            episodes = stream(kind, jobs, concurrency=6)
            await anext(episodes)
            await until(lambda: len(kind.live) == 5)
            await episodes.aclose()
        else:
            reader = asyncio.create_task(read())
            await some_were_played.wait()
            if how == "cancel":
                reader.cancel()
            with pytest.raises(LookupError if how == "raise" else asyncio.CancelledError):
                await reader
            gc.collect()  # whoever leaves a loop over a generator leaves its closing to Python
            await until(lambda: not kind.live and len(asyncio.all_tasks()) == 1)
        assert kind.live == []
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(stop()) == set()
    assert not any(kind.closed_at_work)
    assert_no_threads()
