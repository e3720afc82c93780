"""What processes there are below another, and in what state."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The processes below one, through their parents' ids."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for parent in found:
        found += [child for child, above in parents.items() if above == parent]
    return set(found[1:])


def state(pid: int) -> str:
    """The letter of a process's state: R, S, T (stopped), Z, ...; X when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_alive(pid: int) -> bool:
    return state(pid) not in "ZX"


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds; the limit is only for what never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def descendants_of_this() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if is_alive(pid)}
