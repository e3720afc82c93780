"""A policy that asks a person at the terminal."""

from __future__ import annotations

from collections.abc import Callable

from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, Info
from marl_gem.types import Observation, Response, Role
from marl_gem.views import as_text


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


class _HumanAgent:
    def __init__(self, agent_id: str, show: Callable[[str], None], ask: Callable[[str], str]) -> None:
        self._agent_id, self._show, self._ask = agent_id, show, ask

    async def act(self, observation: Observation, info: Info) -> Response:
        self._show(as_text(observation))
        try:
            return Response(self._ask(f"{self._agent_id}> "))  # in this thread, where Ctrl-C arrives
        except EOFError:
            raise AgentError(f"the input of {self._agent_id!r} ended before the episode did") from None


def _print(text: str) -> None:
    print(text)  # noqa: T201 - a person is asked here
