"""Playing a plan, so that it can be killed at any moment and lose nothing.

Episodes play at their own pace; finished ones gather while a thread writes the batch before them, and an episode
counts when it is on disk. What failed for infrastructure (a server, a scenario's bug, a tool, an agent's crash) is
no result: it goes to errors.jsonl, is owed, and is played again when the run is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import MissingPackage
from marl_gem.evaluation.journal import locked, write_whole
from marl_gem.evaluation.markdown import markdown
from marl_gem.evaluation.pictures import pictures
from marl_gem.evaluation.plan import (
    Ground,
    Numbers,
    Plan,
    Player,
    Seats,
    plan_evaluation,
    plan_grid,
    plan_tournament,
)
from marl_gem.evaluation.report import Report, build
from marl_gem.evaluation.result_store import ResultStore, stored_config
from marl_gem.evaluation.summary import summarize
from marl_gem.policies import Policy, RandomPolicy
from marl_gem.rollout import Job, stream
from marl_gem.types import Episode, EpisodeError, Limits

HOPELESS = 20
"""When so many episodes have failed one after the other, the rest would, too: no new one begins."""

GATHER = 0.05
"""Seconds in which finished episodes gather, so that there are no more than twenty writes in a second."""


class Budget(msgspec.Struct, frozen=True):
    """What a run may take at most; None sets no limit. When it is reached no new episode begins, and those that
    are live are played out, so that a run may take a little more.

    `episodes`, `tokens` and `cost` (US dollars) count all that the run's folder holds, `seconds` this call alone.
    """

    episodes: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None


class Progress(NamedTuple):
    """How far a run is: `done` episodes of `total` are on disk, `failed` ones are owed.

    `success` is each agent's share of successes so far. `cost` is None if any price is unknown. `left` is how many
    seconds the rest will take at this pace and `cost_left` what it will cost, None if nobody can say.
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


@dataclass(frozen=True)
class Result:
    """What came of a run. `stopped` says why it ended early; `owed` counts the episodes that --resume would play.

    `episodes` are those played if the run has no folder; else they are in its episodes.jsonl.
    """

    plan: Plan
    folder: Path | None
    report: Report
    owed: int
    stopped: str
    episodes: tuple[Episode, ...]


def evaluate(
    scenario: str | Callable[[], MultiAgentEnv],
    seats: Seats | Mapping[str, Policy | Player | Sequence[Policy | Player]],
    *,
    n: int | None = None,
    repeats: int = 1,
    seed: int = 0,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
) -> Result:
    """Play a scenario and report how it went.

    Args:
        scenario: an id, or what makes an env.
        seats: one policy for all seats, or one for each agent. If any seat has a list of policies, all
            combinations play, each in a folder of its own.
        n: how many tasks; by default all that the scenario counts, else 100.
        repeats: how often each task is played, with other random choices of the agents.
        seed: everything random follows from it.
        limits: of each episode.
        options: what `make` is given, for a scenario named by its id.
        out: the run's folder; without one nothing is written.
        resume: go on with the run in that folder; `n` and `repeats` may be greater than they were.
        concurrency: how many episodes are live at once.
        budget: of the whole run.

    Raises:
        ConfigError: a number makes no sense, or the folder holds something else or another configuration.
        AgentError: the seats are not those of the scenario, or one cannot be played at random.
        JournalError: the folder cannot be written, or another process works on it.
        RegistryError, MissingPackage: the scenario cannot be made.
    """
    ground, numbers = Ground.of(scenario, options), Numbers(n, repeats, seed, limits or Limits())
    if isinstance(seats, Mapping) and any(isinstance(who, Sequence) for who in seats.values()):
        listed = {agent: who if isinstance(who, Sequence) else [who] for agent, who in seats.items()}
        plan = plan_grid(ground, listed, numbers)
    else:
        plan = plan_evaluation(ground, seats, numbers)  # type: ignore[arg-type]  # no list is left
    return run(plan, out, resume=resume, concurrency=concurrency, budget=budget)


def tournament(
    scenario: str | Callable[[], MultiAgentEnv],
    players: Mapping[str, Policy | Player],
    *,
    n: int | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
) -> Result:
    """Let players meet in every ordered seating, `n` games each, and rate them. See `evaluate` for the rest."""
    plan = plan_tournament(Ground.of(scenario, options), players, Numbers(n, 1, seed, limits or Limits()))
    return run(plan, out, resume=resume, concurrency=concurrency, budget=budget)


def run(
    plan: Plan,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """Play what a plan has left, and report on all of it.

    Args:
        plan: what is to be played.
        out, resume, concurrency, budget: as for `evaluate`.
        stop: asked before each episode; once true no new one begins.
        watch: told how far the run is whenever episodes have come to disk.
    """
    playing = play(plan, out, resume=resume, concurrency=concurrency, budget=budget, stop=stop, watch=watch)
    return asyncio.run(playing)


async def play(
    plan: Plan,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """`run`, for those who have an event loop running already."""
    folder = None if out is None else Path(out)
    stored = None if folder is None else stored_config(folder, resume)
    if stored and plan.numbers.n is None:
        plan = replace(plan, numbers=msgspec.structs.replace(plan.numbers, n=stored["n"]))
    await _try_random_play(plan)
    with locked(folder) if folder else contextlib.nullcontext():
        book = ResultStore.open(plan, folder, resume)
        work = _Work(book, budget or Budget(), stop, watch)
        try:
            await work.play(concurrency)
        finally:
            book.close()
        report = build(plan, book.finished, book.failures, book.attempts, work.stopped)
        if folder:
            write_report(report, folder)
            for match in plan.matches:
                if match.folder:
                    write_report(build(plan.alone(match), book.finished, book.failures), folder / match.folder)
    return Result(plan, folder, report, report["episodes"]["owed"], work.stopped, tuple(book.kept))


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, the pictures (where matplotlib is installed) and report.md.

    Raises:
        JournalError: they cannot be written.
    """
    write_whole(folder / "report.json", json.dumps(report, indent=2) + "\n")
    drawn: dict[str, bytes] = {}
    with contextlib.suppress(MissingPackage):
        drawn = pictures(report)
    for name, content in drawn.items():
        write_whole(folder / name, content)
    write_whole(folder / "report.md", markdown(report, tuple(drawn)))


class _Work:
    """Playing what is owed: one task takes in what the rollout finishes, another brings it to disk."""

    def __init__(
        self, book: ResultStore, budget: Budget, stop: Callable[[], bool], watch: Callable[[Progress], None] | None
    ) -> None:
        self.stopped = ""
        self._book, self._budget, self._stop, self._watch = book, budget, stop, watch
        self._begun = time.monotonic()
        self._done_before = len(book.finished)
        self._started = self._stored = self._failed_in_a_row = self._unrecorded = 0
        self._hopeless: EpisodeError | None = None
        self._counts_money = budget.cost is not None or book.plan.numbers.limits.cost is not None
        self._unpriced = self._counts_money and book.cost is None
        self._finished: asyncio.Queue[Episode | None] = asyncio.Queue()  # None: nothing more will come
        self._played_out = asyncio.Event()

    async def play(self, concurrency: int) -> None:
        owed = len(self._book.plan.slots) - self._done_before
        playing = asyncio.create_task(self._play(min(concurrency, owed) if owed else concurrency))
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
        jobs = self._jobs()
        if self._counts_money:
            await self._play_through(itertools.islice(jobs, 1), 1)  # tells whether prices are known, for little
        await self._play_through(jobs, concurrency)

    async def _play_through(self, jobs: Iterator[Job], concurrency: int) -> None:
        episodes = stream(self._book.plan.ground.make, jobs, concurrency=concurrency)
        async with contextlib.aclosing(episodes):
            async for episode in episodes:
                self._finished.put_nowait(episode)
                self._failed_in_a_row = self._failed_in_a_row + 1 if episode.error else 0
                if self._failed_in_a_row >= HOPELESS:
                    self._hopeless = episode.error
                if self._counts_money and summarize(episode, contest=False).cost is None:
                    self._unpriced = True

    async def _store(self) -> None:
        """Whatever gathers while one batch is on its way to disk is the next."""
        ended = False
        while not ended:
            batch = [await self._finished.get()]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._played_out.wait(), GATHER)
            while not self._finished.empty():
                batch.append(self._finished.get_nowait())
            ended = None in batch
            episodes = [episode for episode in batch if episode]
            outcomes = await self._book.store(episodes)
            self._stored += len(outcomes)
            for episode, stored in zip(episodes, outcomes, strict=True):
                if stored.error and not episode.error:  # it was played, but no journal can hold it
                    self._unrecorded += 1
                    self._hopeless = stored.error if self._unrecorded >= HOPELESS else self._hopeless
            if episodes and self._watch:
                self._watch(self._progress())

    def _jobs(self) -> Iterator[Job]:
        for slot in self._book.plan.slots.values():
            if slot.id in self._book.finished:
                continue
            self.stopped = self._reason_to_stop()
            if self.stopped:
                return
            self._started += 1
            yield self._book.plan.job(slot)

    def _reason_to_stop(self) -> str:
        book, budget = self._book, self._budget
        if self._stop():
            return "interrupted"
        if budget.seconds is not None and time.monotonic() - self._begun >= budget.seconds:
            return f"the run's {budget.seconds:g} seconds are over"
        if budget.episodes is not None and len(book.finished) + self._started - self._stored >= budget.episodes:
            return f"the run's {budget.episodes} episodes are played"
        if budget.tokens is not None and book.tokens >= budget.tokens:
            return f"the run's {budget.tokens} tokens are used up"
        if budget.cost is not None and book.cost is not None and book.cost >= budget.cost:
            return f"the run's ${budget.cost:g} are used up"
        if self._unpriced:
            return "the price of some answers is unknown, so no limit on money can hold; give prices, or no such limit"
        if self._hopeless:
            return f"too many episodes failed one after the other, the last with: {self._hopeless.message}"
        return ""

    def _progress(self) -> Progress:
        book, seconds = self._book, time.monotonic() - self._begun
        done, total = len(book.finished), len(book.plan.slots)
        pace = (done - self._done_before) / seconds if seconds else 0.0
        return Progress(
            done=done,
            total=total,
            failed=len(book.failures),
            success={agent: count / book.episodes_of[agent] for agent, count in book.successes.items()},
            tokens=book.tokens,
            cost=book.cost,
            seconds=seconds,
            left=(total - done) / pace if pace else None,
            cost_left=book.cost / done * (total - done) if book.cost is not None and done else None,
        )


async def _try_random_play(plan: Plan) -> None:
    """Who plays at random needs legal actions; better told now than by every episode."""
    random_seats = {
        agent
        for match in plan.matches
        for agent, player in match.players.items()
        if isinstance(player.policy, RandomPolicy)
    }
    if not random_seats:
        return
    job = plan.job(next(iter(plan.slots.values())))
    env = plan.ground.make()
    try:
        observations, infos = env.reset(job.seed, job.options)
        for agent in random_seats & observations.keys():
            await RandomPolicy().agent(agent, env.role(agent), 0).act(observations[agent], infos[agent])
    finally:
        env.close()
