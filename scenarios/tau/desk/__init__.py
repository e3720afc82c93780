"""A help desk for parcels: the smallest domain, for models of a few hundred thousand parameters.

tools.py     look up, cancel or redirect a parcel
tasks.py     random tasks: a customer, a wish, and the state of all parcels
experts.py   scripted policies for both seats, an expert and a novice
policy.md    the assistant's instructions
user.md      the customer's instructions, with {instruction}
"""

from __future__ import annotations

from pathlib import Path

from marl_gem.scenarios.tau.database import Database
from marl_gem.scenarios.tau.desk import tasks, tools
from marl_gem.scenarios.tau.domain import Domain

_HERE = Path(__file__).parent
SPLITS = {"test": 200, "train": 2000}


def domain() -> Domain:
    """The domain with the numbers of tasks in `SPLITS`; its tasks are the same each time."""
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
