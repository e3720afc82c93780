"""Where the episodes of a JSONL file lie, and a summary of each: one pass, and no episode is kept in memory.

The file grows while a run is going on, may end in the middle of a line, and may hold lines that are no episodes. The
entries say so; it is no error here.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.outcomes import Outcome
from marl_gem.types import Ending, Episode, EpisodeError, from_json, read_json


class Summary(msgspec.Struct, gc=False):
    """An episode in a few fields.

    `returns` and `models` hold a value for each agent. `illegal` counts the illegal moves of the agents that made any.
    `final_infos` holds what decides the outcome: `success`, `failure` and `illegal`, of the agents that have them.
    `tokens` counts what all models read and wrote; `cost` is in US dollars, without responses from a cache, and None if
    the price of any other is unknown; `seconds` is the time that the episode took. `outcomes` is filled in by
    `RunReader`, because older records do not say whether they are contests, and all episodes of a run together do.
    """

    id: str
    scenario: str
    seed: int
    repeat: int
    turns: int
    returns: dict[str, float]
    models: dict[str, str]
    illegal: dict[str, int]
    final_infos: dict[str, dict[str, Any]]
    zero_sum: bool | None
    ending: Ending
    error: EpisodeError | None
    limit: str
    tokens: int
    cost: float | None
    seconds: float
    outcomes: dict[str, Outcome] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a file.

    `key` is its name within a run: the number of the line, with an "e" before it in the file of failed attempts.
    `offset` and `size` are in bytes. `summary` is None if the line is no episode; `broken` then says why.
    """

    key: str
    offset: int
    size: int
    summary: Summary | None
    broken: str = ""


class EpisodeIndex:
    """The entries of a JSONL file. `refresh` reads what is new, or everything if the file was rewritten.

    Args:
        path: the file; one that does not exist has no entries.
        prefix: the beginning of its entries' keys.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.entries: list[Entry] = []
        """Replaced, never changed, so that a reader of an older list is not disturbed."""
        self._prefix = prefix
        self._lock = threading.Lock()
        self.stamp: tuple[int, ...] = ()
        """Differs between two states of the file."""
        self._read_to = _Position()

    def refresh(self) -> None:
        """Read what has changed in the file.

        Raises:
            RecordError: the file exists, but cannot be read.
        """
        with self._lock:
            try:
                stat = self.path.stat()
                stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                if stamp != self.stamp:
                    with self.path.open("rb", buffering=1 << 20) as file:
                        self._read(file)
                self.stamp = stamp
            except FileNotFoundError:
                self.entries, self.stamp, self._read_to = [], (), _Position()
            except OSError as error:
                raise _unreadable(self.path, error) from error

    def read(self, entry: Entry) -> bytes:
        """The bytes of an entry's line.

        Raises:
            RecordError: the file cannot be read any more.
        """
        return next(line for _, line in self.lines([entry]))

    def lines(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Entries with their lines, in the order given.

        Raises:
            RecordError: the file cannot be read any more.
        """
        if not entries:
            return  # there may be no file
        try:
            with self.path.open("rb") as file:
                for entry in entries:
                    file.seek(entry.offset)
                    yield entry, file.read(entry.size)
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def _read(self, file: BinaryIO) -> None:
        position = self._read_to
        if position.offset and not position.is_in(file):
            position = _Position()  # the file was cut, or is another one
        known, found = self.entries[: position.entries], list[Entry]()
        file.seek(position.offset)
        offset, number = position.offset, position.lines
        for line in file:
            number += 1
            if line.strip():
                found.append(_entry(f"{self._prefix}{number}", offset, line))
            offset += len(line)
            if line.endswith(b"\n"):
                position = _Position(offset, number, len(known) + len(found), line[-64:])
        self.entries, self._read_to = known + found, position


class _Position(msgspec.Struct, frozen=True):
    """How far a file has been read in complete lines: bytes, lines, entries, and the last bytes before `offset`."""

    offset: int = 0
    lines: int = 0
    entries: int = 0
    last_bytes: bytes = b""

    def is_in(self, file: BinaryIO) -> bool:
        """Whether the file still has these bytes before the offset."""
        file.seek(self.offset - len(self.last_bytes))
        return file.read(len(self.last_bytes)) == self.last_bytes


def read_episodes(path: Path) -> Iterator[tuple[int, Episode]]:
    """Every episode of a JSONL file, with the offset of its line in bytes. A last line without a newline is left out.

    Raises:
        RecordError: the file cannot be read, or a line is no episode; the message gives its number.
    """
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    try:
                        yield offset, parse(line)
                    except RecordError as error:
                        raise RecordError(f"{path}, line {number}: {error}") from error
                offset += len(line)
    except OSError as error:
        raise RecordError(f"cannot read a recorded run from {path}: {error.strerror or error}") from error


def read_episode_at(path: Path, offset: int) -> Episode:
    """The episode whose line begins at an offset in bytes.

    Raises:
        RecordError: the file cannot be read, or there is no episode.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return parse(file.readline())
    except OSError as error:
        raise _unreadable(path, error) from error


def parse(line: bytes) -> Episode:
    """The episode in a line.

    Raises:
        RecordError: the line is no episode; the message says why.
    """
    try:
        return from_json(line.decode("utf-8"), Episode)
    except UnicodeDecodeError as error:
        raise RecordError(f"not an Episode: {error}") from error


def without_surrogates(line: bytes) -> bytes:
    """The same JSON with question marks for lone surrogates, which msgspec's decoder refuses.

    Raises:
        ValueError: it is not JSON.
    """
    return json.dumps(read_json(line.decode("utf-8")), ensure_ascii=False).encode("utf-8", "replace")


# The few fields that a summary needs: the decoder skips all others, which makes it ten times as fast.


class _Info(msgspec.Struct, gc=False):
    illegal: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Response(msgspec.Struct, gc=False):
    usage: dict[str, int] = {}
    token_ids: msgspec.Raw = msgspec.Raw(b"[]")
    seconds: float = 0.0
    cost: float | None = None
    cached: bool = False

    @property
    def paid(self) -> float | None:
        """US dollars: 0 for a script's or a cache's, None if a model's price is unknown."""
        by_model = self.usage or self.seconds or len(self.token_ids) > 2
        return 0.0 if self.cached or not by_model else self.cost


class _Turn(msgspec.Struct, gc=False):
    agent: str
    response: _Response
    info: _Info = msgspec.field(default_factory=_Info)


class _FinalInfo(msgspec.Struct, gc=False):
    success: Any = msgspec.UNSET
    failure: Any = msgspec.UNSET
    illegal: Any = msgspec.UNSET


class _Line(msgspec.Struct, gc=False):
    id: str
    scenario: str
    seed: int
    turns: list[_Turn]
    returns: dict[str, float]
    ending: Ending
    error: EpisodeError | None = None
    models: dict[str, str] = {}
    usage: dict[str, int] = {}
    limit: str = ""
    repeat: int = 0
    final_infos: dict[str, _FinalInfo] = {}
    zero_sum: bool | None = None
    seconds: float = 0.0


_decode = msgspec.json.Decoder(_Line).decode


def _entry(key: str, offset: int, line: bytes) -> Entry:
    try:
        return Entry(key, offset, len(line), _summary(line))
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        if not line.endswith(b"\n"):
            return Entry(key, offset, len(line), None, "the line is not finished; it is being written, or was cut off")
        return Entry(key, offset, len(line), None, f"not an Episode: {error}")


def _summary(line: bytes) -> Summary:
    try:
        episode = _decode(line)
    except msgspec.DecodeError:  # it may still hold lone surrogates
        episode = _decode(without_surrogates(line))
    cost = _sum([turn.response.paid for turn in episode.turns])
    if not all(map(isfinite, [*episode.returns.values(), episode.seconds, cost or 0.0])):
        raise ValueError("a return, the cost or the time is not finite")
    return Summary(
        id=episode.id,
        scenario=episode.scenario,
        seed=episode.seed,
        repeat=episode.repeat,
        turns=len(episode.turns),
        returns=episode.returns,
        models=episode.models,
        illegal=dict(Counter(turn.agent for turn in episode.turns if turn.info.illegal is not msgspec.UNSET)),
        final_infos={name: kept for name, info in episode.final_infos.items() if (kept := _plain(info))},
        zero_sum=episode.zero_sum,
        ending=episode.ending,
        error=episode.error,
        limit=episode.limit,
        tokens=sum(episode.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")),
        cost=cost,
        seconds=episode.seconds,
    )


def _plain(info: _FinalInfo) -> dict[str, Any]:
    return msgspec.to_builtins(info)  # type: ignore[no-any-return]  # a struct gives a dict


def _sum(costs: Sequence[float | None]) -> float | None:
    return None if None in costs else sum(cost or 0.0 for cost in costs)


def _unreadable(path: Path, error: OSError) -> RecordError:
    return RecordError(f"{path} cannot be read: {error.strerror or error}")
