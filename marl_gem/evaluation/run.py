"""Evaluations, grids and tournaments: play a plan, and report on it.

A run can be killed at any moment, and loses nothing that is on disk; see `marl_gem.evaluation.playing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from marl_gem import bounds
from marl_gem.errors import MissingPackage
from marl_gem.evaluation.budget import Budget
from marl_gem.evaluation.build import build_report
from marl_gem.evaluation.concurrency import episodes_that_fit
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
from marl_gem.evaluation.playing import InThisProcess, Playing, Progress
from marl_gem.evaluation.report import Report, SpentReport
from marl_gem.evaluation.result_store import ResultStore, stored_config
from marl_gem.evaluation.task_choice import TaskOrder
from marl_gem.evaluation.worker_pool import WorkerPool, pack
from marl_gem.policies import Policy
from marl_gem.runs.files import write_file, write_json
from marl_gem.runs.folder import EPISODES, REPORT
from marl_gem.runs.lock import RunLock, run_lock
from marl_gem.runs.stored_index import write_index
from marl_gem.specs import ScenarioSpec, WrapperSpec
from marl_gem.specs.scenario import ScenarioSource
from marl_gem.types import Episode, Limits


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
    tasks: Sequence[int] | None = None,
    order: TaskOrder | None = None,
    repeats: int = 1,
    seed: int = 0,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    reset: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | WrapperSpec] = (),
    out: Path | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    processes: int = 1,
    budget: Budget | None = None,
) -> Result:
    """Play a scenario and report how it went.

    Args:
        scenario: an id, a `ScenarioSpec`, or a function that makes an env.
        seats: one policy for all seats, or one for each agent. If any seat has a list of policies, all
            combinations play, each in a folder within the run's.
        n: how many tasks; by default all that the scenario numbers, else 100.
        tasks: the tasks by their numbers from 0, instead of n.
        order: the order that n tasks are taken from; by default each grade in its share where the scenario's tasks
            have grades, else as they are listed.
        repeats: how often each task is played, with other random choices of the agents.
        seed: everything random follows from it.
        limits: of each episode.
        options: what `make` is given, for a scenario named by its id.
        reset: the options that `reset` gets in every episode, besides the number of the task.
        wrappers: what is put around the env, such as "time_limit=20"; the innermost first.
        out: the run's folder; without one nothing is written.
        resume: continue the run in that folder; `n` and `repeats` may be greater than they were.
        concurrency: how many episodes are live at once, in all processes together.
        processes: how many processes play; 0 for as many as there are processors. Several help where the processor is
            the limit, and give the same episodes.
        budget: the limits of the run.

    Raises:
        ConfigError: a number is out of range, or the folder holds something else or another configuration.
        AgentError: the seats are not those of the scenario.
        JournalError: the folder cannot be written, or another process works on it.
        RegistryError, MissingPackage: the scenario cannot be made.
        WorkerError: with several processes: these cannot play.
    """
    spec, named = ScenarioSpec.parse(scenario, options, wrappers), None if tasks is None else tuple(tasks)
    numbers = Numbers(n, repeats, seed, limits or Limits(), named, order, dict(reset or {}))
    if isinstance(seats, Mapping) and any(isinstance(policies, Sequence) for policies in seats.values()):
        listed = {agent: found if isinstance(found, Sequence) else [found] for agent, found in seats.items()}
        plan = plan_grid(spec, listed, numbers)
    else:
        plan = plan_evaluation(spec, seats, numbers)  # type: ignore[arg-type]  # no list is left
    return run(plan, out, resume=resume, concurrency=concurrency, processes=processes, budget=budget)


def tournament(
    scenario: ScenarioSource,
    players: Mapping[str, Policy | Player],
    *,
    n: int | None = None,
    tasks: Sequence[int] | None = None,
    order: TaskOrder | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    reset: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | WrapperSpec] = (),
    out: Path | str | None = None,
    resume: bool = False,
    concurrency: int = 64,
    processes: int = 1,
    budget: Budget | None = None,
) -> Result:
    """Let named players meet in every ordered seating, `n` games each, and rate them. See `evaluate` for the rest."""
    spec, named = ScenarioSpec.parse(scenario, options, wrappers), None if tasks is None else tuple(tasks)
    numbers = Numbers(n, 1, seed, limits or Limits(), named, order, dict(reset or {}))
    plan = plan_tournament(spec, players, numbers)
    return run(plan, out, resume=resume, concurrency=concurrency, processes=processes, budget=budget)


def run(
    plan: Plan,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    concurrency: int = 64,
    processes: int = 1,
    budget: Budget | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """Play the pending episodes of a plan, and report on all of it.

    Args:
        plan: what is to be played.
        out, resume, concurrency, processes, budget: as for `evaluate`.
        stop: called before each episode; once it returns true no new one starts.
        watch: called with the progress whenever episodes have been written to disk.
    """
    running = run_async(
        plan, out, resume=resume, concurrency=concurrency, processes=processes, budget=budget, stop=stop, watch=watch
    )
    return asyncio.run(running)


async def run_async(
    plan: Plan,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    concurrency: int = 64,
    processes: int = 1,
    budget: Budget | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] | None = None,
) -> Result:
    """`run` for callers in an event loop."""
    bounds.PROCESSES.check("processes", processes)
    bounds.CONCURRENCY.check("concurrency", concurrency)
    processes = min(processes or _processors(), concurrency)
    folder = None if out is None else Path(out)
    stored = None if folder is None else stored_config(folder, resume)
    if stored:
        plan = replace(plan, numbers=plan.numbers.continued(stored))
    share = -(-min(concurrency, len(plan.slots)) // max(1, processes))  # of each process, rounded up
    setup = pack(plan, share) if processes > 1 else None
    concurrency = min(concurrency, processes * episodes_that_fit(plan, share))
    with run_lock(folder) if folder else contextlib.nullcontext() as lock:
        store = ResultStore.open(plan, folder, resume, lock)
        pending = len(plan.slots) - len(store.finished)
        processes = max(1, min(processes, pending))
        live = min(concurrency, pending) if pending else concurrency
        pool = WorkerPool(plan, setup, processes) if setup and processes > 1 else InThisProcess(store)
        try:
            async with pool as players:
                budget = budget or Budget()
                playing = Playing(store, players, budget, stop, watch)
                await playing.finish(live)
        finally:
            store.close()
        return conclude(store, folder, lock, playing.stopped, budget)


def conclude(
    store: ResultStore, folder: Path | None, lock: RunLock | None, stopped: str, budget: Budget | None = None
) -> Result:
    """Report on what a store holds, also in the run's folder, which the caller has locked."""
    plan = store.plan
    used = {"episodes": len(store.finished), "tokens": store.tokens, "cost": store.cost}
    limits = {name: getattr(budget, name, None) for name in used}
    spent = {name: SpentReport(limit, used[name]) for name, limit in limits.items() if limit is not None}
    report = build_report(plan, store.finished, store.failures, store.attempts, stopped, spent)
    if folder and lock:
        lock.check()
        for name in sorted({match.folder for match in plan.matches}):
            write_index(folder / name / EPISODES)
        write_report(report, folder)
        for match in plan.matches:
            if match.folder:
                part = build_report(plan.alone(match), store.finished, store.failures)
                write_report(part, folder / match.folder)
    return Result(plan, folder, report, report.episodes.pending, stopped, tuple(store.kept))


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


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
