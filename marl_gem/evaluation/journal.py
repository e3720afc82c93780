"""A run's folder: episodes on disk, durable before they count.

    DIR/.lock            held by the process that works on the run; it goes with the process, however that dies
    DIR/config.json      what was asked
    DIR/episodes.jsonl   one finished episode a line, appended
    DIR/errors.jsonl     episodes that something failed under, the same way; they are owed

A line counts when its newline is on disk. What a killed process leaves of a line is dropped when the file is
opened again, so a run can be killed at any moment: what was counted is there, what was not is played again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from marl_gem.errors import JournalError, RecordError
from marl_gem.types import Episode, from_json

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that works on `folder`, which is made if it is not there.

    Raises:
        JournalError: another process is at it (the message names it), or the folder cannot be written.
    """
    import fcntl  # POSIX alone has it

    with _explained(folder, "write to"):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "that has just begun"
            raise JournalError(
                f"process {holder} is working on {folder}; wait for it or stop it (kill -INT), or choose another folder"
            ) from None
        with _explained(folder, "write to"):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


class Journal:
    """A file of episodes, one to a line, that only grows."""

    def __init__(self, path: Path) -> None:
        """Open the file, made if it is not there, and drop what a killed process left of its last line.

        Raises:
            JournalError: it cannot be written.
        """
        self.path = path
        with _explained(path, "write to"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._size = _end_of_last_line(descriptor)
                os.ftruncate(descriptor, self._size)
                os.fsync(descriptor)
                self._file = _identity(descriptor)
            finally:
                os.close(descriptor)
            _sync(path.parent)

    def read(self) -> Iterator[tuple[int, Episode]]:
        """Every episode with the number of its line, from 1.

        Raises:
            JournalError: a line is damaged; the message gives its number.
        """
        with _explained(self.path, "read"), self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield number, from_json(line.decode(), Episode)
                except (RecordError, UnicodeDecodeError) as error:
                    raise JournalError(
                        f"{self.path}, line {number}, is damaged ({error}). Remove the line and resume: its episode "
                        "will be played again"
                    ) from error

    def append(self, lines: bytes) -> None:
        """Add whole lines in one write, and return when they are on disk. All of them are added, or none.

        Raises:
            JournalError: the disk is full, or the file was taken away; what was there before is as it was.
        """
        with _explained(self.path, "write to"):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)  # each time: a file that is gone is noticed
            try:
                if _identity(descriptor) != self._file:
                    raise OSError("somebody has put another file in its place")
                try:
                    rest = memoryview(lines)
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]
                    os.fsync(descriptor)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, self._size)
                    raise
            finally:
                os.close(descriptor)
        self._size += len(lines)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        JournalError: it cannot be written; what was there before is as it was.
    """
    draft = path.with_name(f".{path.name}.draft")
    with _explained(path, "write to"):
        try:
            with draft.open("wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            _sync(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"cannot {what} {path}: {error.strerror or error}. What was written before is safe; when this is mended, "
            "--resume plays what is owed"
        ) from error


def _end_of_last_line(descriptor: int, chunk: int = 1 << 16) -> int:
    """Where the last newline ends; what follows it is no line."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - chunk)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
