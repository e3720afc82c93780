"""Who sits in a seat.

A policy decides; it is shared by many seats in many episodes. An agent is one policy in one seat of one
episode, with its memory: `policy.agent(agent_id, role, seed)` makes it, `await agent.act(observation, info)`
gives a Response.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from marl_gem.errors import AgentError, ContextTooLong
from marl_gem.llm import LLM, Sampling
from marl_gem.llm.wire import split_reasoning
from marl_gem.seeding import derive_seed
from marl_gem.types import Message, Observation, Response, Role
from marl_gem.views import AnyView, Exchange, History, chat, cut, without_reasoning
from marl_gem.views import as_text as as_text

Info = Mapping[str, Any]


class Agent(Protocol):
    """One policy in one seat of one episode."""

    async def act(self, observation: Observation, info: Info) -> Response:
        """Answer an observation. `info` is what the env told this agent along with it.

        Raises:
            AgentError, LLMError: no answer can be given.
        """
        ...


class Policy(Protocol):
    """What decides."""

    @property
    def name(self) -> str:
        """Goes into records."""
        ...

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        """Take a seat: told its role, with a seed for everything random it does."""
        ...


class ScriptedPolicy:
    """Plays a script: a function of observation and info, or texts played one after the other."""

    def __init__(self, script: Callable[[Observation, Info], str] | Iterable[str], name: str = "scripted") -> None:
        self.name = name
        self._script = script if callable(script) else tuple(script)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if callable(self._script):
            return _FunctionAgent(self._script)
        lines = iter(self._script)

        def read_on(observation: Observation, info: Info) -> str:
            try:
                return next(lines)
            except StopIteration:
                raise AgentError(f"the script of {agent_id!r} has ended, but the episode goes on") from None

        return _FunctionAgent(read_on)


class RandomPolicy:
    """Picks any legal action, each as likely as the other."""

    name = "random"

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        rng = random.Random(seed)

        def pick(observation: Observation, info: Info) -> str:
            legal = info.get("legal_actions")
            if not legal:
                raise AgentError(
                    f"random play in seat {agent_id!r} needs a list of legal actions, and this scenario gives none; "
                    "seat a model or a script instead"
                )
            return str(rng.choice(legal))

        return _FunctionAgent(pick)


class HumanPolicy:
    """Asks a person at the terminal.

    `show` and `ask` are how: they default to print and input, and the command line passes prettier ones.
    """

    name = "human"

    def __init__(self, show: Callable[[str], None] | None = None, ask: Callable[[str], str] = input) -> None:
        self._show = show or _print
        self._ask = ask

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if role.instructions:
            self._show(role.instructions)
        return _HumanAgent(agent_id, self._show, self._ask)


class LLMPolicy:
    """A language model behind a view of the agent's history.

    The tools of the agent's role are offered to the model. A prompt that does not fit is cut: the oldest
    exchanges after the first are left out, as few as will do, and `Response.cut` tells how many.

    Args:
        llm: answers.
        view: makes messages of the history.
        sampling: how answers are drawn.
        keep_reasoning: whether later prompts hold what the model thought before it spoke. By default they do
            not, as the makers of such models advise; then an answer that was thought over is no prefix of the
            next prompt.
    """

    def __init__(
        self, llm: LLM, view: AnyView = chat, sampling: Sampling | None = None, *, keep_reasoning: bool = False
    ) -> None:
        self.llm = llm
        self.view = view
        self.sampling = sampling or Sampling()
        self.keep_reasoning = keep_reasoning

    @property
    def name(self) -> str:
        return self.llm.name

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _LLMAgent(self, role, seed)


class PolicyPerSeat:
    """Several policies as one: each holds the seat that it is named for.

    Raises:
        AgentError: when it takes a seat for which it has none.
    """

    def __init__(self, name: str, policies: Mapping[str, Policy]) -> None:
        self.name = name
        self.policies = dict(policies)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if agent_id not in self.policies:
            raise AgentError(f"{self.name} has no policy for {agent_id!r}, only for {', '.join(self.policies)}")
        return self.policies[agent_id].agent(agent_id, role, seed)


class _FunctionAgent:
    def __init__(self, choose: Callable[[Observation, Info], str]) -> None:
        self._choose = choose

    async def act(self, observation: Observation, info: Info) -> Response:
        return Response(self._choose(observation, info))


class _HumanAgent:
    def __init__(self, agent_id: str, show: Callable[[str], None], ask: Callable[[str], str]) -> None:
        self._agent_id, self._show, self._ask = agent_id, show, ask

    async def act(self, observation: Observation, info: Info) -> Response:
        self._show(as_text(observation))
        try:
            return Response(self._ask(f"{self._agent_id}> "))  # in this thread, where Ctrl-C arrives
        except EOFError:
            raise AgentError(f"the input of {self._agent_id!r} ended before the episode did") from None


class _LLMAgent:
    def __init__(self, policy: LLMPolicy, role: Role, seed: int) -> None:
        self._policy, self._role, self._seed = policy, role, seed
        self._history = History()
        self._cut = 0

    async def act(self, observation: Observation, info: Info) -> Response:
        seed = derive_seed(self._seed, len(self._history))
        self._history.append(Exchange(observation, None))
        while True:
            try:
                response = await self._ask(seed)
                break
            except ContextTooLong:
                droppable = len(self._history) - 1
                if self._cut >= droppable:
                    raise
                self._cut += max(1, (droppable - self._cut) // 2)
        if response.reasoning == "":
            reasoning, text = split_reasoning(response.text)
            if reasoning:
                response = msgspec.structs.replace(response, text=text, reasoning=reasoning)
        if self._cut:
            response = msgspec.structs.replace(response, cut=self._cut)
        self._history[-1] = Exchange(observation, response)
        return response

    async def _ask(self, seed: int) -> Response:
        policy = self._policy
        shown = policy.view(self._role, cut(self._history, self._cut) if self._cut else self._history)
        messages = await shown if inspect.isawaitable(shown) else shown
        if not policy.keep_reasoning:
            messages = without_reasoning(messages)
        return await policy.llm.complete(messages, policy.sampling, seed, self._role.tools)


def summarizer(
    llm: LLM,
    sampling: Sampling | None = None,
    instructions: str = "Sum up what has happened so far, in a few sentences. Keep whatever may matter later.",
) -> Callable[[str], Awaitable[str]]:
    """What a language model says of a text in short, for `views.summary`.

    The same text is asked about with the same seed. By default the model takes the most likely tokens, up to 256.
    """
    sampling = sampling or Sampling(max_tokens=256, temperature=0.0)

    async def summarize(text: str) -> str:
        system: Message = {"role": "system", "content": instructions}
        response = await llm.complete([system, {"role": "user", "content": text}], sampling, derive_seed(text))
        return response.text

    return summarize


def _print(text: str) -> None:
    print(text)  # noqa: T201 - a person is asked here
