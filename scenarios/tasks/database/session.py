"""SQLite in a sandbox: a model's queries never run in this process. The database is restored without a new sandbox."""

from __future__ import annotations

import base64
import inspect
import json
from typing import Any

from marl_gem.errors import SandboxError
from marl_gem.scenarios.tasks.database.shop import content
from marl_gem.tools.sandbox import Completed, Limits, PythonSession
from marl_gem.tools.sandbox.limits import MIB

_LIMITS = Limits(wall=10.0, cpu=10.0, memory=256 * MIB, output=MIB)

_HARNESS = """
from __future__ import annotations

import base64
import json
import sqlite3
from typing import Any

STEPS, MOST_ROWS = 2000, 100  # thousands of steps of SQLite's machine that a query may take

_DENIED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}


def restore(data):
    global database
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(base64.b64decode(data))
    database.set_authorizer(lambda action, *names: sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK)


def query(text):
    steps = 0

    def count():
        nonlocal steps
        steps += 1
        return steps > STEPS

    database.set_progress_handler(count, 10000)
    try:
        rows = database.execute(text)
        found = rows.fetchmany(MOST_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, MemoryError, ValueError) as error:
        print(f"Error: {'the query took too many steps' if steps > STEPS else error}")
        return
    finally:
        database.set_progress_handler(None, 0)
    if rows.description is None:
        print("done" if rows.rowcount < 0 else f"done, {rows.rowcount} rows")
        return
    for row in ([column[0] for column in rows.description], *found[:MOST_ROWS]):
        print(" | ".join(str(value)[:500] for value in row))
    if len(found) > MOST_ROWS:
        print(f"[more than {MOST_ROWS} rows]")
"""


class DatabaseSession(PythonSession):
    """A database in a sandbox. A user gives it queries alone, so that a reset restores the database and no more."""

    def __init__(self) -> None:
        super().__init__(_LIMITS)
        self._restored = False

    async def query(self, start: bytes, text: str) -> Completed:
        """Run a query, on a database that begins as `start` in each episode."""
        await self._restore(start)
        completed = await self.run(f"query({text!r})")
        if completed.state_lost:
            self._restored = False
        return completed

    async def tables(self, start: bytes) -> dict[str, Any]:
        """What the tables hold, as `content` gives it.

        Raises:
            SandboxError: they cannot be read.
        """
        await self._restore(start)
        completed = await self.run("print(json.dumps(content(database)))")
        try:
            found: dict[str, Any] = json.loads(completed.stdout)
        except (ValueError, RecursionError) as error:
            raise SandboxError(f"the tables cannot be read: {completed.stderr[-300:]}") from error
        return found

    async def reset(self) -> None:
        self._restored = False
        if not await self.healthy():
            await super().reset()

    async def _restore(self, start: bytes) -> None:
        if self._restored:
            return
        code = f"{_HARNESS}\n{inspect.getsource(content)}\nrestore({base64.b64encode(start).decode()!r})"
        completed = await self.run(code)
        if completed.exit_code != 0:
            raise SandboxError(f"the database cannot be restored: {completed.stderr[-300:]}")
        self._restored = True
