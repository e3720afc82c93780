"""A help desk for parcels: the smallest domain, whose dialogues a model of a few hundred thousand parameters can learn.

tools.py     look a parcel up, cancel it, redirect it
tasks.py     tasks made by lot: who wants what, and where all the parcels are
experts.py   scripted policies for both seats, and novices to begin with
policy.md    what the assistant is told
user.md      what the customer is told, around its instruction
"""

from __future__ import annotations

from pathlib import Path

from marl_gem.scenarios.tau.database import Database
from marl_gem.scenarios.tau.desk import tasks, tools
from marl_gem.scenarios.tau.domain import Domain

_HERE = Path(__file__).parent
SPLITS = {"test": 200, "train": 2000}


def domain() -> Domain:
    """The domain, with as many tasks as `SPLITS` says; the same every time."""
    return Domain(
        name="desk",
        official="desk",
        policy=(_HERE / "policy.md").read_text("utf-8").strip(),
        tools={tool.name: tool for tool in tools.TOOLS},
        terminating=tools.TERMINATING,
        database=Database({"parcels": {}}),  # each task brings its own
        splits={split: tasks.draw(split, count) for split, count in SPLITS.items()},
        user_role=(_HERE / "user.md").read_text("utf-8").strip(),
    )
