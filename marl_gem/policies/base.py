"""The two protocols: a policy decides, an agent is one policy in one seat of one episode.

A policy may play many agents in many episodes. `policy.agent(agent_id, role, seed)` makes an agent, which has
the memory of its episode; `await agent.act(observation, info)` gives a Response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from marl_gem.errors import AgentError
from marl_gem.types import Observation, Response, Role

Info = Mapping[str, Any]


class Agent(Protocol):
    """One policy in one seat of one episode."""

    async def act(self, observation: Observation, info: Info) -> Response:
        """Answer an observation. `info` is the info that came with it.

        Raises:
            AgentError, LLMError: no answer can be given.
        """
        ...


class Policy(Protocol):
    """What decides."""

    @property
    def name(self) -> str:
        """What records call the policy."""
        ...

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        """Make an agent for one episode, with its role, and a seed for everything random that it does."""
        ...


class PolicyPerSeat:
    """Several policies as one: each plays the agent that it is named for.

    Raises:
        AgentError: from `agent`, for an agent that it has no policy for.
    """

    def __init__(self, name: str, policies: Mapping[str, Policy]) -> None:
        self.name = name
        self.policies = dict(policies)

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if agent_id not in self.policies:
            raise AgentError(f"{self.name} has no policy for {agent_id!r}, only for {', '.join(self.policies)}")
        return self.policies[agent_id].agent(agent_id, role, seed)


class FunctionAgent:
    """An agent that answers by calling a function of observation and info."""

    def __init__(self, choose: Callable[[Observation, Info], str]) -> None:
        self._choose = choose

    async def act(self, observation: Observation, info: Info) -> Response:
        return Response(self._choose(observation, info))
