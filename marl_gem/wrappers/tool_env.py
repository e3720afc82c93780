"""Give agents tools, in any scenario."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from marl_gem.awaiting import wait_for
from marl_gem.env import Infos, MultiAgentEnv, Observations, Step
from marl_gem.errors import ConfigError, EpisodeOver, MarlGemError, ScenarioFault
from marl_gem.faults import FAULTS
from marl_gem.seeding import derive_seed
from marl_gem.tools.calls import BrokenCall
from marl_gem.tools.context import Context, Leases
from marl_gem.tools.formats import call_format
from marl_gem.tools.names import ToolSource, load_tools
from marl_gem.tools.result import ToolResult, failure
from marl_gem.types import ContentPart, Metadata, Observation, Role, ToolCall
from marl_gem.wrappers.base import Wrapper, agent_ids, layers

AtLimit: TypeAlias = Literal["act", "truncate"]
Order: TypeAlias = Literal["in order", "together"]
Calls: TypeAlias = Sequence[ToolCall | BrokenCall]


class ToolEnv(Wrapper):
    """Gives agents tools: a response that calls some is answered by them, and the turn stays with the caller.

        env = ToolEnv(marl_gem.make("game:KuhnPoker-v0"), ["calculator", my_tool], agents="player_0")

    The caller observes the answers, and is asked again. The scenario and the other agents see nothing of it. Where
    several agents act at the same time, those that do not call wait until the callers have acted too, and are not asked
    again; then the scenario gets the actions of all of them.

    A response in which something is called that none of these tools is, and that the scenario offers itself, goes to
    the scenario. Every call of a response is answered, a broken one by what is wrong with it; the rest of its text is
    dropped. `infos[agent]["tool_calls"]` lists for each call its name, and in a word or two why it failed.

    Of two such wrappers the outer one answers what both could. Resources of tools are given back when the episode ends,
    and a fork has others in the same state.

    Args:
        env: the env to wrap.
        tools: tools, functions, or texts such as "search:corpus=notes.jsonl" (`marl_gem.tools.names`).
        agents: the agents that have them, one id or several; by default all.
        format: how calls are written, or several ways: "tool_call", "tags", "fenced", "mcp"; see `tools.formats`. If
            the first is not "tool_call", the agent's instructions explain it, and answers are text.
        order: whether the calls of one response are answered one after the other, or at the same time.
        calls_per_turn: so many calls may an agent make before it acts; None sets no limit.
        calls_per_episode: so many calls may an agent make in an episode; None sets no limit.
        at_limit: what happens to a response that calls when no calls are left: "act" gives it to the scenario as it
            is, "truncate" truncates the episode. The last answer says that no calls are left.
        call_reward: what the caller gets for each call, in units of reward; a cost is negative.
        error_reward: the same for a call that fails; None pays `call_reward`.
        public: whether the other agents observe the calls and their answers, each once, before what they observe next.

    Raises:
        ConfigError: a tool, format or number is not what it should be, or there is no such agent.
    """

    settles = frozenset({"actions"})
    changes = frozenset({"observations"})

    def __init__(
        self,
        env: MultiAgentEnv,
        tools: ToolSource | Iterable[ToolSource],
        agents: str | Iterable[str] | None = None,
        format: str | Sequence[str] = "tool_call",
        order: Order = "in order",
        calls_per_turn: int | None = 10,
        calls_per_episode: int | None = None,
        at_limit: AtLimit = "act",
        call_reward: float = 0.0,
        error_reward: float | None = None,
        public: bool = False,
    ) -> None:
        super().__init__(env)
        self._tools = {tool.name: tool for tool in load_tools(tools)}
        self._specs = {name: tool.spec for name, tool in self._tools.items()}
        formats = [format] if isinstance(format, str) else list(format)
        self._formats = [call_format(name) for name in formats]
        self._native = formats[:1] == ["tool_call"]
        self._agents = agent_ids(agents)
        self._together, self._at_limit = order == "together", at_limit
        self._per_turn, self._per_episode = calls_per_turn, calls_per_episode
        self._reward, self._public = call_reward, public
        self._error_reward = call_reward if error_reward is None else error_reward
        self._check_settings(order)
        self._hidden = {name for layer in layers(env) if isinstance(layer, ToolEnv) for name in layer._tools}
        self._leases = Leases()
        self._start()

    def _check_settings(self, order: str) -> None:
        if not self._tools or not self._formats:
            raise ConfigError("ToolEnv: name a tool and a format")
        for name, value, words in (("order", order, Order), ("at_limit", self._at_limit, AtLimit)):
            if value not in get_args(words):
                raise ConfigError(f"ToolEnv: {name} is one of {get_args(words)}, not {value!r}")
        for name, limit in (("calls_per_turn", self._per_turn), ("calls_per_episode", self._per_episode)):
            if limit is not None and (type(limit) is not int or limit < 1):
                raise ConfigError(f"ToolEnv: {name} is a number of calls from 1 up, or None, not {limit!r}")
        for name, reward in (("call_reward", self._reward), ("error_reward", self._error_reward)):
            if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not abs(reward) < 1e300:
                raise ConfigError(f"ToolEnv: {name} is a finite number, not {reward!r}")
        unknown = sorted((self._agents or frozenset()) - {*self.env.possible_agents})
        if unknown and not self.env.metadata.joins:
            known = ", ".join(self.env.possible_agents)
            raise ConfigError(f"ToolEnv: {self.env.scenario} has no agent {unknown[0]!r}; its agents are {known}")

    def _start(self) -> None:
        """Forget the episode before."""
        self._leases.release()
        self._leases = Leases()
        self._answers: dict[str, list[ContentPart]] = {}  # what callers observe
        self._overheard: dict[str, list[str]] = {}  # calls of others that an agent observes next
        self._actions: dict[str, str] = {}  # of agents that wait for callers
        self._in_turn: Counter[str] = Counter()
        self._in_episode: Counter[str] = Counter()
        self._gained: Counter[str] = Counter()
        self._steps = 0  # those of calls
        self._step: tuple[Any, ...] | None = None  # what the last step returned, if it was one of calls

    # Attributes of the env

    max_steps: Any = property(lambda self: None, lambda self, value: setattr(self.env, "max_steps", value))
    """The env's own limit holds for its own steps."""

    @property
    def awaits(self) -> bool:  # type: ignore[override]
        return not self.env.blocking

    @property
    def acting(self) -> tuple[str, ...]:  # type: ignore[override]
        acting = super().acting
        return tuple(agent for agent in acting if agent not in self._actions) if self._actions else acting

    @property
    def metadata(self) -> Metadata:  # type: ignore[override]
        metadata = self.env.metadata
        if metadata.turn_order == "parallel":
            metadata = msgspec.structs.replace(metadata, turn_order="mixed")
        if not (self._reward or self._error_reward):
            return metadata if self._at_limit == "act" else msgspec.structs.replace(metadata, zero_sum=None)
        most = self._per_turn or self._per_episode
        bounds = metadata.reward_range
        if bounds and most:
            possible = [*bounds, self._reward * most, self._error_reward * most]
            bounds = (min(possible), max(possible))
        return msgspec.structs.replace(metadata, zero_sum=None, reward_range=bounds if most else None)

    steps: Any = property(lambda self: self.env.steps + self._steps)
    returns: Any = property(lambda self: self._returns())
    rewards: Any = property(lambda self: self._result(1, "rewards"))
    terminations: Any = property(lambda self: self._result(2, "terminations"))
    truncations: Any = property(lambda self: self._result(3, "truncations"))
    infos: Any = property(lambda self: self._result(4, "infos"))

    def _result(self, index: int, name: str) -> Any:
        return getattr(self.env, name) if self._step is None else self._step[index]

    def _returns(self) -> dict[str, float]:
        returns: dict[str, float] = self.env.returns
        if not self._gained:
            return returns
        return {agent: value + self._gained.get(agent, 0.0) for agent, value in returns.items()}

    # Methods of the env

    def role(self, agent: str) -> Role:
        role = self.env.role(agent)
        if not self._has_tools(agent):
            return role
        offered = [tool for tool in role.tools if not (tool.name in self._specs and tool.name in self._hidden)]
        if twice := self._specs.keys() & {tool.name for tool in offered}:
            raise ScenarioFault(
                f"{self.scenario} gives {agent!r} a tool {min(twice)!r} itself; give another one another name"
            )
        specs = tuple(self._specs.values())
        if self._native:
            return msgspec.structs.replace(role, tools=(*offered, *specs))
        explained = [text for text in (role.instructions, self._formats[0].explain(specs)) if text]
        return msgspec.structs.replace(role, instructions="\n\n".join(explained))

    def observe(self, agent: str) -> Observation:
        observation = self._answers[agent] if agent in self._answers else self.env.observe(agent)
        if not (overheard := "\n".join(self._overheard.get(agent, ()))):
            return observation
        if isinstance(observation, str):
            return f"{overheard}\n\n{observation}"
        return [{"type": "text", "text": overheard}, *observation]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = super().reset(seed=seed, options=options)
        self._start()
        return begun

    def step(self, actions: Mapping[str, str]) -> Step:
        called = self._read(actions)
        if called:
            return self._after_calls(actions, called, wait_for(self._answer(called)))
        return self._after_step(self.env.step(self._all(actions)))

    async def step_async(self, actions: Mapping[str, str]) -> Step:
        called = self._read(actions)
        if called:
            return self._after_calls(actions, called, await self._answer(called))
        return self._after_step(await self.env.step_async(self._all(actions)))

    def release_resources(self) -> None:
        self._leases.release()
        super().release_resources()

    def close(self) -> None:
        self._leases.release()
        super().close()

    # How a step is taken

    def _has_tools(self, agent: str) -> bool:
        return self._agents is None or agent in self._agents

    def _read(self, actions: Mapping[str, str]) -> dict[str, list[_Call]]:
        """The calls of each agent that calls, and may; raises if these are not the actions of the acting agents."""
        if self._state != "live" or not self.acting:
            raise EpisodeOver(f"{self.scenario}: the episode is {self._state}; call reset() to start a new one")
        self.check_actions(actions)
        for agent in actions:
            self._overheard.pop(agent, None)
        called = {}
        for agent in self.acting:
            if self._has_tools(agent) and (calls := self._calls(agent, actions[agent])):
                left = self._left(agent)
                if left or self._at_limit == "truncate":
                    called[agent] = [_Call(agent, call, index < left) for index, call in enumerate(calls)]
        return called

    def _calls(self, agent: str, text: str) -> Calls:
        """The calls in a response that are to be answered here."""
        for way in self._formats:
            if calls := way.read(text, self._specs):
                names = [call.name for call in calls if isinstance(call, ToolCall)]
                if any(name in self._tools for name in names):
                    return calls
                return () if self._offered_inside(agent) else calls
        return ()

    def _offered_inside(self, agent: str) -> bool:
        """Whether the scenario, or a wrapper around it, has tools for this agent."""
        try:
            return bool(self.env.role(agent).tools)
        except FAULTS as error:
            self._fault("role", error)

    def _left(self, agent: str) -> int:
        """How many calls an agent may still make before it acts."""
        limits = [
            limit - count[agent]
            for limit, count in ((self._per_turn, self._in_turn), (self._per_episode, self._in_episode))
            if limit is not None
        ]
        return max(0, min(limits, default=1_000_000))

    def _all(self, actions: Mapping[str, str]) -> Mapping[str, str]:
        """These actions and those of the agents that have waited, in the order of the env."""
        self._step = None
        if not self._actions:
            return actions
        both = {**self._actions, **actions}
        self._actions = {}
        return {agent: both[agent] for agent in self.env.acting}

    def _after_step(self, step: Step) -> Step:
        """A step of the env has begun new turns."""
        self._answers.clear()
        self._in_turn.clear()
        if self.done:
            self._leases.release()
        if not self._overheard:
            return step
        return {agent: self.observe(agent) for agent in step[0]}, *step[1:]

    async def _answer(self, called: Mapping[str, Sequence[_Call]]) -> dict[str, list[ToolResult]]:
        """The results of all calls: agents do not wait for each other."""
        tasks = [asyncio.ensure_future(self._answer_agent(calls)) for calls in called.values()]
        try:
            return dict(zip(called, await asyncio.gather(*tasks), strict=True))
        except BaseException as error:
            self._state = "not reset after a failure"
            if isinstance(error, (asyncio.CancelledError, MarlGemError)) or not isinstance(error, FAULTS):
                raise
            self._fault("tools", error)
        finally:
            for task in tasks:
                task.cancel()  # if one has failed, or the step is cancelled

    async def _answer_agent(self, calls: Sequence[_Call]) -> list[ToolResult]:
        first = self._in_episode[calls[0].agent]
        if self._together:
            return list(await asyncio.gather(*map(self._call, calls, itertools.count(first))))
        return [await self._call(call, number) for number, call in enumerate(calls, first)]

    async def _call(self, call: _Call, number: int) -> ToolResult:
        if not call.allowed:
            return failure("no calls of tools are left in this turn", "limit")
        if isinstance(call.call, BrokenCall):
            return failure(f"this call cannot be read: {call.call.reason}", "broken call")
        tool = self._tools.get(call.call.name)
        if tool is None:
            return failure(f"there is no tool {call.call.name!r}; there are {', '.join(self._tools)}", "unknown tool")
        seed = derive_seed(self.seed, call.agent, "tool", number)
        return await tool.call(call.call.arguments, Context(call.agent, seed, self.env, self._leases))

    def _after_calls(
        self, actions: Mapping[str, str], called: Mapping[str, Sequence[_Call]], results: Mapping[str, list[ToolResult]]
    ) -> Step:
        """The step in which agents called: the callers act again, and the others wait for them."""
        self._steps += 1
        alive = self.agents
        rewards, infos = dict.fromkeys(alive, 0.0), {agent: {} for agent in alive}  # type: Any, Infos
        self._actions |= {agent: actions[agent] for agent in actions if agent not in called}
        truncated = False
        for agent, calls in called.items():
            answered = results[agent]
            truncated = truncated or not calls[0].allowed
            allowed = sum(call.allowed for call in calls)
            self._in_turn[agent] += allowed
            self._in_episode[agent] += allowed
            gained = sum(self._error_reward if result.is_error else self._reward for result in answered[:allowed])
            if gained:
                rewards[agent] = float(gained)
                self._gained[agent] += gained  # type: ignore[assignment]
            infos[agent]["tool_calls"] = [
                {"name": call.name, "error": result.error} for call, result in zip(calls, answered, strict=True)
            ]
            self._answers[agent] = self._parts(calls, answered, last=not self._left(agent))
            for other in alive if self._public else ():
                if other != agent:
                    self._overheard.setdefault(other, []).extend(map(_as_overheard, calls, answered))
        if truncated:
            return self._truncate(rewards, infos)
        self._step = (), rewards, dict.fromkeys(alive, False), dict.fromkeys(alive, False), infos
        try:
            observations = {agent: self.observe(agent) for agent in self.acting}
            for agent in self.acting:
                if (legal := self.env.legal_actions(agent)) is not None:
                    infos[agent]["legal_actions"] = list(legal)
        except FAULTS as error:
            self._fault("legal_actions", error)
        return observations, *self._step[1:]  # type: ignore[return-value]

    def _truncate(self, rewards: dict[str, float], infos: Infos) -> Step:
        """An agent has called although it had no calls left, and that ends the episode."""
        try:
            for agent, info in infos.items():
                info["final_observation"] = self.observe(agent)
        except FAULTS as error:
            self._fault("observe", error)
        self._step = (), rewards, dict.fromkeys(infos, False), dict.fromkeys(infos, True), infos
        self._state = "over"
        self._leases.release()
        return {}, *self._step[1:]  # type: ignore[return-value]

    def _parts(self, calls: Sequence[_Call], results: Sequence[ToolResult], last: bool) -> list[ContentPart]:
        """The answers as the caller observes them: first all texts, then the images."""
        parts: list[ContentPart] = []
        for index, (call, result) in enumerate(zip(calls, results, strict=True)):
            text = result.text
            if last and index == len(calls) - 1:
                text += "\n\n[No calls of tools are left in this turn: act now.]"
            if self._native:
                parts.append({"type": "tool_result", "name": call.name, "text": text})
            else:
                parts.append({"type": "text", "text": f"Answer of {call.name or 'your call'}:\n{text}"})
        for call, result in zip(calls, results, strict=True):
            if result.images:
                parts += [{"type": "text", "text": f"Shown by {call.name}:"}, *result.images]
        return parts


@dataclass(frozen=True)
class _Call:
    """A call of an agent, and whether it is within its limits."""

    agent: str
    call: ToolCall | BrokenCall
    allowed: bool

    @property
    def name(self) -> str:
        return self.call.name if isinstance(self.call, ToolCall) else ""


def _as_overheard(call: _Call, result: ToolResult) -> str:
    """A call and its answer as other agents observe them."""
    arguments = json.dumps(call.call.arguments, ensure_ascii=False) if isinstance(call.call, ToolCall) else ""
    images = " (with an image)" if result.images else ""
    return f"[{call.agent} called {call.name or 'a tool'} {arguments}: {result.text}{images}]"
