"""Play episodes: one, or many at once, streamed as they finish.

    episodes = collect(lambda: marl_gem.make("game:KuhnPoker-v0"), [Job(seed, RandomPolicy()) for seed in range(100)])

Every episode goes at its own pace; none ever waits for another. An episode that fails becomes an Episode with its
error and where that came from; the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial

from marl_gem.env import MultiAgentEnv
from marl_gem.env_threads import EnvThreads
from marl_gem.episode_play import EpisodeFailure, Job, Seating, failed_episode, guarded, play_job
from marl_gem.errors import ConfigError, MarlGemError, MissingPackage, RegistryError, ScenarioFault
from marl_gem.faults import close_env, shown
from marl_gem.types import Episode

__all__ = ["Job", "Seating", "collect", "play_episode", "stream"]


async def play_episode(env: MultiAgentEnv, job: Job) -> Episode:
    """Play one episode in `env`.

    If the env, an agent or a model fails, the episode ends and its `error` says why; nothing is raised. Whatever their
    code raises is such a failure, SystemExit and KeyboardInterrupt too; only Ctrl-C is raised here.

    Args:
        env: a live copy that nobody else uses meanwhile. It is not closed. If it is `blocking` and a step of it did
            not return before the limit of seconds, a warning says so, and it must not be used until the step returns.
        job: the seed, the policies, the options and the limits.
    """
    threads = EnvThreads()
    try:
        return await play_job(env, job, threads)
    finally:
        await _close_threads(threads)


async def stream(
    make: Callable[[], MultiAgentEnv], jobs: Iterable[Job] | AsyncIterator[Job], *, concurrency: int = 64
) -> AsyncGenerator[Episode, None]:
    """Play many episodes, `concurrency` at a time, and yield each as it finishes.

    Closing the generator, or cancelling the task that reads it, cancels what is live and closes the envs. A step of a
    blocking env cannot be cancelled: it is left to its thread, which closes the env when the step returns, and a
    warning says so if that takes long. So is a step that has not returned when the episode reaches its limit of
    seconds; the next episode gets a fresh env.

    Args:
        make: gives a fresh env. An env whose episode ended without error is used again, one that failed is closed,
            so that there are at most `concurrency` envs. If it fails, the episode that needed the env has failed.
        jobs: consumed lazily, so there may be any number of them. What their iterator raises ends the stream too. An
            asynchronous iterator may let its readers wait, of whom there are `concurrency` at the same time.
        concurrency: how many episodes are live at once.

    Raises:
        ValueError: `concurrency` is less than 1.
        RegistryError, ConfigError, MissingPackage: from the first call of `make`; no other will do better.
        MarlGemError: the code of an env or an agent has cancelled the task in which it runs.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is a number of episodes from 1 up, not {concurrency}")
    queue = jobs if isinstance(jobs, AsyncIterator) else _Jobs(jobs)
    finished: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()  # None: a worker has no more jobs
    threads = EnvThreads()
    any_made = ending = False
    in_use: set[int] = set()  # the ids of the envs

    def make_env() -> MultiAgentEnv:
        nonlocal any_made
        env = make()
        if not issubclass(type(env), MultiAgentEnv) or id(env) in in_use:
            problem = "which is in use already; it must give a fresh one" if id(env) in in_use else "not an env"
            raise ScenarioFault(f"make() gave {shown(env)}, {problem}")
        in_use.add(id(env))
        any_made = True
        return env

    def release(env: MultiAgentEnv) -> None:
        in_use.discard(id(env))
        _release(env, threads)

    async def work() -> None:
        """Play job after job, in the same env as long as it works."""
        env: MultiAgentEnv | None = None
        try:
            async for job in queue:
                try:
                    if env is None:
                        env = guarded("env", None, make_env)
                    episode = await play_job(env, job, threads)
                except EpisodeFailure as failure:
                    if not any_made and isinstance(failure.__cause__, (RegistryError, ConfigError, MissingPackage)):
                        raise failure.__cause__ from None
                    episode = failed_episode(job, failure.error)
                finished.put_nowait(episode)
                if env is not None and (episode.error or threads.at_work(env)):
                    release(env)
                    env = None
                await asyncio.sleep(0)  # if nothing in an episode ever waits, the reader of the stream runs here
        finally:
            if env is not None:
                release(env)

    def report_end(worker: asyncio.Task[None]) -> None:
        if worker.cancelled() and not ending:
            finished.put_nowait(MarlGemError("the code of an env or an agent cancelled the task that plays it"))
        else:
            finished.put_nowait(None if worker.cancelled() else worker.exception())

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    for worker in workers:
        worker.add_done_callback(report_end)
    live = concurrency
    try:
        while live:
            item = await finished.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                live -= 1
            else:
                yield item
    finally:
        ending = True
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        await _close_threads(threads)


class _Jobs(AsyncIterator[Job]):
    """Jobs for several readers at the same time, which an asynchronous generator does not allow."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)

    async def __anext__(self) -> Job:
        for job in self._jobs:
            return job
        raise StopAsyncIteration


def collect(
    make: Callable[[], MultiAgentEnv], jobs: Iterable[Job], *, concurrency: int = 64, warn: bool = True
) -> list[Episode]:
    """Play many episodes from synchronous code, and return them in the order of the jobs.

    Args:
        make, jobs, concurrency: as in `stream`. A job without an id gets its position in `jobs`.
        warn: whether a RuntimeWarning says so if all episodes failed; false for callers that look at their errors.

    Raises:
        ValueError: two jobs have the same id, or `concurrency` is less than 1.
    """
    jobs = [replace(job, id=job.id or str(position)) for position, job in enumerate(jobs)]
    if len({job.id for job in jobs}) != len(jobs):
        raise ValueError("two jobs have the same id; give each job another id, or none")

    played: dict[str, Episode] = {}

    async def play_all() -> None:  # returns nothing: Python 3.11's asyncio.run makes a repr of what is returned
        async for episode in stream(make, jobs, concurrency=concurrency):
            played[episode.id] = episode

    asyncio.run(play_all())
    episodes = [played[job.id] for job in jobs]
    if warn and episodes and all(episode.error for episode in episodes) and (error := episodes[0].error):
        where = f"{error.origin}, agent {error.agent!r}" if error.agent else error.origin
        what = f"all {len(episodes)} episodes failed, the first" if len(episodes) > 1 else "the episode failed"
        text = f"{what} in {where}: {error.type}: {error.message}; episode.error says why"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return episodes


def _release(env: MultiAgentEnv, threads: EnvThreads) -> None:
    """Close an env that is not used any more. A blocking one is closed in a thread, after the step it may be at."""
    blocking = True
    with contextlib.suppress(EpisodeFailure):
        blocking = guarded("env", None, lambda: bool(env.blocking))
    if blocking or threads.at_work(env):
        threads.run_last(env, partial(close_env, env))
    else:
        close_env(env)


async def _close_threads(threads: EnvThreads) -> None:
    await threads.close()
    if threads.envs_at_work():
        threads.warn_at_work()
