"""Where the episodes of a JSONL file lie, and a summary of each: one pass, and no episode is kept in memory.

The file grows while a run is going on, may end in the middle of a line, and may hold lines that are no episodes. The
entries say so; it is no error here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.entries import Entry, entry_of
from marl_gem.runs.files import open_inside
from marl_gem.runs.outline import read_episode
from marl_gem.runs.stored_index import LAST, read_index
from marl_gem.types import Episode

MOST_LINES, MOST_BYTES = 5_000_000, 256 * 2**20
"""Of a file, and of one of its lines: more is refused, before it fills the memory."""

SHOWN_EVERY = 2_000
"""After so many lines of a file that is read, its entries so far can be seen."""


class EpisodeIndex:
    """The entries of a JSONL file. `refresh` reads what is new, or everything if the file was rewritten.

    Args:
        path: the file; one that does not exist has no entries.
        prefix: the beginning of its entries' keys.
        root: the folder that the user chose; below it no link is followed. By default the file itself was chosen.
    """

    def __init__(self, path: Path, prefix: str = "", root: Path | None = None) -> None:
        self.path = path
        self._root = root or path
        self.entries: list[Entry] = []
        """Replaced, never changed, so that a reader of an older list is not disturbed. Grows while a file is read."""
        self.share = 1.0
        """How much of the file has been read, from 0 to 1."""
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
                with open_inside(self.path, self._root) as file:
                    stat = os.fstat(file.fileno())
                    stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                    if stamp != self.stamp:
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
            with open_inside(self.path, self._root) as file:
                for entry in entries:
                    file.seek(entry.offset)
                    yield entry, file.read(entry.size)
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def _read(self, file: BinaryIO) -> None:
        if not (self.stamp or self._prefix) and (stored := read_index(file, self.path, self._root)):
            self.entries, end = stored
            self._read_to = _Position(end.size, end.lines, len(self.entries), end.last_bytes)
        position = self._read_to
        if position.offset and not position.is_in(file):
            position = _Position()  # the file was cut, or is another one
        known, found = self.entries[: position.entries], list[Entry]()
        size = os.fstat(file.fileno()).st_size
        file.seek(position.offset)
        offset, number = position.offset, position.lines
        while line := file.readline(MOST_BYTES + 1):
            number += 1
            if number > MOST_LINES or len(line) > MOST_BYTES:
                raise RecordError(
                    f"{self.path} is no file of episodes: it has more than {MOST_LINES:,} lines, or more than "
                    f"{MOST_BYTES:,} bytes in line {number}"
                )
            if line.strip():
                found.append(entry_of(f"{self._prefix}{number}", offset, line))
            offset += len(line)
            if line.endswith(b"\n"):
                position = _Position(offset, number, len(known) + len(found), line[-LAST:])
            if number % SHOWN_EVERY == 0:
                self.entries, self._read_to, self.share = known + found, position, min(1.0, offset / (size or 1))
        self.entries, self._read_to, self.share = known + found, position, 1.0


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
                        yield offset, read_episode(line)
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
            return read_episode(file.readline())
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> RecordError:
    return RecordError(f"{path} cannot be read: {error.strerror or error}")
