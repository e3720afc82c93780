"""JSONL files that only grow, durable line by line.

A line counts when its newline is on disk. When a file is opened again, the rest of a line that a killed process left
at the end is dropped. So a run can be killed at any moment: what was counted is there, and what was not is done again.

Every line ends with a checksum, see `checksum.py`, so that a line that was damaged on disk is an error and never
another result. Lines without one, of older versions, are read too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from marl_gem.errors import JournalError, RecordError
from marl_gem.runs.checksum import parse_object, verify, with_checksum
from marl_gem.runs.files import explained, flush
from marl_gem.runs.lock import RunLock, lock_file
from marl_gem.runs.outline import Outlined, read_episode, read_outline
from marl_gem.types import Episode

Record = TypeVar("Record")


class Journal:
    """A JSONL file that is read once and then appended to.

    Args:
        path: the file; it is made if it is not there.
        shared: several writers may append to the file, also from other processes. A last line without its newline is
            ended, not dropped, because others may use the file; a file that was removed is made again. By
            default there is one writer, which has locked the run.
        lock: the run's, which is checked before lines are added.

    Raises:
        JournalError: the file cannot be written.
    """

    def __init__(self, path: Path, lock: RunLock | None = None, *, shared: bool = False) -> None:
        self.path = path
        self._lock = lock
        self._shared = shared
        with explained(path, "write to"), self._opened(os.O_RDWR | os.O_CREAT) as descriptor:
            size = os.fstat(descriptor).st_size
            end = _end_of_last_line(descriptor, size)
            if end < size:
                if line := _complete(os.pread(descriptor, size - end, end)):
                    os.ftruncate(descriptor, end + len(line))
                elif not shared:
                    os.ftruncate(descriptor, end)
                if line or shared:
                    os.lseek(descriptor, 0, os.SEEK_END)
                    os.write(descriptor, b"\n")
                os.fsync(descriptor)
            self._file = _identity(descriptor)
            flush(path.parent)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its number, from 1.

        Raises:
            JournalError: the file cannot be read.
        """
        with explained(self.path, "read"), self.path.open("rb") as file:
            yield from enumerate(file, 1)

    def episodes(self) -> Iterator[tuple[int, Episode]]:
        """Every line as an episode, with its number, from 1.

        Raises:
            JournalError: the file cannot be read, or a line is damaged; the message gives its number.
        """
        return self._records(read_episode)

    def outlines(self) -> Iterator[tuple[int, Outlined]]:
        """Every line as an episode in outline, see `episodes`."""
        return self._records(read_outline)

    def _records(self, read: Callable[[bytes], Record]) -> Iterator[tuple[int, Record]]:
        for number, line in self.lines():
            try:
                yield number, read(line)
            except RecordError as error:
                raise JournalError(
                    f"{self.path}, line {number}, is damaged ({error}). Remove the line and resume: its episode will "
                    "be played again"
                ) from error

    def append(self, objects: Iterable[bytes]) -> None:
        """Add JSON objects, each as a line with its checksum, and return when they are on disk: all of them, or none.

        Args:
            objects: none of them empty, and each without a line break, as `to_json` writes it.

        Raises:
            JournalError: the disk is full, or the file was removed or replaced; what was there before is unchanged.
        """
        lines = b"".join(with_checksum(text) + b"\n" for text in objects)
        if self._lock:
            self._lock.check()
        flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if self._shared else 0)
        # The file is opened each time, so that one that was removed is noticed.
        with explained(self.path, "write to"), self._opened(flags) as descriptor:
            if not self._shared and _identity(descriptor) != self._file:
                raise OSError("there is another file in its place")
            size = os.fstat(descriptor).st_size
            try:
                rest = memoryview(lines)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise

    def keep(self, count: int) -> None:
        """Remove all lines after the first `count`.

        Raises:
            JournalError: the file cannot be written.
        """
        with explained(self.path, "write to"), self.path.open("r+b") as file:
            end = sum(len(file.readline()) for _ in range(count))
            file.truncate(end)
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self.path, flags | getattr(os, "O_BINARY", 0), 0o644)
        try:
            if self._shared:
                with contextlib.suppress(ImportError):  # without locks, one writer at a time is up to the user
                    lock_file(descriptor, wait=True)
            yield descriptor
        finally:
            os.close(descriptor)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file of JSON objects; none if there is no file. A last line without a newline is left out.

    Raises:
        JournalError: the file cannot be read, or a line is damaged; the message gives its number.
    """
    rows: list[dict[str, Any]] = []
    if not path.exists():
        return rows
    with explained(path, "read"), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                rows.append(parse_object(line))
            except ValueError as error:
                raise JournalError(
                    f"{path}, line {number}, is damaged ({error}). Put the file back from a copy, or start a new run "
                    "under another name"
                ) from error
    return rows


def _complete(rest: bytes) -> bytes:
    """The line in what follows the last newline, if nothing but its newline is missing or damaged; else nothing."""
    for line in (rest, rest[:-1]):
        with contextlib.suppress(ValueError):
            if verify(line):
                return line
    return b""


def _end_of_last_line(descriptor: int, size: int, chunk: int = 1 << 16) -> int:
    """The offset after the last newline."""
    end = size
    while end:
        start = max(0, end - chunk)
        os.lseek(descriptor, start, os.SEEK_SET)
        newline = os.read(descriptor, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
