"""Playing episodes: one, or many at once, streamed as they finish.

Every episode is one asyncio task that goes at its own pace; none ever waits for another. An episode that
fails becomes an Episode with its error and where that came from, and its neighbours go on.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from marl_gem.env import MultiAgentEnv
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.errors import AgentError, InvalidAction, LLMError
from marl_gem.policies import Agent, Policy, PolicyPerSeat
from marl_gem.seeding import agent_seed
from marl_gem.types import Episode, EpisodeError, Limits, Observation, Origin, Response

Seating: TypeAlias = Policy | Mapping[str, Policy]
"""One policy for all seats, or a policy for each agent id."""

Result = TypeVar("Result")

FAULTS = (Exception, SystemExit)
"""What ends an episode and not its neighbours: a game that calls `exit()` as well."""


@dataclass(frozen=True)
class Job:
    """One episode to play: its seed, who sits where, and an id, unique among the jobs played together.

    `options` go to `reset`. Jobs with the same seed and another `repeat` play the same task with other
    random choices of the agents. `limits` cut the episode short.
    """

    seed: int
    seating: Seating
    id: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 0
    limits: Limits = field(default_factory=Limits)

    def seed_of(self, agent_id: str) -> int:
        """What an agent's own random choices follow from."""
        return agent_seed(self.seed, agent_id, self.repeat)


async def play_episode(env: MultiAgentEnv, job: Job) -> Episode:
    """Play one episode in `env`.

    What the env, an agent or a model fails at ends the episode and is told in its `error`.

    Args:
        env: a live copy, used by nobody else meanwhile.
        job: the seed and the seating.
    """
    threads = _Threads()
    try:
        return await _play_job(env, job, threads)
    finally:
        threads.close()


async def stream(
    make: Callable[[], MultiAgentEnv], jobs: Iterable[Job], *, concurrency: int = 64
) -> AsyncGenerator[Episode, None]:
    """Play many episodes, `concurrency` at a time, and yield each as it finishes.

    Closing the generator, or cancelling the task that reads it, cancels what is live and closes the envs.

    Args:
        make: gives a fresh env. An env whose episode ended well is used again, one that failed is not, so
            that there are `concurrency` envs at most. What it raises ends the stream and is raised here.
        jobs: consumed lazily, so there may be any number of them.
        concurrency: how many episodes are live at once.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is a number of episodes from 1 up, not {concurrency}")
    queue = iter(jobs)
    finished: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()  # None: a place is done
    threads = _Threads()

    async def play_on() -> None:
        """Play job after job in one place."""
        env: MultiAgentEnv | None = None
        try:
            for job in queue:
                env = env or make()
                episode = await _play_job(env, job, threads)
                finished.put_nowait(episode)
                if episode.error:
                    _close(env)
                    env = None
                await asyncio.sleep(0)  # where nothing ever waits, whoever reads gets a turn here
        finally:
            if env:
                _close(env)

    def leave(place: asyncio.Task[None]) -> None:
        finished.put_nowait(None if place.cancelled() else place.exception())

    places = [asyncio.create_task(play_on()) for _ in range(concurrency)]
    for place in places:
        place.add_done_callback(leave)
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
        for place in places:
            place.cancel()
        await asyncio.wait(places)
        threads.close()


def collect(make: Callable[[], MultiAgentEnv], jobs: Iterable[Job], *, concurrency: int = 64) -> list[Episode]:
    """Play many episodes from ordinary, synchronous code; returns them in the order of the jobs.

    Raises:
        ValueError: two jobs have the same id.
    """
    jobs = [replace(job, id=job.id or str(place)) for place, job in enumerate(jobs)]
    if len({job.id for job in jobs}) != len(jobs):
        raise ValueError("two jobs have the same id; give every job its own, or none any")

    async def all_of_them() -> dict[str, Episode]:
        return {episode.id: episode async for episode in stream(make, jobs, concurrency=concurrency)}

    episodes = asyncio.run(all_of_them())
    return [episodes[job.id] for job in jobs]


class _Failure(Exception):
    """Carries an EpisodeError out of the loop below."""

    def __init__(self, origin: Origin, cause: BaseException, agent: str | None = None) -> None:
        self.error = EpisodeError(origin, type(cause).__name__, str(cause), agent)


async def _play_job(env: MultiAgentEnv, job: Job, threads: _Threads) -> Episode:
    record = _Record(env, job)
    try:
        async with asyncio.timeout(job.limits.seconds):
            await _play_out(env, job, threads, record)
    except TimeoutError:  # of this limit: what an agent or the env raises comes as a failure
        record.limit = "seconds"
    except _Failure as failure:
        record.error = failure.error
    return record.whole()


async def _play_out(env: MultiAgentEnv, job: Job, threads: _Threads, record: _Record) -> None:
    agents: dict[str, Agent] = {}
    observations, infos = await _in_env(env, threads, env.reset, job.seed, job.options)
    record.started = True
    while not env.done:
        for agent_id in observations:
            if agent_id not in agents:
                agents[agent_id] = _take_seat(env, job, record, agent_id)
        shown = {agent_id: infos[agent_id] if agent_id in infos else _info(env, agent_id) for agent_id in observations}
        responses = await _ask(agents, observations, shown)
        record.begin(observations, responses)
        actions = {agent_id: response.text for agent_id, response in responses.items()}
        observations, rewards, terminations, truncations, infos = await _in_env(env, threads, env.step, actions)
        record.complete(env.returns, rewards, terminations, truncations, infos)
        if not env.done and (limit := record.passed(job.limits)):
            record.limit = limit
            return


async def _in_env(env: MultiAgentEnv, threads: _Threads, call: Callable[..., Result], *arguments: Any) -> Result:
    try:
        return await threads.run(call, *arguments) if env.blocking else call(*arguments)
    except InvalidAction as error:
        raise _Failure("agent", error) from error
    except FAULTS as error:
        raise _Failure("env", error) from error


def _info(env: MultiAgentEnv, agent_id: str) -> dict[str, Any]:
    """What an agent that joined in the last step should know, of whom its infos cannot tell yet."""
    legal = env.legal_actions(agent_id)
    return {} if legal is None else {"legal_actions": list(legal)}


def _take_seat(env: MultiAgentEnv, job: Job, record: _Record, agent_id: str) -> Agent:
    try:
        role = env.role(agent_id)
        record.seat(agent_id, role)
    except FAULTS as error:
        raise _Failure("env", error, agent_id) from error
    try:
        return _policy(job.seating, agent_id).agent(agent_id, role, job.seed_of(agent_id))
    except FAULTS as error:
        raise _Failure("agent", error, agent_id) from error


def _policy(seating: Seating, agent_id: str) -> Policy:
    """Who sits there; of several policies as one, the one that does, so that records tell its name."""
    if isinstance(seating, Mapping) and agent_id not in seating:
        raise AgentError(f"nobody is seated as {agent_id!r}; there are policies for {sorted(seating)}")
    policy = seating[agent_id] if isinstance(seating, Mapping) else seating
    return policy.policies.get(agent_id, policy) if isinstance(policy, PolicyPerSeat) else policy


async def _ask(
    agents: Mapping[str, Agent], observations: Mapping[str, Observation], infos: Mapping[str, dict[str, Any]]
) -> dict[str, Response]:
    """Let all acting agents answer, at the same time if there are several."""

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


def _close(env: MultiAgentEnv) -> None:
    """What an env cannot release is worth a warning; the episodes go on."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"{env.scenario}: close() raised {error!r}", RuntimeWarning, stacklevel=2)


class _Threads:
    """Where blocking envs take their steps: a thread for each that is at it, made when there is no idle one.

    (With `ThreadPoolExecutor` a step could wait for another env's; docs/decisions.md tells more.) A thread that
    is done wakes the event loop only if no other has just woken it: with a thousand envs one wake-up for each
    step would cost more than all the rest.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ended: deque[_Call] = deque()
        self._woken = False
        self._busy = self._count = 0

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call in a thread. Cancelling waits until the call has ended, so that nobody closes an env at work."""
        if self._busy == self._count:
            threading.Thread(target=self._work, name=f"marl_gem-env-{self._count}").start()
            self._count += 1
        self._busy += 1
        call = _Call(function, arguments, self._loop.create_future())
        self._calls.put(call)
        try:
            await call.answered
        except asyncio.CancelledError:
            while not call.ended:
                await asyncio.sleep(0.005)
            raise
        finally:
            self._busy -= 1
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the threads end."""
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while call := self._calls.get():
            try:
                call.result = call.function(*call.arguments)
            except BaseException as error:
                call.error = error
            call.ended = True
            self._ended.append(call)
            if not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False  # before looking, so that a call that ends after the look wakes the loop again
        while self._ended:
            answered = self._ended.popleft().answered
            if not answered.done():
                answered.set_result(None)


@dataclass(eq=False, slots=True)
class _Call:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    answered: asyncio.Future[None]
    ended: bool = False
    result: Any = None
    error: BaseException | None = None


class _Record(EpisodeBuilder):
    """The recording of a job, which may come to its limits."""

    def __init__(self, env: MultiAgentEnv, job: Job) -> None:
        super().__init__()
        self._env, self._job = env, job
        self.started = False
        self.limit = ""

    def passed(self, limits: Limits) -> str:
        """The name of a limit that the episode has come to, if it has."""
        if limits.turns is not None and len(self.turns) >= limits.turns:
            return "turns"
        used = self._usage() if limits.tokens is not None else {}
        tokens = used.get("prompt_tokens", 0) + used.get("completion_tokens", 0)  # others are some of these
        if limits.tokens is not None and tokens >= limits.tokens:
            return "tokens"
        if limits.cost is not None and sum(turn.response.cost or 0.0 for turn in self.turns) >= limits.cost:
            return "cost"
        return ""

    def whole(self) -> Episode:
        """The record of what was played."""
        job = self._job
        responses = [turn.response for turn in self.turns]
        costs = [r.cost for r in responses if r.usage or r.cost is not None]  # scripts and dice cost nothing
        return self.episode(
            returns=self._env.returns if self.started else {},
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
