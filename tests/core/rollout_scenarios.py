"""Scenarios and policies that the tests of rollouts share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, ClassVar

import msgspec

from marl_gem import (
    DirectedSelector,
    Episode,
    MultiAgentEnv,
    ParallelSelector,
    Response,
    Role,
    SequentialSelector,
)
from marl_gem.llm import Sampling
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, stream

# The scenarios


class Count(MultiAgentEnv):
    """Agents act in turn, `length` steps in all; a text that is a number is the reward of whoever wrote it."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()
    length = 4

    def observe(self, agent: str) -> str:
        return f"step {self.steps}"

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}.")

    def legal_actions(self, agent: str) -> list[str]:
        return ["1", "2", "3"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if text == "break":
                raise RuntimeError("broken")
            self.rewards[agent] = float(text) if text.isdigit() else 0.0
            self.infos[agent]["read"] = text
        self.terminations = dict.fromkeys(self.agents, self.steps >= self.length)


class CountTogether(Count):
    selector = ParallelSelector()


class Told(MultiAgentEnv):
    """Does what its plan says: a list of (rewards, who ends, who acts next), one for each step."""

    possible_agents = ("a", "b", "c")
    selector = DirectedSelector()

    def __init__(self, *plan: tuple[dict[str, float], str, str]) -> None:
        self.plan = plan

    def observe(self, agent: str) -> str:
        return f"step {self.steps}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        rewards, ends, following = self.plan[self.steps - 1]
        self.rewards = dict(rewards)
        self.terminations |= dict.fromkeys(ends, True)
        self.selector.direct(*following)


class Blocking(Count):
    """Every step takes a while outside Python, and counts how many do so at the same time."""

    blocking = True
    seconds = 0.05
    lock = threading.Lock()
    inside = most = 0
    threads: ClassVar[set[str]]

    def _process_actions(self, actions: dict[str, str]) -> None:
        kind = type(self)
        with self.lock:
            kind.inside += 1
            kind.most = max(kind.most, kind.inside)
            kind.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)
        with self.lock:
            kind.inside -= 1
        super()._process_actions(actions)


# The policies

ones = ScriptedPolicy(lambda observation, info: "1")


class Waits:
    """Answers after some seconds: as many as `seconds` says of the agent's seed or, in a dict, of its id."""

    name = "waits"

    def __init__(self, seconds: Callable[[str], float], text: str = "1") -> None:
        self.seconds, self.text = seconds, text

    def agent(self, agent_id: str, role: Role, seed: int) -> Waits:
        return Waits(lambda _: self.seconds(agent_id), self.text)

    async def act(self, observation: Any, info: Any) -> Response:
        await asyncio.sleep(self.seconds(""))
        return Response(self.text)


class Fails:
    """Raises, or answers with, whatever it is given."""

    name = "fails"

    def __init__(self, how: Any) -> None:
        self.how = how

    def agent(self, agent_id: str, role: Role, seed: int) -> Fails:
        return self

    async def act(self, observation: Any, info: Any) -> Any:
        if isinstance(self.how, BaseException):
            raise self.how
        return self.how


class ScriptedLLM:
    """A model that answers with numbers from its seed and remembers what it was shown."""

    name = "scripted model@3"

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], Sampling, int]] = []

    async def complete(self, messages: Sequence[Any], sampling: Sampling, seed: int, tools: Any = ()) -> Response:
        self.asked.append((list(messages), sampling, seed))
        await asyncio.sleep(0)
        number = len(self.asked)
        return Response(str(seed % 10), (1, 2), (number, 9), (-0.5, -0.1), version=3, usage={"prompt_tokens": 2})


def seats_of(**policies: Any) -> dict[str, Any]:
    return policies


async def gather(episodes: AsyncGenerator[Episode, None]) -> list[Episode]:
    return [episode async for episode in episodes]


def played(make: Callable[[], MultiAgentEnv], *jobs: Job, concurrency: int = 64) -> list[Episode]:
    """The episodes in the order in which they finished."""
    return asyncio.run(gather(stream(make, jobs, concurrency=concurrency)))


def timeless(episode: Episode) -> Episode:
    return msgspec.structs.replace(episode, seconds=0.0)
