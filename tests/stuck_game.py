"""A game with steps and policies that never return, for tests of Ctrl-C; and marl-gem with it, in a process of its own.

python -m tests.stuck_game eval test:Stuck-v0 -o how=thread --out DIR

A file named by STUCK_MARK is made when the first step or policy is stuck.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from marl_gem.policies import ScriptedPolicy
from marl_gem.registry import register, register_policy
from tests.toys import NumberGame


def _mark() -> None:
    Path(os.environ["STUCK_MARK"]).touch()


def _in_socket() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(listening.getsockname()).recv(1)


def _in_c() -> None:
    """In C code that neither returns nor looks at signals."""
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    sqlite3.connect(":memory:").execute(count).fetchall()


def _in_pool() -> None:
    """In a thread that Python waits for at its end."""
    ThreadPoolExecutor(1).submit(time.sleep, 10**6).result()


STUCK: dict[str, Callable[[], None]] = {
    "sleep": lambda: time.sleep(10**6),
    "socket": _in_socket,
    "c": _in_c,
    "pool": _in_pool,
}


class Stuck(NumberGame):
    """The number game. If `how` names a way, the steps of games with even seeds do not return, after so many steps
    of any games."""

    steps_of_all = 0

    def __init__(self, how: str = "", threads: bool = True, after: int = 0) -> None:
        self.how, self.blocking, self.after = how, threads, after

    def _process_actions(self, actions: dict[str, str]) -> None:
        Stuck.steps_of_all += 1
        if self.how and self.seed % 2 == 0 and Stuck.steps_of_all > self.after:
            _mark()
            STUCK[self.how]()
        super()._process_actions(actions)


def blocking_policy(scenario: str, options: Mapping[str, Any]) -> ScriptedPolicy:
    """It blocks the event loop."""

    def act(observation: Any, info: Any) -> str:
        _mark()
        time.sleep(10**6)
        return "1"

    return ScriptedPolicy(act)


def main() -> None:
    from marl_gem import env_threads
    from marl_gem.cli import main

    env_threads.PATIENCE = float(os.environ.get("STUCK_PATIENCE", "0.1"))
    register("test:Stuck-v0", Stuck, agents=2)
    register_policy("test", "blocks", blocking_policy)
    main()


if __name__ == "__main__":
    main()
