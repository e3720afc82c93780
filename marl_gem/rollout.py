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
from marl_gem.errors import AgentError, ConfigError, InvalidAction, LLMError, MissingPackage, RegistryError, ScenarioFault
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
            so that there are at most `concurrency` envs. What it raises ends the stream and is raised here.
        jobs: consumed lazily, so there may be any number of them. What their iterator raises ends the stream too.
        concurrency: how many episodes are live at once.

    Raises:
        ValueError: `concurrency` is less than 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is a number of episodes from 1 up, not {concurrency}")
    queue = iter(jobs)
    finished: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()  # None: a worker has no more jobs
    threads = EnvThreads()

    async def work() -> None:
        """Play job after job, in the same env as long as it works."""
        env: MultiAgentEnv | None = None
        try:
            for job in queue:
                env = env or make()
                episode = await _play_job(env, job, threads)
                finished.put_nowait(episode)
                if episode.error:
                    _close(env)
                    env = None
                await asyncio.sleep(0)  # if nothing in an episode ever waits, the reader of the stream runs here
        finally:
            if env:
                _close(env)

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
    builder = _JobBuilder(env, job)
    try:
        async with asyncio.timeout(job.limits.seconds):
            await _play_to_end(env, job, threads, builder)
    except TimeoutError:  # of this limit: one that an agent or the env raises is a _Failure
        builder.limit = "seconds"
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
        responses = await _ask(agents, observations, infos, builder)
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


class _JobBuilder(EpisodeBuilder):
    """Builds the episode of a job, and knows when it reaches a limit."""

    def __init__(self, env: MultiAgentEnv, job: Job) -> None:
        super().__init__(job.limits.record)
        self._env, self._job = env, job
        self._started_play = False
        self.limit = ""

    def begun(self, returned: Any) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """What the agents observe that act first, and their infos, from what `reset` returned."""
        observations, infos = self._acting(*as_reset(returned, self._env.scenario))
        self._started_play = True
        return observations, infos

    def stepped(self, returned: Any) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """The same from what `step` returned, which is added to the record. Both are empty at the end."""
        observations, *results, infos = as_step(returned, self._env.scenario)
        observations, infos = self._acting(observations, infos)
        self.complete(self._env.returns, *results, infos)
        return observations, infos

    def _acting(
        self, observations: dict[str, Observation], infos: dict[str, dict[str, Any]]
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        env, done = self._env, bool(self._env.done)
        if done == bool(observations):
            state = "over, but" if done else "not over, and"
            raise ScenarioFault(f"{env.scenario}: the episode is {state} observations are for {list(observations)}")
        for agent in observations.keys() - infos.keys():  # it joined in the last step, whose infos do not hold it
            legal = env.legal_actions(agent)
            infos = {**infos, agent: {} if legal is None else {"legal_actions": list(legal)}}
        return self.observed(observations, infos)

    def reached(self, limits: Limits) -> str:
        """The name of a limit that the episode has reached; empty if none."""
        if limits.turns is not None and len(self.turns) >= limits.turns:
            return "turns"
        used = self._usage() if limits.tokens is not None else {}
        tokens = used.get("prompt_tokens", 0) + used.get("completion_tokens", 0)  # other counts are parts of these
        if limits.tokens is not None and tokens >= limits.tokens:
            return "tokens"
        if limits.cost is not None and sum(turn.response.cost or 0.0 for turn in self.turns) >= limits.cost:
            return "cost"
        return ""

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
        try:
            models = {agent: _call("agent", agent, self._model, agent) for agent in self.last}
            return _call("env", None, self._record, models, fields)
        except _Failure as failure:
            self.error = self.error or failure.error
            bare = {name: value for name, value in fields.items() if name != "cost"}
            return Episode(scenario=scenario_of(self._env), turns=(), returns={}, ending="error", error=self.error, **bare)

    def _model(self, agent: str) -> str:
        name: Any = _policy(self._job.seating, agent).name
        if not issubclass(type(name), str):
            raise AgentError(f"the name of the policy of {agent!r} is {shown(name)}; it must be text")
        return str.__str__(name)

    def _record(self, models: dict[str, str], fields: dict[str, Any]) -> Episode:
        env = self._env
        return self.episode(
            returns=env.returns if self._started_play else {},
            cut_short=bool(self.limit),
            scenario=scenario_of(env),
            models=models,
            usage=self._usage(),
            options=dict(self._job.options),
            zero_sum=env.metadata.zero_sum,
            **fields,
        )

    def _usage(self) -> dict[str, int]:
        return dict(sum((Counter(turn.response.usage) for turn in self.turns), Counter()))
