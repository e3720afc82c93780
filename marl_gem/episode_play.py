"""Play one episode: ask the agents, step the env, and record both. `marl_gem.rollout` plays many.

An env, a policy and an agent are code of others. Whatever it raises ends this episode alone, whose record says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from marl_gem.env import MultiAgentEnv
from marl_gem.env_threads import EnvThreads
from marl_gem.episode_builder import EpisodeBuilder
from marl_gem.episode_clock import EpisodeClock
from marl_gem.errors import AgentError, InvalidAction, LLMError, ResourceError, ScenarioFault, TransientLLMError
from marl_gem.faults import is_interrupt, message_of, scenario_of, shown
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


class EpisodeFailure(Exception):
    """Carries an EpisodeError to where its episode ends."""

    def __init__(self, origin: Origin, cause: BaseException, agent: str | None = None) -> None:
        self.error = EpisodeError(origin, type(cause).__name__, message_of(cause), agent)


def guarded(origin: Origin, agent: str | None, call: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that runs code of an env or an agent.

    Raises:
        EpisodeFailure: it raised anything but the KeyboardInterrupt of Ctrl-C.
    """
    try:
        return call(*arguments)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise _failure(origin, error, agent) from error


def _failure(origin: Origin, error: BaseException, agent: str | None) -> EpisodeFailure:
    if isinstance(error, InvalidAction):
        origin = "agent"
    elif isinstance(error, LLMError):
        origin = "llm"
    elif isinstance(error, ResourceError):
        origin = "tool"
    return EpisodeFailure(origin, error, agent)


def _ends_more(error: BaseException) -> bool:
    """Whether what was raised while something was awaited is meant for more than this episode.

    That is Ctrl-C, or the cancellation of this task; any other cancellation is of something within foreign code.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return bool(task and task.cancelling())
    return is_interrupt(error)


async def play_job(env: MultiAgentEnv, job: Job, threads: EnvThreads) -> Episode:
    """Play the episode of a job in `env`, whose blocking calls run in `threads`; what fails is in the record."""
    builder = _JobBuilder(env, job, EpisodeClock(job.limits.seconds, asyncio.get_running_loop().time))
    try:
        async with builder.clock.running():
            await _play_to_end(env, job, threads, builder)
    except TimeoutError:  # of this limit: one that an agent or the env raises is an EpisodeFailure
        builder.end_by_time()
        if threads.at_work(env):
            threads.warn_at_work()
    except EpisodeFailure as failure:
        builder.error = failure.error
    finally:
        if not threads.at_work(env):
            _release(env, builder)
    return builder.build()


def _release(env: MultiAgentEnv, builder: _JobBuilder) -> None:
    try:
        guarded("env", None, env.release_resources)
    except EpisodeFailure as failure:
        builder.error = builder.error or failure.error


async def _play_to_end(env: MultiAgentEnv, job: Job, threads: EnvThreads, builder: _JobBuilder) -> None:
    agents: dict[str, Agent] = {}
    blocking = guarded("env", None, lambda: bool(env.blocking))
    awaits = guarded("env", None, lambda: bool(env.awaits))
    begun = await _in_env(env, threads, blocking, "reset", job.seed, job.options)
    observations, infos = guarded("env", None, builder.begun, begun)
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
        try:  # no function of its own: this runs for every turn
            if blocking:
                step = await _in_env(env, threads, blocking, "step", actions)
            else:
                step = await env.step_async(actions) if awaits else env.step(actions)
            observations, infos = builder.stepped(step)
        except EpisodeFailure:
            raise
        except BaseException as error:
            if _ends_more(error):
                raise
            raise _failure("env", error, None) from error
        if observations and (limit := builder.reached(job.limits)):
            builder.limit = limit
            return


async def _in_env(env: MultiAgentEnv, threads: EnvThreads, blocking: bool, method: str, *arguments: Any) -> Any:
    """Call a method of an env, in a thread if it blocks."""
    call = guarded("env", None, getattr, env, method)
    if blocking:
        return await threads.run(env, guarded, "env", None, call, *arguments)
    return guarded("env", None, call, *arguments)


def _make_agent(env: MultiAgentEnv, job: Job, builder: _JobBuilder, agent_id: str) -> Agent:
    role = guarded("env", agent_id, lambda: builder.set_role(agent_id, env.role(agent_id)))

    def make() -> Agent:
        agent = _policy(job.seating, agent_id).agent(agent_id, role, job.seed_of(agent_id))
        if not callable(getattr(agent, "act", None)):
            raise AgentError(f"the policy of {agent_id!r} gave {shown(agent)} for an agent; it has no method act")
        return agent

    return guarded("agent", agent_id, make)


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
        EpisodeFailure: an agent or its model fails.
    """

    async def answer(agent_id: str) -> Response:
        try:
            return builder.response(agent_id, await agents[agent_id].act(observations[agent_id], infos[agent_id]))
        except BaseException as error:
            if _ends_more(error):
                raise
            raise _failure("agent", error, agent_id) from error

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


def failed_episode(job: Job, error: EpisodeError, scenario: str = "") -> Episode:
    """The record of an episode that holds nothing but its error."""
    return Episode(job.id or str(job.seed), scenario, job.seed, (), {}, "error", error, repeat=job.repeat)


class _JobBuilder(EpisodeBuilder):
    """Builds the episode of a job, and knows when it reaches a limit."""

    def __init__(self, env: MultiAgentEnv, job: Job, clock: EpisodeClock) -> None:
        super().__init__(job.limits.record)
        self._env, self._job = env, job
        self.clock = clock
        self.asked: tuple[str, ...] = ()  # the agents that are choosing their actions now
        self.returns: dict[str, float] = {}
        self.limit = ""

    def begun(self, returned: Any) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """What the agents observe that act first, and their infos, from what `reset` returned."""
        observations, infos = self._acting(*as_reset(returned, self._env.scenario))
        self.returns = dict(self._env.returns)
        self.sent(self._env.message_log)
        return observations, infos

    def stepped(self, returned: Any) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """The same from what `step` returned, which is added to the record. Both are empty at the end."""
        observations, rewards, terminations, truncations, infos = as_step(returned, self._env.scenario)
        observations, infos = self._acting(observations, infos)
        self.returns = dict(self._env.returns)  # a copy, since a later step may be at work when the episode ends
        self.complete(self.returns, rewards, terminations, truncations, infos)
        self.sent(self._env.message_log)
        return observations, infos

    def _acting(
        self, observations: dict[str, Observation], infos: dict[str, dict[str, Any]]
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        env = self._env
        if env.done:
            observations = {}
        elif not observations:
            raise ScenarioFault(f"{env.scenario}: the episode is not over, but no agent observes anything")
        for agent in observations:
            if agent not in infos:  # it joined in the last step, whose infos do not hold it
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
                models[agent] = guarded("agent", agent, self._model, agent)
            except EpisodeFailure as failure:
                self.error = self.error or failure.error
        try:
            return guarded("env", None, self._record, models, fields)
        except EpisodeFailure as failure:
            return failed_episode(job, self.error or failure.error, scenario_of(self._env))

    def _model(self, agent: str) -> str:
        name: Any = _policy(self._job.seating, agent).name
        if not issubclass(type(name), str):
            raise AgentError(f"the name of the policy of {agent!r} is {shown(name)}; it must be text")
        return str.__str__(name)

    def _record(self, models: dict[str, str], fields: dict[str, Any]) -> Episode:
        env = self._env
        return self.episode(
            returns=self.returns,
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
