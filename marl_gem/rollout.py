"""Play episodes: one, or many at once, streamed as they finish.

    episodes = collect(lambda: marl_gem.make("game:KuhnPoker-v0"), [Job(seed, RandomPolicy()) for seed in range(100)])

Every episode goes at its own pace; none ever waits for another. An episode that fails becomes an Episode with its
error and where that came from; the others go on.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from marl_gem.env import MultiAgentEnv
from marl_gem.env_threads import EnvThreads
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.episode_clock import EpisodeClock
from marl_gem.errors import AgentError, InvalidAction, LLMError, TransientLLMError
from marl_gem.policies import Agent, Policy, PolicyPerSeat
from marl_gem.seeding import agent_seed
from marl_gem.types import Episode, EpisodeError, Limits, Observation, Origin, Response

Seating: TypeAlias = Policy | Mapping[str, Policy]
"""One policy for all seats, or a policy for each agent id."""

Result = TypeVar("Result")

FAULTS = (Exception, SystemExit)
"""The exceptions that end one episode and leave the others alone; SystemExit, for games that call `exit()`."""


@dataclass(frozen=True)
class Job:
    """One episode to play."""

    seed: int
    """The seed that `reset` gets; a non-negative integer."""

    seating: Seating
    """The policy of every seat, or one for all."""

    id: str = ""
    """Goes into the record; unique among jobs that are played together. Empty: the seed or a number is taken."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """The options that `reset` gets."""

    repeat: int = 0
    """Jobs with the same seed and another `repeat` play the same task with other random choices of the agents."""

    limits: Limits = field(default_factory=Limits)
    """What cuts the episode short."""

    def seed_of(self, agent_id: str) -> int:
        """The seed of one agent's random choices in this episode."""
        return agent_seed(self.seed, agent_id, self.repeat)


async def play_episode(env: MultiAgentEnv, job: Job) -> Episode:
    """Play one episode in `env`.

    If the env, an agent or a model fails, the episode ends and its `error` says why; nothing is raised.

    Args:
        env: a live copy that nobody else uses meanwhile. It is not closed. If it is `blocking` and a step of it did
            not return before the limit of seconds, a warning says so, and it must not be used until the step returns.
        job: the seed, the policies, the options and the limits.
    """
    threads = EnvThreads()
    try:
        return await _play_job(env, job, threads)
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
            so that there are at most `concurrency` envs. What it raises ends the stream and is raised here.
        jobs: consumed lazily, so there may be any number of them. What their iterator raises ends the stream too. An
            asynchronous iterator may let its readers wait, of whom there are `concurrency` at the same time.
        concurrency: how many episodes are live at once.

    Raises:
        ValueError: `concurrency` is less than 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is a number of episodes from 1 up, not {concurrency}")
    queue = jobs if isinstance(jobs, AsyncIterator) else _Jobs(jobs)
    finished: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()  # None: a worker has no more jobs
    threads = EnvThreads()

    async def work() -> None:
        """Play job after job, in the same env as long as it works."""
        env: MultiAgentEnv | None = None
        try:
            async for job in queue:
                env = env or make()
                episode = await _play_job(env, job, threads)
                finished.put_nowait(episode)
                if episode.error or threads.at_work(env):
                    _release(env, threads)
                    env = None
                await asyncio.sleep(0)  # if nothing in an episode ever waits, the reader of the stream runs here
        finally:
            if env:
                _release(env, threads)

    def report_end(worker: asyncio.Task[None]) -> None:
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


def collect(make: Callable[[], MultiAgentEnv], jobs: Iterable[Job], *, concurrency: int = 64) -> list[Episode]:
    """Play many episodes from synchronous code, and return them in the order of the jobs.

    Args:
        make, jobs, concurrency: as in `stream`. A job without an id gets its position in `jobs`.

    Raises:
        ValueError: two jobs have the same id, or `concurrency` is less than 1.
    """
    jobs = [replace(job, id=job.id or str(position)) for position, job in enumerate(jobs)]
    if len({job.id for job in jobs}) != len(jobs):
        raise ValueError("two jobs have the same id; give each job another id, or none")

    async def play_all() -> dict[str, Episode]:
        return {episode.id: episode async for episode in stream(make, jobs, concurrency=concurrency)}

    episodes = asyncio.run(play_all())
    return [episodes[job.id] for job in jobs]


class _Failure(Exception):
    """Carries an EpisodeError out of `_play_to_end`."""

    def __init__(self, origin: Origin, cause: BaseException, agent: str | None = None) -> None:
        self.error = EpisodeError(origin, type(cause).__name__, str(cause), agent)


async def _play_job(env: MultiAgentEnv, job: Job, threads: EnvThreads) -> Episode:
    builder = _JobBuilder(env, job, EpisodeClock(job.limits.seconds, asyncio.get_running_loop().time))
    try:
        async with builder.clock.running():
            await _play_to_end(env, job, threads, builder)
    except TimeoutError:  # of this limit: one that an agent or the env raises is a _Failure
        builder.end_by_time()
        if threads.at_work(env):
            _warn_at_work(threads)
    except _Failure as failure:
        builder.error = failure.error
    return builder.build()


async def _play_to_end(env: MultiAgentEnv, job: Job, threads: EnvThreads, builder: _JobBuilder) -> None:
    agents: dict[str, Agent] = {}
    observations, infos = await _in_env(env, threads, env.reset, job.seed, job.options)
    builder.returns = dict(env.returns)
    while not env.done:
        for agent_id in observations:
            if agent_id not in agents:
                agents[agent_id] = _make_agent(env, job, builder, agent_id)
        given = {agent_id: infos[agent_id] if agent_id in infos else _info(env, agent_id) for agent_id in observations}
        builder.asked = tuple(observations)
        responses = await _ask(agents, observations, given)
        builder.asked = ()
        if builder.clock.over:  # these answers came too late
            builder.limit = "seconds"
            return
        builder.begin(observations, responses)
        actions = {agent_id: response.text for agent_id, response in responses.items()}
        observations, rewards, terminations, truncations, infos = await _in_env(env, threads, env.step, actions)
        builder.returns = dict(env.returns)  # a copy, since a later step may still be at work when the episode ends
        builder.complete(builder.returns, rewards, terminations, truncations, infos)
        if not env.done and (limit := builder.reached(job.limits)):
            builder.limit = limit
            return


async def _in_env(env: MultiAgentEnv, threads: EnvThreads, call: Callable[..., Result], *arguments: Any) -> Result:
    try:
        return await threads.run(env, call, *arguments) if env.blocking else call(*arguments)
    except InvalidAction as error:
        raise _Failure("agent", error) from error
    except FAULTS as error:
        raise _Failure("env", error) from error


def _info(env: MultiAgentEnv, agent_id: str) -> dict[str, Any]:
    """The info of an agent that joined in the last step, whose infos do not hold it yet."""
    legal = env.legal_actions(agent_id)
    return {} if legal is None else {"legal_actions": list(legal)}


def _make_agent(env: MultiAgentEnv, job: Job, builder: _JobBuilder, agent_id: str) -> Agent:
    try:
        role = env.role(agent_id)
        builder.set_role(agent_id, role)
    except FAULTS as error:
        raise _Failure("env", error, agent_id) from error
    try:
        return _policy(job.seating, agent_id).agent(agent_id, role, job.seed_of(agent_id))
    except FAULTS as error:
        raise _Failure("agent", error, agent_id) from error


def _policy(seating: Seating, agent_id: str) -> Policy:
    """The policy in a seat. Of a `PolicyPerSeat` it is the policy of this seat, so that its name goes into records."""
    if isinstance(seating, Mapping) and agent_id not in seating:
        raise AgentError(f"there is no policy for {agent_id!r}, only for {sorted(seating)}; seat one")
    policy = seating[agent_id] if isinstance(seating, Mapping) else seating
    return policy.policies.get(agent_id, policy) if isinstance(policy, PolicyPerSeat) else policy


async def _ask(
    agents: Mapping[str, Agent], observations: Mapping[str, Observation], infos: Mapping[str, dict[str, Any]]
) -> dict[str, Response]:
    """Let all acting agents answer, at the same time if there are several.

    Raises:
        _Failure: an agent or its model fails.
    """

    async def answer(agent_id: str) -> Response:
        try:
            response = await agents[agent_id].act(observations[agent_id], infos[agent_id])
            if not isinstance(response, Response) or not isinstance(response.text, str):
                raise AgentError(f"{agent_id!r} must answer with a Response that holds a text, not {response!r}")
            return response
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            raise _Failure("agent", error, agent_id) from error  # something within the agent was cancelled
        except FAULTS as error:
            raise _Failure("llm" if isinstance(error, LLMError) else "agent", error, agent_id) from error

    if len(observations) == 1:
        (agent_id,) = observations
        return {agent_id: await answer(agent_id)}
    answers = await asyncio.gather(*map(answer, observations), return_exceptions=True)
    responses = {}
    for agent_id, outcome in zip(observations, answers, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        responses[agent_id] = outcome
    return responses


def _release(env: MultiAgentEnv, threads: EnvThreads) -> None:
    """Close an env that is not used any more. A blocking one is closed in a thread, after the step it may be at."""
    if env.blocking or threads.at_work(env):
        threads.run_last(env, partial(_close, env))
    else:
        _close(env)


def _close(env: MultiAgentEnv) -> None:
    """Close an env; if that fails, warn, and let the episodes go on."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{env.scenario}: close() raised {error!r}", RuntimeWarning, stacklevel=2)


async def _close_threads(threads: EnvThreads) -> None:
    await threads.close()
    if threads.envs_at_work():
        _warn_at_work(threads)


def _warn_at_work(threads: EnvThreads) -> None:
    counts = Counter(env.scenario for env in threads.envs_at_work())
    which = ", ".join(f"{count} of {scenario}" for scenario, count in counts.items())
    warnings.warn(
        f"calls of blocking envs have not returned: {which}. Python cannot stop a thread, so each is left to its "
        "thread, which closes the env when the call returns. Set a time-out where the scenario waits",
        RuntimeWarning,
        stacklevel=1,  # one line of code for all, so that the same count is shown once
    )


class _JobBuilder(EpisodeBuilder):
    """Builds the episode of a job, and knows when it reaches a limit."""

    def __init__(self, env: MultiAgentEnv, job: Job, clock: EpisodeClock) -> None:
        super().__init__()
        self._env, self._job = env, job
        self.clock = clock
        self.asked: tuple[str, ...] = ()  # the agents that are choosing their actions now
        self.returns: dict[str, float] = {}
        self.limit = ""

    def reached(self, limits: Limits) -> str:
        """The name of a limit that the episode has reached; empty if none."""
        if limits.turns is not None and len(self.turns) >= limits.turns:
            return "turns"
        if self.clock.over:
            return "seconds"
        used = self._usage() if limits.tokens is not None else {}
        tokens = used.get("prompt_tokens", 0) + used.get("completion_tokens", 0)  # other counts are parts of these
        if limits.tokens is not None and tokens >= limits.tokens:
            return "tokens"
        if limits.cost is not None and sum(turn.response.cost or 0.0 for turn in self.turns) >= limits.cost:
            return "cost"
        return ""

    def end_by_time(self) -> None:
        """The limit of seconds has ended the episode: it is cut short or, if a model did not answer, has failed."""
        if not self.clock.unanswered:
            self.limit = "seconds"
            return
        models, limit = " and ".join(self.clock.unanswered), self._job.limits.seconds or 0.0
        agent = self.asked[0] if len(self.asked) == 1 else None
        message = f"no answer from {models}: neither within the episode's limit of {limit:g} s nor in as long again"
        self.error = EpisodeError("llm", TransientLLMError.__name__, message, agent)

    def build(self) -> Episode:
        """The record of what was played so far."""
        job = self._job
        responses = [turn.response for turn in self.turns]
        costs = [r.cost for r in responses if r.usage or r.cost is not None]  # a policy without a model costs nothing
        return self.episode(
            returns=self.returns,
            cut_short=bool(self.limit),
            id=job.id or str(job.seed),
            scenario=self._env.scenario,
            seed=job.seed,
            models={agent: _policy(job.seating, agent).name for agent in self.last},
            usage=self._usage(),
            cost=None if not costs or None in costs else sum(cost or 0.0 for cost in costs),
            limit=self.limit,
            repeat=job.repeat,
            options=dict(job.options),
            zero_sum=self._env.metadata.zero_sum,
        )

    def _usage(self) -> dict[str, int]:
        return dict(sum((Counter(turn.response.usage) for turn in self.turns), Counter()))
