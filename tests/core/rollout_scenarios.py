"""Scenarios and policies that the tests of rollouts share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar

import msgspec

from marl_gem import (
    DirectedSelector,
    Episode,
    MultiAgentEnv,
)
from marl_gem.rollout import Job, stream
from tests.toys import NumberGame, always

# The scenarios


class Planned(MultiAgentEnv):
    """Follows a plan: rewards, the agents that end, and the agents that act next, for each step."""

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


class Blocking(NumberGame):
    """Every step sleeps outside of Python; `most` is the greatest number of steps at the same time."""

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

ones = always("1", "scripted")


def seats_of(**policies: Any) -> dict[str, Any]:
    return policies


async def gather(episodes: AsyncGenerator[Episode, None]) -> list[Episode]:
    return [episode async for episode in episodes]


def played(make: Callable[[], MultiAgentEnv], *jobs: Job, concurrency: int = 64) -> list[Episode]:
    """The episodes in the order in which they finished."""
    return asyncio.run(gather(stream(make, jobs, concurrency=concurrency)))


def timeless(episode: Episode) -> Episode:
    return msgspec.structs.replace(episode, seconds=0.0)
