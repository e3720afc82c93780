"""Files go into a sandbox and out of it, in a process with the rights of the programs there.

See guard.py for where this runs: in a forked process that ends when it is done. The sandbox's programs are stopped
meanwhile.
"""

# ruff: noqa: PTH101, PTH103, PTH108, PTH106, PTH115, PTH116, PTH120, PTH208, PTH211

from __future__ import annotations

import marshal
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FILE, FOLDER, LINK = range(3)
"""Kinds of entries."""


def put() -> None:
    """Write what standard input holds: a marshalled list of (path, kind, mode, time in nanoseconds, data)."""
    entries = marshal.loads(read_all(0))
    for path, kind, mode, time, data in entries:
        os.makedirs(path if kind == FOLDER else os.path.dirname(path), exist_ok=True)
        if kind == LINK:
            if os.path.lexists(path):
                os.unlink(path)
            os.symlink(data, path)
        elif kind == FILE:
            if os.path.lexists(path):
                os.unlink(path)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            write_all(file, data)
            os.fchmod(file, mode)
            os.close(file)
            os.utime(path, ns=(time, time))
    for path, kind, mode, time, _ in reversed(entries):  # what lies in a folder changes its time and needs its rights
        if kind == FOLDER and os.stat(path).st_uid == os.getuid():
            os.chmod(path, mode)
            os.utime(path, ns=(time, time))


def get(paths: list[str]) -> None:
    """Write entries to standard output: lengths of path and data, kind, mode and time, then path and data."""
    for top in paths:
        for path, status in walk(os.fsencode(top)):
            data = b""
            if stat.S_ISLNK(status.st_mode):
                kind, data = LINK, os.readlink(path)
            elif stat.S_ISDIR(status.st_mode):
                kind = FOLDER
            elif stat.S_ISREG(status.st_mode):
                kind, data = FILE, content(path, status.st_mode)
            else:
                continue  # a pipe or a socket
            numbers = (len(path), 4), (len(data), 8), (kind, 1), (stat.S_IMODE(status.st_mode), 2)
            header = b"".join(number.to_bytes(size, "little") for number, size in numbers)
            write_all(1, header + status.st_mtime_ns.to_bytes(8, "little", signed=True) + path + data)


def wipe(folders: list[str]) -> None:
    """Remove everything that lies in these folders."""
    for folder in folders:
        for path, status in reversed(list(walk(os.fsencode(folder)))):
            if path == os.fsencode(folder):
                continue
            if stat.S_ISDIR(status.st_mode):
                os.rmdir(path)
            else:
                os.unlink(path)


def walk(path: bytes, device: int | None = None) -> Iterator[tuple[bytes, os.stat_result]]:
    """A path and all below it, folders before what lies in them, in the order of their names; no other mounts."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if device not in (None, status.st_dev):
        return
    yield path, status
    if not stat.S_ISDIR(status.st_mode):
        return
    if status.st_mode & 0o700 != 0o700 and status.st_uid == os.getuid():
        os.chmod(path, 0o700)
    for name in sorted(os.listdir(path)):
        yield from walk(path + b"/" + name, status.st_dev)


def content(path: bytes, mode: int) -> bytes:
    """What a file holds, also where its owner may not read it."""
    if not mode & 0o400:
        os.chmod(path, 0o600)
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return read_all(file)
    finally:
        os.close(file)
        if not mode & 0o400:
            os.chmod(path, stat.S_IMODE(mode))


def read_all(file: int) -> bytes:
    """Read to the end."""
    chunks = []
    while data := os.read(file, 1 << 20):
        chunks.append(data)
    return b"".join(chunks)


def write_all(file: int, data: bytes) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
