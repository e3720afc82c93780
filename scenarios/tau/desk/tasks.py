"""The random tasks of the help desk. Every task has its own parcels, so that their states cannot be memorized."""

from __future__ import annotations

import random
from typing import Any

from marl_gem.scenarios.tau.domain import Task
from marl_gem.seeding import derive_seed
from marl_gem.types import ToolCall

NAMES = ("Ann", "Bob", "Cem", "Dia", "Eva", "Fay")
TOWNS = ("Rome", "Oslo", "Lima", "Cork")
STATES = ("packed", "sent", "there")
TOO_LATE = "too late"
WISHES = ("cancel", "redirect", "where")


def draw(split: str, count: int) -> tuple[Task, ...]:
    """Draw the tasks of a split; the same ones each time.

    A third of the customers ask where their parcel is. For a third of the others it is too late.
    """
    rng = random.Random(derive_seed("help desk", split))
    return tuple(_task(rng) for _ in range(count))


def _task(rng: random.Random) -> Task:
    name, wish = rng.choice(NAMES), rng.choice(WISHES)
    parcels = {other: {"to": rng.choice(TOWNS), "state": rng.choice(STATES)} for other in NAMES}
    if wish != "where" and rng.random() < 0.5:  # with the third that are packed anyway: two thirds
        parcels[name]["state"] = "packed"
    state, town = parcels[name]["state"], rng.choice([t for t in TOWNS if t != parcels[name]["to"]])
    calls: dict[str, dict[str, Any]] = {"cancel": {"name": name}, "redirect": {"name": name, "to": town}}
    wanted = {
        "cancel": "You want to cancel your parcel.",
        "redirect": f"You want your parcel to go to {town}.",
        "where": "You want to know where your parcel is.",
    }[wish]
    granted = wish != "where" and state == "packed"
    return Task(
        user_id=name,
        instruction=f"You are {name}. {wanted}",
        actions=(ToolCall("look_up", {"name": name}), *([ToolCall(wish, calls[wish])] if granted else [])),
        outputs=() if granted else (state if wish == "where" else TOO_LATE,),
        grade=wish if wish == "where" or granted else f"{wish}, {TOO_LATE}",
        data={"parcels": parcels},
    )
