"""A response cache on disk: an equal request is answered from a file.

    model = Cached(Retrying(HTTPModel(url, "tiny")), "answers.sqlite")

Requests are equal if they have the same model at the same endpoint, messages, tools, sampling and seed. The seed of an
agent's turn is derived from the episode's seed, its repeat, the agent and the turn, so that repeats differ from one
another and a run that is played again does not.

A cached response has `cached` set and otherwise keeps its cost, its usage and its seconds. Costs and limits so do not
depend on what was in the cache; the money spent is the sum over the responses that are not `cached`.

Several processes may use the file at once. It holds responses and hashes of requests, never an API key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from marl_gem.errors import ConfigError, LLMError, RecordError
from marl_gem.llm import LLM, Sampling
from marl_gem.types import Message, Response, ToolSpec, from_json, to_json

FORMAT = 1
"""The version of the file and of the hashed fields; a file of another version is refused."""

APPLICATION_ID = 0x6D61726C  # "marl"; sqlite stores it in the header of the file
LOCK_TIMEOUT = 30.0
"""Seconds to wait for another process that writes."""

Result = TypeVar("Result")


class ResponseCache:
    """A sqlite file that maps the hash of a request to its response. Several models may share it.

    Raises:
        RecordError: the file cannot be opened, is damaged, or is not a cache of this format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = _open(self.path)
        except (sqlite3.Error, OSError) as error:
            raise RecordError(f"the response cache {self.path} cannot be used: {error}. {_ADVICE}") from error
        # In a thread: sqlite waits for the disk and for other processes, and the event loop must not.
        self._thread = ThreadPoolExecutor(1, "marl_gem-cache")
        self._connection = connection
        self._warned = False
        self._closed = False

    def __repr__(self) -> str:
        return f"ResponseCache({str(self.path)!r})"

    async def get(self, key: str) -> Response | None:
        """The response with this key, or None.

        Raises:
            LLMError: the file is damaged.
        """
        try:
            line = await self._run(_read, key)
            return None if line is None else from_json(line, Response)
        except (sqlite3.Error, RecordError) as error:
            raise LLMError(f"the response cache {self.path} cannot be read: {error}. {_ADVICE}") from error

    async def put(self, key: str, response: Response) -> None:
        """Store a response, unless the key has one. If that fails, the run continues, after one warning."""
        try:
            await self._run(_write, key, to_json(response))
        except (sqlite3.Error, RecordError) as error:
            if not self._warned:
                self._warned = True
                warnings.warn(f"{self.path} stores no responses: {error}", RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Close the file. This is optional: thread and connection end with the last reference to the cache.

        There is no finalizer: it could run in a thread that holds the lock of another pool, and deadlock.
        """
        if not self._closed:
            self._closed = True
            try:
                self._thread.submit(self._connection.close)  # after all that was submitted before
            except RuntimeError:  # the interpreter exits and has ended the thread
                self._connection.close()
        self._thread.shutdown()

    async def _run(self, call: Callable[..., Result], *arguments: Any) -> Result:
        if self._closed:
            raise LLMError(f"the response cache {self.path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self._connection, *arguments)


class Cached:
    """A model with a response cache; see the top of this file.

    Equal requests at the same time become one call of the model. Errors are not stored. Wrap `Retrying` in it, not the
    other way around, so that cached responses need no server.

    Args:
        llm: the model. Its name, and its `url`, `extra_body` and `logprobs` where it has them, are part of the key.
        cache: the file, or a cache that is shared with other models.

    Raises:
        RecordError: the file cannot be used as a cache.
        ConfigError: the model's name is not known yet.
    """

    def __init__(self, llm: LLM, cache: ResponseCache | str | Path) -> None:
        self.llm = llm
        self._model = _innermost(llm)
        if getattr(self._model, "model", "") is None:
            raise ConfigError("a response cache needs the name of the model; give it to the model")
        self.cache = cache if isinstance(cache, ResponseCache) else ResponseCache(cache)
        self._pending: dict[tuple[asyncio.AbstractEventLoop, str], _PendingCall] = {}

    @property
    def name(self) -> str:
        return self.llm.name

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer, see `marl_gem.llm.LLM`.

        Raises:
            LLMError: as the model raises it, or the file is damaged.
        """
        key = request_key(self._model, messages, sampling, seed, tools)
        loop = asyncio.get_running_loop()
        call = self._pending.get((loop, key))
        if call is None or call.task.done():
            task = asyncio.create_task(self._answer(key, messages, sampling, seed, tools))
            call = self._pending[loop, key] = _PendingCall(task)
        call.waiting += 1
        try:
            response = await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if not call.waiting:
                if self._pending.get((loop, key)) is call:
                    del self._pending[loop, key]
                await _cancel(call.task)
        if call.delivered:
            return msgspec.structs.replace(response, cached=True)
        call.delivered = True
        return response

    async def _answer(
        self, key: str, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec]
    ) -> Response:
        if stored := await self.cache.get(key):
            return msgspec.structs.replace(stored, cached=True)
        response = await self.llm.complete(messages, sampling, seed, tools)
        await self.cache.put(key, response)
        return response


def request_key(llm: LLM, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec]) -> str:
    """The SHA-256 of a request and its model, as hexadecimal digits."""
    request = {
        "format": FORMAT,
        "model": {name: getattr(llm, name, None) for name in ("name", "url", "extra_body", "logprobs")},
        "messages": messages,
        "tools": msgspec.to_builtins(tools),
        "sampling": msgspec.to_builtins(sampling),
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


@dataclass(eq=False, slots=True)
class _PendingCall:
    """A call of the model, how many callers wait for it, and whether one of them has its response."""

    task: asyncio.Task[Response]
    waiting: int = 0
    delivered: bool = False


async def _cancel(task: asyncio.Task[Response]) -> None:
    """Cancel a call that no caller waits for any more."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it


def _innermost(llm: LLM) -> LLM:
    """The model inside its wrappers."""
    while (inner := getattr(llm, "llm", None)) is not None:
        llm = inner
    return llm


_ADVICE = "If it is damaged or not a response cache, remove it or name another file"


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN")
        _check(connection)  # before anything is written: it may belong to another program
        connection.execute("COMMIT")
        _allow_readers(connection)
        connection.execute("PRAGMA synchronous = NORMAL")  # intact after a crash, perhaps without the last responses
        connection.execute("BEGIN IMMEDIATE")
        if _check(connection):
            connection.execute("CREATE TABLE answers (key TEXT PRIMARY KEY, response TEXT NOT NULL)")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _allow_readers(connection: sqlite3.Connection) -> None:
    """Let others read while one process writes. Sqlite's own time-out does not cover this statement."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _check(connection: sqlite3.Connection) -> bool:
    """Whether the file is new. Call it in a transaction, so that no other process is creating the file meanwhile.

    Raises:
        sqlite3.DatabaseError: it is not a cache of this format.
    """
    ((application_id,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    if not tables and not application_id:
        return True
    if application_id != APPLICATION_ID:
        raise sqlite3.DatabaseError("it is another program's database")
    if version != FORMAT:
        raise sqlite3.DatabaseError(f"it has format {version}, and this marl_gem reads {FORMAT}")
    return False


def _read(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT response FROM answers WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _write(connection: sqlite3.Connection, key: str, line: str) -> None:
    connection.execute("INSERT OR IGNORE INTO answers (key, response) VALUES (?, ?)", (key, line))
