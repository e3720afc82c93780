"""Locks: one process at a time works on a run, or writes to a shared file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from marl_gem.errors import JournalError
from marl_gem.runs.files import explained, is_regular, remove_drafts

LOCK = ".lock"

PATIENCE = 2.0
"""So many seconds a lock's file is waited for: `is_locked` takes it for an instant."""


class RunLock:
    """The lock of a run's folder, see `run_lock`."""

    def __init__(self, folder: Path, directory: int, file: int, guards_folder: bool) -> None:
        self._folder = folder
        self._directory, self._file = directory, file
        self._guards_folder = guards_folder

    def check(self) -> None:
        """Notice that the folder is another one now, or that another process may write to it.

        Raises:
            JournalError: the folder was moved, removed or replaced; or its file `.lock` was, on a file system that
                cannot lock folders.
        """
        with explained(self._folder, "write to"):
            if not _is_open_as(self._folder, self._directory):
                raise OSError("it was moved, removed or replaced")
            if not self._guards_folder and not _is_open_as(self._folder / LOCK, self._file):
                raise OSError(f"its {LOCK} was removed or replaced, so that another process may be writing to it")


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[RunLock]:
    """Be the only process that works on a run. The folder is made if it is not there, and drafts that a killed process
    left in it are removed.

    Both the folder and the file `.lock` in it are locked; the file holds the id of the process. So a second process is
    refused even where somebody removed the file. The system releases the locks when the process ends, however it ends.
    Where folders cannot be locked (NFS), `RunLock.check` notices that the file was removed.

    Raises:
        JournalError: another process works on the run (the message names it), the folder cannot be written, or this
            system or file system has no file locks.
    """
    with contextlib.ExitStack() as opened:
        with explained(folder, "write to"):
            folder.mkdir(parents=True, exist_ok=True)
            directory = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, directory)
        try:
            guards_folder = _lock_folder(directory)
            with explained(folder, "write to"):
                file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
                opened.callback(os.close, file)
            _lock_soon(file)
        except BlockingIOError:
            raise JournalError(
                f"{_holder(folder)} is working on {folder}; wait for it or stop it (kill -INT), or choose another "
                "folder"
            ) from None
        except (ImportError, OSError) as error:
            reason = "this system has" if isinstance(error, ImportError) else f"its file system has ({error.strerror})"
            raise JournalError(
                f"cannot lock {folder}: {reason} no file locks, so two processes could write to one run. Use a folder "
                "on a local disk, under Linux, macOS or WSL, or run without a folder"
            ) from None
        with explained(folder, "write to"):
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        remove_drafts(folder)
        yield RunLock(folder, directory, file, guards_folder)


def is_locked(folder: Path) -> bool:
    """Whether a process works on the run in a folder. False also where the system cannot say."""
    try:
        import fcntl

        if not is_regular(folder / LOCK):
            return False
        with (folder / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file gives it back
            except BlockingIOError:
                return True
    except (ImportError, OSError):
        pass
    return False


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this descriptor alone, until it is closed.

    Raises:
        BlockingIOError: another process or descriptor has the lock, and `wait` is false.
        OSError: its file system has no locks.
        ImportError: this system has no `fcntl` (Windows).
    """
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _lock_soon(descriptor: int) -> None:
    """Lock an open file, within `PATIENCE`.

    Raises:
        BlockingIOError: it is still locked then; otherwise see `lock_file`.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return lock_file(descriptor, wait=False)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
        time.sleep(0.01)


def _lock_folder(directory: int) -> bool:
    """Lock a folder. False: its file system can lock files alone."""
    try:
        lock_file(directory, wait=False)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _holder(folder: Path) -> str:
    """The process that has locked a folder, as its lock says."""
    with contextlib.suppress(OSError):
        if process := (folder / LOCK).read_bytes()[:32].decode("ascii", "replace").strip():
            return f"process {process}"
    return "another process"


def _is_open_as(path: Path, descriptor: int) -> bool:
    try:
        there, opened = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
