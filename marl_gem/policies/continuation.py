"""A policy that continues an episode in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, Info, Policy
from marl_gem.types import Observation, Response, Role, Turn


@runtime_checkable
class Remembers(Protocol):
    """An agent that can be given a turn that it has not taken itself."""

    def remember(self, observation: Observation, response: Response) -> None:
        """Have answered an observation so."""
        ...


class Continuation:
    """Repeats the first turns that an agent took in another episode with the same seed, and then goes on by itself.

    An agent that `Remembers` gets these turns, and answers from then on with the seed of its own episode. Another one
    is asked again, with the seed that it had in the other episode, and must answer as it did.

    Args:
        policy: goes on.
        turns: those that are repeated.
        seed: that the agent had in the other episode.
    """

    def __init__(self, policy: Policy, turns: Sequence[Turn], seed: int) -> None:
        self._policy, self._turns, self._seed = policy, turns, seed

    @property
    def name(self) -> str:
        return self._policy.name

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        agent = self._policy.agent(agent_id, role, seed)
        if not isinstance(agent, Remembers):
            agent = self._policy.agent(agent_id, role, self._seed)
        return _ContinuingAgent(agent, agent_id, self._turns)


class _ContinuingAgent:
    def __init__(self, agent: Agent, agent_id: str, turns: Sequence[Turn]) -> None:
        self._agent, self._agent_id = agent, agent_id
        self._left = list(reversed(turns))

    async def act(self, observation: Observation, info: Info) -> Response:
        if not self._left:
            return await self._agent.act(observation, info)
        turn = self._left.pop()
        if observation != turn.observation:
            raise AgentError(
                f"{self._agent_id!r} cannot continue the episode: with the same seed and actions the scenario did not "
                "repeat itself, so that no two episodes can share a beginning; set training.group_start to seed"
            )
        if isinstance(self._agent, Remembers):
            self._agent.remember(observation, turn.response)
        elif (await self._agent.act(observation, info)).text != turn.response.text:
            raise AgentError(
                f"{self._agent_id!r} cannot continue the episode: its policy did not repeat itself with the same seed; "
                "set training.group_start to seed"
            )
        return turn.response
