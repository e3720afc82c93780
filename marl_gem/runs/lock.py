"""Locks: one process at a time works on a run, or writes to a shared file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from marl_gem.errors import JournalError
from marl_gem.runs.files import explained

LOCK = ".lock"


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Be the only process that works on a run. The folder is made if it is not there.

    The lock is on the file `.lock` in the folder, which holds the id of the process. The system releases it when the
    process ends, however it ends.

    Raises:
        JournalError: another process works on the run (the message names it), the folder cannot be written, or this
            system has no file locks.
    """
    with explained(folder, "write to"):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock_file(descriptor, wait=False)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "that has just begun"
            raise JournalError(
                f"process {holder} is working on {folder}; wait for it or stop it (kill -INT), or choose another folder"
            ) from None
        except ImportError:
            raise JournalError(
                f"cannot lock {folder}: this system has no file locks (Python's fcntl), so two processes could write "
                "to one run. Use Linux, macOS or WSL, or run without a folder"
            ) from None
        with explained(folder, "write to"):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this descriptor alone, until it is closed.

    Raises:
        BlockingIOError: another process or descriptor has the lock, and `wait` is false.
        ImportError: this system has no `fcntl` (Windows).
    """
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
