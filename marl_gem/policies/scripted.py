"""A policy that plays a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, FunctionAgent, Info
from marl_gem.types import Observation, Role


class ScriptedPolicy:
    """Plays a script: a function of observation and info, or texts played one after the other."""

    def __init__(self, script: Callable[[Observation, Info], str] | Iterable[str], name: str = "scripted") -> None:
        self.name = name
        self._script = script if callable(script) else tuple(script)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if callable(self._script):
            return FunctionAgent(self._script)
        lines = iter(self._script)

        def read_on(observation: Observation, info: Info) -> str:
            try:
                return next(lines)
            except StopIteration:
                raise AgentError(f"the script of {agent_id!r} has ended, but the episode goes on") from None

        return FunctionAgent(read_on)
