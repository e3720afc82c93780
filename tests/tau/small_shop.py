"""A shop of two orders whose customer may have a telephone, and how its dialogues are played."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from marl_gem.scenarios.tau.common import think, transfer_to_human_agents
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.tool import Refused, tool
from marl_gem.tools.calls import write_call
from marl_gem.types import ToolCall


@tool
def look_up(db: Session, order_id: str) -> str:
    """Look up an order."""
    return json.dumps(db["orders"][order_id])


@tool
def cancel(db: Session, order_id: str) -> str:
    """Cancel an order."""
    if order_id not in db["orders"]:
        raise Refused("order not found")
    db["orders"].edit(order_id)["status"] = "cancelled"
    return "cancelled"


@tool
def write_note(db: Session, order_id: str, text: str) -> str:
    """Write a note to an order."""
    db["orders"].edit(order_id)["note"] = text
    return text


@tool
def say_nothing(db: Session) -> str | None:
    """Give no answer."""
    return None


@tool
def restart_phone(db: Session) -> str:
    """Switch your telephone off and on."""
    db["phones"].edit("mei")["restarts"] += 1
    return "It rings again."


TASKS = (
    Task(
        "mei",
        "You are Mei, number 4711. Cancel W1 and ask what W2 costs.",
        (ToolCall("cancel", {"order_id": "W1"}),),
        ("1250.50",),
    ),
    Task("mei", "You are Mei. You want a human.", (ToolCall("transfer_to_human_agents", {"summary": ""}),)),
    Task("mei", "You are Mei. Nothing can be done for you."),
)


def shop(user_tools: Sequence[Any] = (), tasks: Sequence[Task] = TASKS) -> Domain:
    tools = (look_up, cancel, write_note, say_nothing, think, transfer_to_human_agents)
    return Domain(
        name="shop",
        official="retail",
        policy="Be kind.",
        tools={tool.name: tool for tool in tools},
        terminating=frozenset({"transfer_to_human_agents"}),
        database=Database(
            {
                "orders": {
                    "W1": {"status": "pending", "note": ""},
                    "W2": {"status": "pending", "note": f"{STOP} paid", "price": 1250.5},
                },
                "phones": {"mei": {"restarts": 0}},
            }
        ),
        splits={"test": tasks, "train": tasks[:1]},
        user_tools={tool.name: tool for tool in user_tools},
    )


def make(**options: Any) -> TauEnv:
    return TauEnv(shop(), **{"task": 0, **options})


CANCEL = write_call("cancel", {"order_id": "W1"})
TRANSFER = write_call("transfer_to_human_agents", {"summary": "help"})
PRICE = "It costs 1,250.50 dollars."


def play(env: TauEnv, *texts: str) -> dict[str, Any]:
    """Let whoever acts say these texts; the last infos."""
    _, infos = env.reset(seed=0) if env.done else ({}, env.infos)
    for text in texts:
        (agent,) = env.acting
        *_, infos = env.step({agent: text})
    return infos


def begun(**options: Any) -> TauEnv:
    """An episode in which the user has opened."""
    env = make(**options)
    play(env, "Hello")
    return env
