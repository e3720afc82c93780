"""Which tasks are played."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

from marl_gem.errors import ConfigError
from marl_gem.seeding import derive_seed

TaskOrder: TypeAlias = Literal["listed", "by grade", "shuffled"]
"""The order that the first n tasks are taken from: as they are listed; each grade in its share; drawn."""

MOST_LISTED = 1_000_000
"""No list of tasks is longer."""


def ordered(count: int, order: TaskOrder, grades: Sequence[str] = (), seed: int = 0) -> list[int]:
    """All tasks in an order. Whatever n is, the first n tasks of it hold those of a smaller n.

    Args:
        count: how many tasks there are.
        order: see `TaskOrder`. By grade, the first n tasks are of each grade in about its share of all tasks, whatever
            n is: a grade of k tasks is spread evenly over the order.
        grades: the grade of each task, for "by grade".
        seed: for "shuffled".
    """
    tasks = list(range(count))
    if order == "shuffled":
        random.Random(derive_seed(seed, "tasks")).shuffle(tasks)
    if order != "by grade":
        return tasks
    sizes, seen = Counter(grades), Counter[str]()
    position: dict[int, float] = {}
    for task in tasks:
        position[task] = (seen[grades[task]] + 0.5) / sizes[grades[task]]
        seen[grades[task]] += 1
    return sorted(tasks, key=lambda task: position[task])


def read_tasks(text: str) -> tuple[int, ...]:
    """Numbers of tasks from a text such as "3,7-9", each once, in its order.

    Raises:
        ConfigError: it is no such list, or a very long one.
    """
    tasks: dict[int, None] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        if not found or (found[2] and int(found[2]) < int(found[1])):
            raise ConfigError(f"{part!r} names no tasks; write numbers from 0 up, as in 3,7-9")
        first, last = int(found[1]), int(found[2] or found[1])
        if last - first >= MOST_LISTED or len(tasks) > MOST_LISTED:
            raise ConfigError(f"{part!r}: more than {MOST_LISTED:,} tasks cannot be listed; use -n")
        tasks.update(dict.fromkeys(range(first, last + 1)))
    return tuple(tasks)


def write_tasks(tasks: Sequence[int]) -> str:
    """The text that `read_tasks` reads, with runs of numbers as ranges."""
    runs: list[list[int]] = []
    for task in tasks:
        if runs and task == runs[-1][1] + 1:
            runs[-1][1] = task
        else:
            runs.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
