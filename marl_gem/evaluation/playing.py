"""Playing the pending episodes of a plan within a budget, and storing them while others go on.

Episodes play at their own pace. Finished ones are collected while a thread writes the batch before them, and an episode
counts when it is on disk. An episode that fails because of infrastructure (a server, a scenario's bug, a tool, an
agent's crash) is no result: it goes to errors.jsonl, stays pending, and is played again when the run is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import NamedTuple, Protocol, Self

from marl_gem.evaluation.budget import Budget, spendings
from marl_gem.evaluation.plan import Plan, Slot
from marl_gem.evaluation.result_store import Recorded, ResultStore
from marl_gem.evaluation.summary import EpisodeSummary
from marl_gem.rollout import Job, stream
from marl_gem.types import EpisodeError

HOPELESS = 20
"""When so many episodes have failed one after the other, no new one starts: the rest would fail, too."""

GATHER = 0.05
"""Seconds for which finished episodes are collected, so that there are at most twenty writes a second."""


class Progress(NamedTuple):
    """How far a run is: `done` episodes of `total` are on disk, and `failed` ones are pending after a failure.

    `success` is each agent's share of successes so far. `cost` (US dollars) is None if any price is unknown. `left` is
    how many seconds the rest will take at this pace and `cost_left` what it will cost, None where it is unknown.
    """

    done: int
    total: int
    failed: int
    success: dict[str, float]
    tokens: int
    cost: float | None
    seconds: float
    left: float | None
    cost_left: float | None


class Slots(AsyncIterator[Slot]):
    """The slots that are left to play. A limit may hold some back until others have finished.

    Take them by `take`, or by iteration, also from several tasks, which then wait for those that are held back.

    Args:
        next_slot: gives the next slot, None if there is none now, and raises StopIteration if there are no more.
    """

    def __init__(self, next_slot: Callable[[], Slot | None]) -> None:
        self._next = next_slot
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.ended = False
        """Whether there are no more."""

    def take(self) -> Slot | None:
        """The next slot; None if there is none now, or if they have ended."""
        if self.ended:
            return None
        try:
            return self._next()
        except StopIteration:
            self.ended = True
            return None

    async def __anext__(self) -> Slot:
        while True:
            slot = self.take()
            if slot or self.ended:
                self.wake()  # the next may be free, too
                if slot:
                    return slot
                raise StopAsyncIteration
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def wake(self) -> None:
        """Let a task that waits look again: something has finished."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return


class _Jobs(AsyncIterator[Job]):
    """The jobs of slots."""

    def __init__(self, plan: Plan, slots: Slots) -> None:
        self._plan, self._slots = plan, slots

    async def __anext__(self) -> Job:
        return self._plan.job(await anext(self._slots))


class Players(Protocol):
    """Who plays the slots: this process, or several. It is used as a context."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    def play(self, slots: Slots, concurrency: int) -> AsyncGenerator[Recorded, None]:
        """Play slots, at most so many at once, and yield each as it finishes. `slots` is consumed lazily."""
        ...

    def revoke(self) -> None:
        """Begin no slot any more, also none that was taken from `slots`."""
        ...


class InThisProcess:
    """Plays in the event loop of the caller."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Nothing is left to do."""

    async def play(self, slots: Slots, concurrency: int) -> AsyncGenerator[Recorded, None]:
        plan = self._store.plan
        episodes = stream(plan.scenario.make, _Jobs(plan, slots), concurrency=concurrency)
        async with contextlib.aclosing(episodes):
            async for episode in episodes:
                yield self._store.record(episode)

    def revoke(self) -> None:
        """Nothing is taken before it begins."""


class Playing:
    """A run at work: one task collects what finishes, another writes it to disk.

    `stopped` says why it ended early, and is empty if it did not. Errors of the types in `expected` say nothing about
    the episodes that follow, so that the run goes on however many there are.
    """

    def __init__(
        self,
        store: ResultStore,
        players: Players,
        budget: Budget,
        stop: Callable[[], bool],
        watch: Callable[[Progress], None] | None,
        expected: Collection[str] = (),
    ) -> None:
        self.stopped = ""
        self._expected = expected
        self._results, self._players, self._budget, self._stop, self._watch = store, players, budget, stop, watch
        self._begun = time.monotonic()
        self._done_before = len(store.finished)
        self._started = self._ended = self._stored = self._failed_in_a_row = 0
        self._spending = spendings(budget, store.finished.values(), store.tokens, store.cost)
        self._left = (slot for slot in store.plan.slots.values() if slot.id not in store.finished)
        self._slot: Slot | None = None  # the next, if it was looked at already
        self._hopeless: EpisodeError | None = None
        self._counts_money = budget.cost is not None or store.plan.numbers.limits.cost is not None
        self._unpriced = self._counts_money and store.cost is None
        self._finished: asyncio.Queue[Recorded | None] = asyncio.Queue()  # None: nothing more will come
        self._played_out = asyncio.Event()

    async def finish(self, concurrency: int) -> None:
        """Play until nothing is pending, or the run is stopped."""
        playing = asyncio.create_task(self._play(concurrency))
        playing.add_done_callback(lambda _: self._played_out.set())
        storing = asyncio.create_task(self._store())
        try:
            await asyncio.wait({playing, storing}, return_when=asyncio.FIRST_COMPLETED)  # storing only if it fails
        finally:
            playing.cancel()
            await asyncio.wait({playing})
            self._finished.put_nowait(None)
            await asyncio.wait({storing})
        await storing
        await playing

    async def _play(self, concurrency: int) -> None:
        slots = Slots(self._next_slot)
        async with contextlib.aclosing(self._players.play(slots, concurrency)) as played:
            async for recorded in played:
                self._count(recorded.summary)
                self._finished.put_nowait(recorded)
                slots.wake()

    def _count(self, summary: EpisodeSummary) -> None:
        """Note what an episode says about those that follow."""
        self._ended += 1
        error = summary.error
        if error is None or error.type not in self._expected:
            self._failed_in_a_row = self._failed_in_a_row + 1 if error else 0
        if self._failed_in_a_row >= HOPELESS:
            self._hopeless = error
        if self._counts_money and summary.cost is None:
            self._unpriced = True
        for name, spending in self._spending.items():
            spending.add((summary.tokens if name == "tokens" else summary.cost) or 0, failed=error is not None)

    async def _store(self) -> None:
        """Write batch after batch; what finishes while one is being written is the next."""
        ended = False
        while not ended:
            batch = [await self._finished.get()]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._played_out.wait(), GATHER)
            while not self._finished.empty():
                batch.append(self._finished.get_nowait())
            ended = None in batch
            episodes = [recorded for recorded in batch if recorded]
            await self._results.store(episodes)
            self._stored += len(episodes)
            if episodes and self._watch:
                self._watch(self._progress())

    def _next_slot(self) -> Slot | None:
        """See `Slots`."""
        if self._slot is None:
            self._slot = next(self._left)
        live = self._started - self._ended
        self.stopped = self._reason_to_stop(live)
        if self.stopped:
            self._players.revoke()
            raise StopIteration
        alone = self._counts_money and not self._ended  # the first shows whether prices are known, at little cost
        if live and (alone or not all(spending.has_room(live) for spending in self._spending.values())):
            return None
        slot, self._slot = self._slot, None
        self._started += 1
        return slot

    def _reason_to_stop(self, live: int) -> str:
        results, budget = self._results, self._budget
        if self._stop():
            return "interrupted"
        if budget.seconds is not None and time.monotonic() - self._begun >= budget.seconds:
            return f"the run's {budget.seconds:g} seconds are over"
        if budget.episodes is not None and len(results.finished) + self._started - self._stored >= budget.episodes:
            return f"the run's {budget.episodes} episodes are played"
        if self._unpriced:
            return "the price of some answers is unknown, so no limit on money can hold; give prices, or no such limit"
        for name, spending in self._spending.items():
            amount = _amount(name, spending.limit)
            if spending.is_over:
                return f"the run's {amount} are used up"
            if not live and not spending.has_room(0):
                each = _amount(name, spending.mean)
                return f"of the run's {amount}, {_amount(name, spending.used)} are used; an episode takes about {each}"
        if self._hopeless:
            return f"too many episodes failed one after the other, the last with: {self._hopeless.message}"
        return ""

    def _progress(self) -> Progress:
        results, seconds = self._results, time.monotonic() - self._begun
        done, total = len(results.finished), len(results.plan.slots)
        pace = (done - self._done_before) / seconds if seconds else 0.0
        return Progress(
            done=done,
            total=total,
            failed=len(results.failures),
            success={agent: count / results.episodes_of[agent] for agent, count in results.successes.items()},
            tokens=results.tokens,
            cost=results.cost,
            seconds=seconds,
            left=(total - done) / pace if pace else None,
            cost_left=results.cost / done * (total - done) if results.cost is not None and done else None,
        )


def _amount(name: str, value: float) -> str:
    """An amount of what a limit limits."""
    return f"${value:.3g}" if name == "cost" else f"{value:.0f} {name}"
