"""Play episodes: one, or many at once, streamed as they finish.

    episodes = collect(lambda: marl_gem.make("game:KuhnPoker-v0"), [Job(seed, RandomPolicy()) for seed in range(100)])

Every episode goes at its own pace; none ever waits for another. An episode that fails becomes an Episode with its
error and where that came from; the others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from marl_gem.env import MultiAgentEnv
from marl_gem.env_threads import EnvThreads
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.episode_clock import EpisodeClock
from marl_gem.errors import (
    AgentError,
    ConfigError,
    InvalidAction,
    LLMError,
    MarlGemError,
    MissingPackage,
    RegistryError,
    ScenarioFault,
    TransientLLMError,
)
from marl_gem.faults import close_env, is_interrupt, message_of, scenario_of, shown
from marl_gem.policies import Agent, Policy, PolicyPerSeat
from marl_gem.seeding import agent_seed
from marl_gem.step_results import as_reset, as_step
from marl_gem.types import Episode, EpisodeError, Limits, Observation, Origin, Response

Seating: TypeAlias = Policy | Mapping[str, Policy]
"""One policy for all seats, or a policy for each agent id."""

Result = TypeVar("Result")


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

    If the env, an agent or a model fails, the episode ends and its `error` says why; nothing is raised. Whatever their
    code raises is such a failure, SystemExit and KeyboardInterrupt too; only Ctrl-C is raised here.

    Args:
        env: a live copy that nobody else uses meanwhile. It is not closed.
        job: the seed, the policies, the options and the limits.
    """
    threads = EnvThreads()
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
        make: gives a fresh env. An env whose episode ended without error is used again, one that failed is closed,
            so that there are at most `concurrency` envs. If it fails, the episode that needed the env has failed.
        jobs: consumed lazily, so there may be any number of them. What their iterator raises ends the stream too.
        concurrency: how many episodes are live at once.

    Raises:
        ValueError: `concurrency` is less than 1.
        RegistryError, ConfigError, MissingPackage: from the first call of `make`; no other will do better.
        MarlGemError: the code of an env or an agent has cancelled the task in which it runs.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is a number of episodes from 1 up, not {concurrency}")
    queue = iter(jobs)
    finished: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()  # None: a worker has no more jobs
    threads = EnvThreads()
    any_made = ending = False

    async def work() -> None:
        """Play job after job, in the same env as long as it works."""
        nonlocal any_made
        env: MultiAgentEnv | None = None
        try:
            for job in queue:
                try:
                    env = env or _call("env", None, make)
                    any_made = True
                    episode = await _play_job(env, job, threads)
                except _Failure as failure:
                    if not any_made and isinstance(failure.__cause__, (RegistryError, ConfigError, MissingPackage)):
                        raise failure.__cause__ from None
                    episode = _failed(job, failure.error)
                finished.put_nowait(episode)
                if episode.error and env:
                    close_env(env)
                    env = None
                await asyncio.sleep(0)  # if nothing in an episode ever waits, the reader of the stream runs here
        finally:
            if env:
                close_env(env)

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
        threads.close()


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
        self.error = EpisodeError(origin, type(cause).__name__, message_of(cause), agent)


def _call(origin: Origin, agent: str | None, call: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that runs code of an env or an agent.

    Raises:
        _Failure: it raised anything but the KeyboardInterrupt of Ctrl-C.
    """
    try:
        return call(*arguments)
    except InvalidAction as error:
        raise _Failure("agent", error) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise _Failure(origin, error, agent) from error


async def _play_job(env: MultiAgentEnv, job: Job, threads: EnvThreads) -> Episode:
    builder = _JobBuilder(env, job, EpisodeClock(job.limits.seconds, asyncio.get_running_loop().time))
    try:
        async with builder.clock.running():
            await _play_to_end(env, job, threads, builder)
    except TimeoutError:  # of this limit: one that an agent or the env raises is a _Failure
        builder.end_by_time()
    except _Failure as failure:
        builder.error = failure.error
    return builder.build()


async def _play_to_end(env: MultiAgentEnv, job: Job, threads: EnvThreads, builder: _JobBuilder) -> None:
    agents: dict[str, Agent] = {}
    begun = await _in_env(env, threads, "reset", job.seed, job.options)
    observations, infos = _call("env", None, builder.begun, begun)
    while observations:
        for agent_id in observations:
            if agent_id not in agents:
                agents[agent_id] = _make_agent(env, job, builder, agent_id)
        builder.asked = tuple(observations)
        responses = await _ask(agents, observations, infos, builder)
        builder.asked = ()
        if builder.clock.over:  # these answers came too late
            builder.limit = "seconds"
            return
        builder.begin(observations, responses)
        actions = {agent_id: response.text for agent_id, response in responses.items()}
        step = await _in_env(env, threads, "step", actions)
        observations, infos = _call("env", None, builder.stepped, step)
        if observations and (limit := builder.reached(job.limits)):
            builder.limit = limit
            return


async def _in_env(env: MultiAgentEnv, threads: EnvThreads, method: str, *arguments: Any) -> Any:
    """Call a method of an env, in a thread if it blocks."""
    blocking = _call("env", None, lambda: bool(env.blocking))
    call = _call("env", None, getattr, env, method)
    if blocking:
        return await threads.run(_call, "env", None, call, *arguments)
    return _call("env", None, call, *arguments)


def _make_agent(env: MultiAgentEnv, job: Job, builder: _JobBuilder, agent_id: str) -> Agent:
    role = _call("env", agent_id, lambda: builder.set_role(agent_id, env.role(agent_id)))

    def make() -> Agent:
        agent = _policy(job.seating, agent_id).agent(agent_id, role, job.seed_of(agent_id))
        if not callable(getattr(agent, "act", None)):
            raise AgentError(f"the policy of {agent_id!r} gave {shown(agent)} for an agent; it has no method act")
        return agent

    return _call("agent", agent_id, make)


def _policy(seating: Seating, agent_id: str) -> Policy:
    """The policy in a seat. Of a `PolicyPerSeat` it is the policy of this seat, so that its name goes into records."""
    if isinstance(seating, Mapping) and agent_id not in seating:
        raise AgentError(f"there is no policy for {agent_id!r}, only for {sorted(seating)}; seat one")
    policy = seating[agent_id] if isinstance(seating, Mapping) else seating
    return policy.policies.get(agent_id, policy) if isinstance(policy, PolicyPerSeat) else policy


async def _ask(
    agents: Mapping[str, Agent],
    observations: Mapping[str, Observation],
    infos: Mapping[str, dict[str, Any]],
    builder: EpisodeBuilder,
) -> dict[str, Response]:
    """Let all acting agents answer, at the same time if there are several.

    Raises:
        _Failure: an agent or its model fails.
    """

    async def answer(agent_id: str) -> Response:
        try:
            return builder.response(agent_id, await agents[agent_id].act(observations[agent_id], infos[agent_id]))
        except BaseException as error:
            task = asyncio.current_task()
            if is_interrupt(error) or (isinstance(error, asyncio.CancelledError) and task and task.cancelling()):
                raise  # any other cancellation is of something within the agent
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


def _failed(job: Job, error: EpisodeError, scenario: str = "") -> Episode:
    """The record of an episode that holds nothing but its error."""
    return Episode(job.id or str(job.seed), scenario, job.seed, (), {}, "error", error, repeat=job.repeat)


class _JobBuilder(EpisodeBuilder):
    """Builds the episode of a job, and knows when it reaches a limit."""

    def __init__(self, env: MultiAgentEnv, job: Job, clock: EpisodeClock) -> None:
        super().__init__(job.limits.record)
        self._env, self._job = env, job
        self.clock = clock
        self.asked: tuple[str, ...] = ()  # the agents that are choosing their actions now
        self._reset_returned = False
        self.limit = ""

    def begun(self, returned: Any) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """What the agents observe that act first, and their infos, from what `reset` returned."""
        observations, infos = self._acting(*as_reset(returned, self._env.scenario))
        self._reset_returned = True
        return observations, infos

    def stepped(self, returned: Any) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """The same from what `step` returned, which is added to the record. Both are empty at the end."""
        observations, rewards, terminations, truncations, infos = as_step(returned, self._env.scenario)
        observations, infos = self._acting(observations, infos)
        self.complete(self._env.returns, rewards, terminations, truncations, infos)
        return observations, infos

    def _acting(
        self, observations: dict[str, Observation], infos: dict[str, dict[str, Any]]
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        env = self._env
        if env.done:
            observations = {}
        elif not observations:
            raise ScenarioFault(f"{env.scenario}: the episode is not over, but no agent observes anything")
        for agent in observations.keys() - infos.keys():  # it joined in the last step, whose infos do not hold it
            legal = env.legal_actions(agent)
            infos = {**infos, agent: {} if legal is None else {"legal_actions": list(legal)}}
        return self.observed(observations, infos)

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
        fields = {
            "id": job.id or str(job.seed),
            "seed": job.seed,
            "cost": None if not costs or None in costs else sum(cost or 0.0 for cost in costs),
            "limit": self.limit,
            "repeat": job.repeat,
        }
        models = {}
        for agent in self.last:
            try:
                models[agent] = _call("agent", agent, self._model, agent)
            except _Failure as failure:
                self.error = self.error or failure.error
        try:
            return _call("env", None, self._record, models, fields)
        except _Failure as failure:
            return _failed(job, self.error or failure.error, scenario_of(self._env))

    def _model(self, agent: str) -> str:
        name: Any = _policy(self._job.seating, agent).name
        if not issubclass(type(name), str):
            raise AgentError(f"the name of the policy of {agent!r} is {shown(name)}; it must be text")
        return str.__str__(name)

    def _record(self, models: dict[str, str], fields: dict[str, Any]) -> Episode:
        env = self._env
        return self.episode(
            returns=env.returns if self._reset_returned else {},
            cut_short=bool(self.limit),
            scenario=scenario_of(env),
            models=models,
            usage=self._usage(),
            options=dict(self._job.options),
            zero_sum=None if env.metadata.zero_sum is None else bool(env.metadata.zero_sum),
            **fields,
        )

    def _usage(self) -> dict[str, int]:
        return dict(sum((Counter(turn.response.usage) for turn in self.turns), Counter()))
