"""Files on their way into a sandbox and out of it."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from marl_gem.errors import SandboxError
from marl_gem.tools.sandbox.connection import Reply
from marl_gem.tools.sandbox.inside.files import FILE, FOLDER, LINK
from marl_gem.tools.sandbox.limits import Limits

HEADER = 23
SECONDS = 30.0
"""Seconds that moving files may take."""

EPOCH = 1_735_689_600_000_000_000
"""The time of files that say no other, in nanoseconds: 2025-01-01, so that equal episodes show equal times."""

_KINDS: tuple[Literal["file", "folder", "link"], ...] = ("file", "folder", "link")


class File(NamedTuple):
    """What stands at a path: a file with `data`, a folder, or a symbolic link to the path in `data`."""

    data: bytes = b""
    mode: int = 0o644
    kind: Literal["file", "folder", "link"] = "file"
    # When it was last changed, in nanoseconds since 1970.
    time: int = EPOCH


Content: TypeAlias = str | bytes | File


def put_request(files: Mapping[str, Content]) -> dict[str, Any]:
    """The request that writes files.

    Raises:
        ValueError: a path is not absolute.
    """
    import marshal

    entries = []
    for path, content in sorted(files.items()):
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"a path in a sandbox begins with /, unlike {path!r}")
        text = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        file = text if isinstance(text, File) else File(text)
        entries.append((path, _KINDS.index(file.kind), file.mode & 0o777, file.time, file.data))
    return {"kind": "put", "stdin": marshal.dumps(entries), "wall": SECONDS, "most": 10_000}


def get_request(paths: Sequence[str], limits: Limits, folders: int) -> dict[str, Any]:
    """The request that reads files and folders; of no more than what fits into so many writable folders."""
    most = (limits.disk + limits.files * 512) * (folders + 1)
    return {"kind": "get", "paths": list(paths), "stdin": b"", "wall": SECONDS, "most": most}


def wipe_request() -> dict[str, Any]:
    """The request that removes all files."""
    return {"kind": "wipe", "stdin": b"", "wall": SECONDS, "most": 10_000}


def check_moved(reply: Reply) -> None:
    """See that files were moved.

    Raises:
        SandboxError: they were not.
    """
    completed = reply.completed()
    if completed.ended != "exit" or completed.exit_code != 0:
        why = completed.stderr if completed.ended == "exit" else completed.ended
        raise SandboxError(f"files cannot be moved into the sandbox or out of it: {why}")


def files_of(reply: Reply) -> dict[str, File]:
    """The files that came back, by their paths.

    Raises:
        SandboxError: they could not be read, or are too many.
    """
    check_moved(reply)
    data, position, files = reply.stdout(), 0, {}
    while position < len(data):
        header = data[position : position + HEADER]
        path_size, size = int.from_bytes(header[:4], "little"), int.from_bytes(header[4:12], "little")
        kind, mode = header[12], int.from_bytes(header[13:15], "little")
        middle = position + HEADER + path_size
        if kind >= len(_KINDS) or middle + size > len(data):
            raise SandboxError("the sandbox sent what are no files")
        path = bytes(data[position + HEADER : middle]).decode("utf-8", "surrogateescape")
        time = int.from_bytes(header[15:], "little", signed=True)
        files[path] = File(bytes(data[middle : middle + size]), mode, _KINDS[kind], time)
        position = middle + size
    return files


def read_folder(folder: Path, inside: str) -> dict[str, File]:
    """A folder of this machine, as the files it is in a sandbox; links are kept, their targets not read.

    Args:
        folder: where it lies.
        inside: its path in the sandbox.
    """
    files = {inside: File(mode=0o755, kind="folder")}
    for path in _below(folder):
        status = path.lstat()
        name = f"{inside.rstrip('/')}/{path.relative_to(folder).as_posix()}"
        mode = 0o755 if status.st_mode & 0o100 else 0o644  # as git keeps them
        if stat.S_ISLNK(status.st_mode):
            files[name] = File(bytes(path.readlink()), kind="link")
        elif stat.S_ISDIR(status.st_mode):
            files[name] = File(mode=0o755, kind="folder")
        elif stat.S_ISREG(status.st_mode):
            files[name] = File(path.read_bytes(), mode)
    return files


def _below(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


assert (FILE, FOLDER, LINK) == (0, 1, 2)  # the order of _KINDS
