"""Where the episodes of a file lie, and what a list shows of each: one pass, and no episode is kept.

The file grows while a run is being played, may end in the middle of a line, and may hold lines that are no
episodes at all. All of this is told in the entries; none of it is an error here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import msgspec

from marl_gem.errors import RecordError
from marl_gem.types import Ending, Episode, EpisodeError, from_json, read_json

Outcome: TypeAlias = Literal["won", "drew", "lost"]


class Summary(msgspec.Struct, gc=False):
    """What a list shows of an episode.

    `returns` and `models` hold a value for each agent, `successes` for each whom the scenario told; `illegal`
    names those that made an illegal move. `tokens` is what all models read and wrote; `cost` is in US dollars,
    without answers that came from a cache, None if the price of any other is unknown. `outcomes` is how each agent
    fared; whoever knows the whole run fills it in.
    """

    id: str
    scenario: str
    seed: int
    repeat: int
    turns: int
    returns: dict[str, float]
    models: dict[str, str]
    successes: dict[str, bool]
    illegal: tuple[str, ...]
    ending: Ending
    error: EpisodeError | None
    limit: str
    tokens: int
    cost: float | None
    seconds: float
    outcomes: dict[str, Outcome] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a file.

    `key` names it within its run: the line's number, after an "e" in the file of episodes that are owed.
    `summary` is None for a line that is no episode; `broken` then says what is wrong with it.
    """

    key: str
    offset: int
    size: int
    summary: Summary | None
    broken: str = ""


class EpisodeFile:
    """The episodes of a JSONL file. `refresh` reads what is new, and everything if the file was written anew.

    Args:
        path: the file; one that does not exist has no entries.
        prefix: what its keys begin with.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.entries: list[Entry] = []
        """Replaced, never changed, so that whoever holds it may go on reading."""
        self._prefix = prefix
        self._lock = threading.Lock()
        self.stamp: tuple[int, ...] = ()
        """Tells one state of the file from another."""
        self._whole = _Whole()

    def refresh(self) -> None:
        """Look whether the file has changed, and read what is new.

        Raises:
            RecordError: the file is there, but cannot be read.
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
                self.entries, self.stamp, self._whole = [], (), _Whole()
            except OSError as error:
                raise RecordError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def read(self, entry: Entry) -> bytes:
        """The bytes of an entry's line.

        Raises:
            RecordError: the file cannot be read any more.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(entry.offset)
                return file.read(entry.size)
        except OSError as error:
            raise RecordError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def lines(self, entries: list[Entry]) -> Iterator[tuple[Entry, bytes]]:
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
            raise RecordError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _read(self, file: BinaryIO) -> None:
        whole = self._whole
        if whole.end and not whole.ends_in(file):
            whole = _Whole()  # the file was cut, or is another one
        known, found = self.entries[: whole.entries], []
        file.seek(whole.end)
        offset, number = whole.end, whole.lines
        for line in file:
            number += 1
            if line.strip():
                found.append(_entry(f"{self._prefix}{number}", offset, line))
            offset += len(line)
            if line.endswith(b"\n"):
                whole = _Whole(offset, number, len(known) + len(found), line[-64:])
        self.entries, self._whole = known + found, whole


class _Whole(msgspec.Struct, frozen=True):
    """How far a file has been read in whole lines: bytes, lines, entries, and the last bytes before the end."""

    end: int = 0
    lines: int = 0
    entries: int = 0
    seam: bytes = b""

    def ends_in(self, file: BinaryIO) -> bool:
        file.seek(self.end - len(self.seam))
        return file.read(len(self.seam)) == self.seam


def parse(line: bytes) -> Episode:
    """The episode in a line.

    Raises:
        RecordError: there is none; the message says why.
    """
    try:
        return from_json(line.decode("utf-8"), Episode)
    except UnicodeDecodeError as error:
        raise RecordError(f"not an Episode: {error}") from error


def without_surrogates(line: bytes) -> bytes:
    """The same JSON with question marks for lone surrogates.

    Raises:
        ValueError: it is no JSON.
    """
    return json.dumps(read_json(line.decode("utf-8")), ensure_ascii=False).encode("utf-8", "replace")


def outcomes(episode: Summary, competitive: bool) -> dict[str, Outcome]:
    """How each agent fared; nobody in an episode that an error broke off.

    As `marl_gem.evaluation` counts success: where the scenario told an agent of its own, that counts. Otherwise,
    in a competitive scenario, whoever has the highest return won, or drew if others have it too; in any other an
    agent won if its return is above 0.
    """
    if episode.error:
        return {}
    best = max(episode.returns.values(), default=0.0)
    shared = sum(value == best for value in episode.returns.values()) > 1

    def fared(agent: str, value: float) -> Outcome:
        if agent in episode.successes:
            return "won" if episode.successes[agent] else "lost"
        if competitive:
            return "lost" if value < best else "drew" if shared else "won"
        return "won" if value > 0 else "lost"

    return {agent: fared(agent, value) for agent, value in episode.returns.items()}


# The few fields that a summary needs: the decoder passes over all others, which makes it ten times as fast.


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
        """Nothing if it is a script's or a cache's; None if a model's price is unknown."""
        by_model = self.usage or self.seconds or len(self.token_ids) > 2
        return 0.0 if self.cached or not by_model else self.cost


class _Turn(msgspec.Struct, gc=False):
    agent: str
    response: _Response
    info: _Info = msgspec.field(default_factory=_Info)


class _FinalInfo(msgspec.Struct, gc=False):
    success: Any = None


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
    except msgspec.DecodeError:  # it may still hold lone surrogates, which msgspec does not read
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
        successes={name: info.success for name, info in episode.final_infos.items() if isinstance(info.success, bool)},
        illegal=tuple({turn.agent: None for turn in episode.turns if turn.info.illegal is not msgspec.UNSET}),
        ending=episode.ending,
        error=episode.error,
        limit=episode.limit,
        tokens=sum(episode.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")),
        cost=cost,
        seconds=episode.seconds,
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    return None if None in costs else sum(cost or 0.0 for cost in costs)
