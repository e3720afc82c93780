"""Who sits in a seat.

A policy decides; it is shared by many seats in many episodes. An agent is one policy in one seat of one
episode, with its memory: `policy.agent(agent_id, role, seed)` makes it, `await agent.act(observation, info)`
gives a Response.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from marl_gem.errors import AgentError
from marl_gem.llm import LLM, Sampling
from marl_gem.seeding import derive_seed
from marl_gem.types import Observation, Response, Role
from marl_gem.views import Exchange, View, chat

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
    """A language model behind a view of the agent's history."""

    def __init__(self, llm: LLM, view: View = chat, sampling: Sampling | None = None) -> None:
        self.llm = llm
        self.view = view
        self.sampling = sampling or Sampling()

    @property
    def name(self) -> str:
        return self.llm.name

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        return _LLMAgent(self, role, seed)


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
        self._history: list[Exchange] = []

    async def act(self, observation: Observation, info: Info) -> Response:
        policy, turn = self._policy, len(self._history)
        self._history.append(Exchange(observation, None))
        messages = policy.view(self._role, self._history)
        response = await policy.llm.complete(messages, policy.sampling, derive_seed(self._seed, turn))
        self._history[-1] = Exchange(observation, response)
        return response


def as_text(observation: Observation) -> str:
    """An observation as text; a part that is not text is named in brackets."""
    if isinstance(observation, str):
        return observation
    return "\n".join(part["text"] if part.get("type") == "text" else f"[{part.get('type')}]" for part in observation)


def _print(text: str) -> None:
    print(text)  # noqa: T201 - a person is asked here
