"""A desk with one ticket, and models that give prepared answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from marl_gem.llm import Sampling
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.tool import tool
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, Message, Observation, Response, Role, ToolCall, ToolSpec


@tool
def close_ticket(db: Session, number: str) -> str:
    """Close a ticket.

    Args:
        number: The ticket's number.
    """
    db["tickets"].edit(number)["status"] = "closed"
    return f"{number} is closed"


@tool
def give_up(db: Session) -> str:
    """Hand over."""
    return "Transfer successful"


TASKS = (
    Task("ann", "You are Ann. Close ticket 815.", (ToolCall("close_ticket", {"number": "815"}),), ("815 is closed",)),
    Task("ann", "You are Ann. Ask for the moon.", (ToolCall("give_up", {}),), ("no",)),
)
DESK = Domain(
    name="desk",
    official="retail",
    policy="Help where you can.",
    tools={"close_ticket": close_ticket, "give_up": give_up},
    terminating=frozenset({"give_up"}),
    database=Database({"tickets": {"815": {"status": "open"}}}),
    splits={"test": TASKS},
)
CLOSE = write_call("close_ticket", {"number": "815"})


class Model:
    """Says these texts one after the other, or what a function makes of the messages; keeps what it was asked."""

    def __init__(self, texts: Iterable[str] | Callable[[Sequence[Message]], str], name: str = "model") -> None:
        self.name = name
        self._texts = texts if callable(texts) else iter(texts)
        self.asked: list[list[Message]] = []
        self.seeds: list[int] = []
        self.tools: list[Sequence[ToolSpec]] = []

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        self.asked.append(list(messages))
        self.seeds.append(seed)
        self.tools.append(tools)
        text = self._texts(messages) if callable(self._texts) else next(self._texts)
        usage = {"prompt_tokens": 10, "completion_tokens": 1}
        return Response(text, token_ids=(len(self.asked),), usage=usage, cost=0.5, seconds=2.0)


def answers(policy: Policy, *observations: Observation, role: Role | None = None, seed: int = 0) -> list[Response]:
    """What one agent answers to these observations."""

    async def ask() -> list[Response]:
        agent = policy.agent("user", role or Role("You are Ann."), seed)
        return [await agent.act(observation, {}) for observation in observations]

    return asyncio.run(ask())


def play(user: Policy, assistant: Policy, task: int = 0) -> Episode:
    job = Job(0, {"user": user, "assistant": assistant}, options={"task": task})
    (episode,) = collect(lambda: TauEnv(DESK), [job])
    assert episode.error is None, episode.error
    return episode


def roles(messages: Sequence[Message]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in messages]


def respond(content: Any) -> str:
    """An action in text that says something to the customer."""
    return json.dumps({"name": "respond", "arguments": {"content": content}})
