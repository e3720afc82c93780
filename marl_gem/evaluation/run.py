"""Playing a plan. A run can be killed at any moment, and loses nothing that is on disk.

Episodes play at their own pace. Finished ones are collected while a thread writes the batch before them, and an episode
counts when it is on disk. An episode that fails because of infrastructure (a server, a scenario's bug, a tool, an
agent's crash) is no result: it goes to errors.jsonl, stays pending, and is played again when the run is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from marl_gem.errors import MissingPackage
from marl_gem.evaluation.build import build_report
from marl_gem.evaluation.markdown import markdown
from marl_gem.evaluation.pictures import pictures
from marl_gem.evaluation.plan import (
    Numbers,
    Plan,
    Player,
    Seats,
    plan_evaluation,
    plan_grid,
    plan_tournament,
)
from marl_gem.evaluation.report import Report
from marl_gem.evaluation.result_store import ResultStore, stored_config
from marl_gem.evaluation.summary import summarize
from marl_gem.policies import Policy, RandomPolicy
from marl_gem.rollout import Job, stream
from marl_gem.runs.files import write_file, write_json
from marl_gem.runs.folder import REPORT
from marl_gem.runs.lock import run_lock
from marl_gem.specs import ScenarioSpec, WrapperSpec
from marl_gem.specs.scenario import ScenarioSource
from marl_gem.types import Episode, EpisodeError, Limits

HOPELESS = 20
"""When so many episodes have failed one after the other, no new one starts: the rest would fail, too."""

GATHER = 0.05
"""Seconds for which finished episodes are collected, so that there are at most twenty writes a second."""


class Budget(msgspec.Struct, frozen=True):
    """The limits of a run; None sets no limit. When one is reached no new episode starts, and those that are live are
    played to their end, so that a run may take a little more."""

    # Finished episodes, all that the run's folder holds.
    episodes: int | None = None
    # Tokens that all models read and wrote, in all that the run's folder holds.
    tokens: int | None = None
    # Wall time of this call.
    seconds: float | None = None
    # US dollars, of all that the run's folder holds.
    cost: float | None = None


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


@dataclass(frozen=True)
class Result:
    """What came of a run.

    `stopped` says why it ended early, and is empty if it did not. `pending` counts the episodes that are left to play.
    `episodes` are those that were played if the run has no folder; else they are in its episodes.jsonl.
    """

    plan: Plan
    folder: Path | None
    report: Report
    pending: int
    stopped: str
    episodes: tuple[Episode, ...]


def evaluate(
    scenario: ScenarioSource,
    seats: Seats | Mapping[str, Policy | Player | Sequence[Policy | Player]],
    *,
    n: int | None = None,
    repeats: int = 1,
    seed: int = 0,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | WrapperSpec] = (),
    out: Path | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
) -> Result:
    """Play a scenario and report how it went.

    Args:
        scenario: an id, a `ScenarioSpec`, or a function that makes an env.
        seats: one policy for all seats, or one for each agent. If any seat has a list of policies, all
            combinations play, each in a folder within the run's.
        n: how many tasks; by default all that the scenario numbers, else 100.
        repeats: how often each task is played, with other random choices of the agents.
        seed: everything random follows from it.
        limits: of each episode.
        options: what `make` is given, for a scenario named by its id.
        wrappers: what is put around the env, such as "time_limit=20"; the innermost first.
        out: the run's folder; without one nothing is written.
        resume: continue the run in that folder; `n` and `repeats` may be greater than they were.
        concurrency: how many episodes are live at once.
        budget: the limits of the run.

    Raises:
        ConfigError: a number is out of range, or the folder holds something else or another configuration.
        AgentError: the seats are not those of the scenario, or one of them cannot be played at random.
        JournalError: the folder cannot be written, or another process works on it.
        RegistryError, MissingPackage: the scenario cannot be made.
    """
    spec, numbers = ScenarioSpec.parse(scenario, options, wrappers), Numbers(n, repeats, seed, limits or Limits())
    if isinstance(seats, Mapping) and any(isinstance(policies, Sequence) for policies in seats.values()):
        listed = {agent: found if isinstance(found, Sequence) else [found] for agent, found in seats.items()}
        plan = plan_grid(spec, listed, numbers)
    else:
        plan = plan_evaluation(spec, seats, numbers)  # type: ignore[arg-type]  # no list is left
    return run(plan, out, resume=resume, concurrency=concurrency, budget=budget)


def tournament(
    scenario: ScenarioSource,
    players: Mapping[str, Policy | Player],
    *,
    n: int | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | WrapperSpec] = (),
    out: Path | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
) -> Result:
    """Let named players meet in every ordered seating, `n` games each, and rate them. See `evaluate` for the rest."""
    spec = ScenarioSpec.parse(scenario, options, wrappers)
    plan = plan_tournament(spec, players, Numbers(n, 1, seed, limits or Limits()))
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
    """Play the pending episodes of a plan, and report on all of it.

    Args:
        plan: what is to be played.
        out, resume, concurrency, budget: as for `evaluate`.
        stop: called before each episode; once it returns true no new one starts.
        watch: called with the progress whenever episodes have been written to disk.
    """
    running = run_async(plan, out, resume=resume, concurrency=concurrency, budget=budget, stop=stop, watch=watch)
    return asyncio.run(running)


async def run_async(
    plan: Plan,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    concurrency: int = 64,
    budget: Budget | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """`run` for callers in an event loop."""
    folder = None if out is None else Path(out)
    stored = None if folder is None else stored_config(folder, resume)
    if stored and plan.numbers.n is None:
        plan = replace(plan, numbers=msgspec.structs.replace(plan.numbers, n=stored.n))
    await _check_random_seats(plan)
    with run_lock(folder) if folder else contextlib.nullcontext():
        store = ResultStore.open(plan, folder, resume)
        work = _Work(store, budget or Budget(), stop, watch)
        try:
            await work.finish(concurrency)
        finally:
            store.close()
        report = build_report(plan, store.finished, store.failures, store.attempts, work.stopped)
        if folder:
            write_report(report, folder)
            for match in plan.matches:
                if match.folder:
                    part = build_report(plan.alone(match), store.finished, store.failures)
                    write_report(part, folder / match.folder)
    return Result(plan, folder, report, report.episodes.pending, work.stopped, tuple(store.kept))


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, the pictures (where matplotlib is installed) and report.md.

    Raises:
        JournalError: they cannot be written.
    """
    write_json(folder / REPORT, msgspec.to_builtins(report))
    drawn: dict[str, bytes] = {}
    with contextlib.suppress(MissingPackage):
        drawn = pictures(report)
    for name, content in drawn.items():
        write_file(folder / name, content)
    write_file(folder / "report.md", markdown(report, tuple(drawn)))


class _Work:
    """Playing the pending episodes: one task collects what the rollout finishes, another writes it to disk."""

    def __init__(
        self, store: ResultStore, budget: Budget, stop: Callable[[], bool], watch: Callable[[Progress], None] | None
    ) -> None:
        self.stopped = ""
        self._results, self._budget, self._stop, self._watch = store, budget, stop, watch
        self._begun = time.monotonic()
        self._done_before = len(store.finished)
        self._started = self._stored = self._failed_in_a_row = self._unrecorded = 0
        self._hopeless: EpisodeError | None = None
        self._counts_money = budget.cost is not None or store.plan.numbers.limits.cost is not None
        self._unpriced = self._counts_money and store.cost is None
        self._finished: asyncio.Queue[Episode | None] = asyncio.Queue()  # None: nothing more will come
        self._played_out = asyncio.Event()

    async def finish(self, concurrency: int) -> None:
        """Play until nothing is pending, or the run is stopped."""
        pending = len(self._results.plan.slots) - self._done_before
        playing = asyncio.create_task(self._play_pending(min(concurrency, pending) if pending else concurrency))
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

    async def _play_pending(self, concurrency: int) -> None:
        jobs = self._jobs()
        if self._counts_money:
            await self._play_jobs(itertools.islice(jobs, 1), 1)  # shows whether prices are known, at little cost
        await self._play_jobs(jobs, concurrency)

    async def _play_jobs(self, jobs: Iterator[Job], concurrency: int) -> None:
        episodes = stream(self._results.plan.scenario.make, jobs, concurrency=concurrency)
        async with contextlib.aclosing(episodes):
            async for episode in episodes:
                self._finished.put_nowait(episode)
                self._failed_in_a_row = self._failed_in_a_row + 1 if episode.error else 0
                if self._failed_in_a_row >= HOPELESS:
                    self._hopeless = episode.error
                if self._counts_money and summarize(episode, contest=False).cost is None:
                    self._unpriced = True

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
            episodes = [episode for episode in batch if episode]
            summaries = await self._results.store(episodes)
            self._stored += len(summaries)
            for episode, stored in zip(episodes, summaries, strict=True):
                if stored.error and not episode.error:  # it was played, but no journal can hold it
                    self._unrecorded += 1
                    self._hopeless = stored.error if self._unrecorded >= HOPELESS else self._hopeless
            if episodes and self._watch:
                self._watch(self._progress())

    def _jobs(self) -> Iterator[Job]:
        for slot in self._results.plan.slots.values():
            if slot.id in self._results.finished:
                continue
            self.stopped = self._reason_to_stop()
            if self.stopped:
                return
            self._started += 1
            yield self._results.plan.job(slot)

    def _reason_to_stop(self) -> str:
        results, budget = self._results, self._budget
        if self._stop():
            return "interrupted"
        if budget.seconds is not None and time.monotonic() - self._begun >= budget.seconds:
            return f"the run's {budget.seconds:g} seconds are over"
        if budget.episodes is not None and len(results.finished) + self._started - self._stored >= budget.episodes:
            return f"the run's {budget.episodes} episodes are played"
        if budget.tokens is not None and results.tokens >= budget.tokens:
            return f"the run's {budget.tokens} tokens are used up"
        if budget.cost is not None and results.cost is not None and results.cost >= budget.cost:
            return f"the run's ${budget.cost:g} are used up"
        if self._unpriced:
            return "the price of some answers is unknown, so no limit on money can hold; give prices, or no such limit"
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


async def _check_random_seats(plan: Plan) -> None:
    """Ask a random policy for one action in each of its seats: without listed actions it fails now, and not in every
    episode."""
    random_seats = {
        agent
        for match in plan.matches
        for agent, player in match.players.items()
        if isinstance(player.policy, RandomPolicy)
    }
    if not random_seats:
        return
    job = plan.job(next(iter(plan.slots.values())))
    env = plan.scenario.make()
    try:
        observations, infos = env.reset(job.seed, job.options)
        for agent in random_seats & observations.keys():
            await RandomPolicy().agent(agent, env.role(agent), 0).act(observations[agent], infos[agent])
    finally:
        env.close()
