"""Answers that are kept, so that nobody waits or pays twice for the same question.

    model = Cached(Retrying(HTTPModel(url, "tiny")), "answers.sqlite")

The same question is: the same model at the same endpoint, messages, tools, sampling and seed. The seed of an
agent's turn follows from the episode's seed, its repeat, the seat and the turn, so that repeats differ from one
another and a run that is played again does not.

A cached answer has `cached` set and is otherwise as it was: with its cost, its usage and the seconds it took.
Costs and limits so count what an episode is worth, whatever was in the cache; what was paid for it is the sum
over the responses that are not `cached`.

The file may be used by several processes at once. It holds answers and hashes of questions, never a key.
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
"""Of the file and of what is hashed; a file of another format is refused."""

MAGIC = 0x6D61726C  # "marl", which tells our files from those of other programs
PATIENCE = 30.0
"""Seconds to wait for another process that writes."""

Result = TypeVar("Result")


class ResponseCache:
    """A file of answers by the hash of their question, in sqlite. Several models may share one.

    Raises:
        RecordError: the file cannot be opened, is damaged, or is no cache of this format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = _open(self.path)
        except (sqlite3.Error, OSError) as error:
            raise RecordError(f"the response cache {self.path} cannot be used: {error}. {_ADVICE}") from error
        # sqlite waits for the disk and for other processes, which the event loop must not.
        self._thread = ThreadPoolExecutor(1, "marl_gem-cache")
        self._connection = connection
        self._warned = False
        self._closed = False

    def __repr__(self) -> str:
        return f"ResponseCache({str(self.path)!r})"

    async def get(self, key: str) -> Response | None:
        """The answer that is kept under this key.

        Raises:
            LLMError: the file is damaged.
        """
        try:
            line = await self._run(_read, key)
            return None if line is None else from_json(line, Response)
        except (sqlite3.Error, RecordError) as error:
            raise LLMError(f"the response cache {self.path} cannot be read: {error}. {_ADVICE}") from error

    async def put(self, key: str, response: Response) -> None:
        """Keep an answer, if there is none yet. Where that fails, the run goes on, after one warning."""
        try:
            await self._run(_write, key, to_json(response))
        except (sqlite3.Error, RecordError) as error:
            if not self._warned:
                self._warned = True
                warnings.warn(f"{self.path} keeps no answers: {error}", RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Let go of the file. Happens by itself when nobody has the cache any more: its thread and its connection
        end with the last reference. (A finalizer that asked the thread to close could run while the same thread held
        the lock of another pool, and wait for it for ever.)"""
        if not self._closed:
            self._closed = True
            try:
                self._thread.submit(self._connection.close)  # when all is done that was asked for
            except RuntimeError:  # the interpreter exits, and has ended the thread
                self._connection.close()
        self._thread.shutdown()

    async def _run(self, call: Callable[..., Result], *arguments: Any) -> Result:
        if self._closed:
            raise LLMError(f"the response cache {self.path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self._connection, *arguments)


class Cached:
    """Asks a model what nobody has asked it yet, and answers the rest from a file; see the top of this file.

    Of several callers that ask the same at the same time one is answered by the model, the others by that answer.
    What fails is not kept. Put it around `Retrying`, so that cached answers need no server.

    Args:
        llm: the model. Its questions are told from another's by its name, and by `url`, `extra_body` and
            `logprobs` if it has these.
        cache: the file, or a cache that is shared with other models.

    Raises:
        RecordError: the file cannot be used as a cache.
        ConfigError: the model's name is not known yet.
    """

    def __init__(self, llm: LLM, cache: ResponseCache | str | Path) -> None:
        self.llm = llm
        self._model = _innermost(llm)
        if getattr(self._model, "model", "") is None:
            raise ConfigError("a cache must tell one model from another; name the one that is asked")
        self.cache = cache if isinstance(cache, ResponseCache) else ResponseCache(cache)
        self._asking: dict[tuple[asyncio.AbstractEventLoop, str], _Asking] = {}

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
        key = question_key(self._model, messages, sampling, seed, tools)
        place = asyncio.get_running_loop(), key
        asking = self._asking.get(place)
        if asking is None or asking.task.done():
            task = asyncio.create_task(self._answer(key, messages, sampling, seed, tools))
            asking = self._asking[place] = _Asking(task)
        asking.waiting += 1
        try:
            response = await asyncio.shield(asking.task)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                if self._asking.get(place) is asking:
                    del self._asking[place]
                await _end(asking.task)
        if asking.told:
            return msgspec.structs.replace(response, cached=True)
        asking.told = True
        return response

    async def _answer(
        self, key: str, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec]
    ) -> Response:
        if kept := await self.cache.get(key):
            return msgspec.structs.replace(kept, cached=True)
        response = await self.llm.complete(messages, sampling, seed, tools)
        await self.cache.put(key, response)
        return response


def question_key(
    llm: LLM, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec]
) -> str:
    """The SHA-256 of a question and whom it is put to, as hexadecimal digits."""
    question = {
        "format": FORMAT,
        "model": {name: getattr(llm, name, None) for name in ("name", "url", "extra_body", "logprobs")},
        "messages": messages,
        "tools": msgspec.to_builtins(tools),
        "sampling": msgspec.to_builtins(sampling),
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


@dataclass(eq=False, slots=True)
class _Asking:
    """A question on its way: how many wait for the answer, and whether one of them has it."""

    task: asyncio.Task[Response]
    waiting: int = 0
    told: bool = False


async def _end(task: asyncio.Task[Response]) -> None:
    """See to it that a question that nobody waits for is asked no further."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not report an error that nobody is left to hear


def _innermost(llm: LLM) -> LLM:
    """The model within its wrappers."""
    while (inner := getattr(llm, "llm", None)) is not None:
        llm = inner
    return llm


_ADVICE = "If it is damaged or no cache, remove it or name another file"


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN")
        _check(connection)  # before anything is written: it may be somebody else's file
        connection.execute("COMMIT")
        _share(connection)
        connection.execute("PRAGMA synchronous = NORMAL")  # whole after a crash, less perhaps the last answers
        connection.execute("BEGIN IMMEDIATE")
        if _check(connection):
            connection.execute("CREATE TABLE answers (key TEXT PRIMARY KEY, response TEXT NOT NULL)")
            connection.execute(f"PRAGMA application_id = {MAGIC}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _share(connection: sqlite3.Connection) -> None:
    """Let others read while one writes. Sqlite does not wait here for others who do the same."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)


def _check(connection: sqlite3.Connection) -> bool:
    """Whether the file is new; within a transaction, so that another process cannot be halfway through making it.

    Raises:
        sqlite3.DatabaseError: it is something else than a cache of this format.
    """
    ((magic,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    if not tables and not magic:
        return True
    if magic != MAGIC:
        raise sqlite3.DatabaseError("it is another program's database")
    if version != FORMAT:
        raise sqlite3.DatabaseError(f"it has format {version}, and this marl_gem reads {FORMAT}")
    return False


def _read(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT response FROM answers WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _write(connection: sqlite3.Connection, key: str, line: str) -> None:
    connection.execute("INSERT OR IGNORE INTO answers (key, response) VALUES (?, ?)", (key, line))
