"""Files and folders that are written completely or not at all.

A draft is written beside the target, flushed to disk and renamed. A reader sees the old content or the new one. A
draft of a killed process stays as a hidden file, which nothing reads, until the run is locked again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from marl_gem.errors import JournalError
from marl_gem.runs.checksum import parse_object, with_checksum

_LEFT = re.compile(r"\.(?P<name>.+)\.\d+\.(?P<kind>draft|old)(\.\w+)?")
"""The name of a draft, or of a folder that is being replaced."""


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file of a run; it is on disk when this returns. Text becomes UTF-8, lone surrogates as `\\udXXX`.

    Raises:
        JournalError: it cannot be written; what was there before is unchanged.
    """
    with explained(path, "write to"), replacing(path) as draft:
        draft.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object, which is not empty, as indented JSON with a checksum, see `checksum.py` and `write_file`."""
    write_file(path, json_bytes(value))


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """What `write_json` writes."""
    return with_checksum(json.dumps(value, indent=2).encode("ascii")) + b"\n"


def read_json_file(path: Path) -> dict[str, Any]:
    """The object in a JSON file, after comparing it with its checksum if it has one.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no JSON object, or was changed after it was written; the message says so.
    """
    return parse_object(path.read_bytes())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a draft to write. If the block succeeds, the draft replaces `path`; otherwise it is removed.

    The draft has the suffix of `path`, for writers that look at it.

    Raises:
        OSError: it cannot be written; what was there before is unchanged.
    """
    draft = _draft_of(path)
    try:
        yield draft
        flush(draft)
        draft.replace(path)
        flush(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill. If the block succeeds, it replaces the folder `path`; otherwise it is removed.

    Raises:
        OSError: it cannot be written; what was there before is unchanged.
    """
    draft, old = _draft_of(path), path.with_name(f".{path.name}.{os.getpid()}.old")
    draft.mkdir(parents=True)
    try:
        yield draft
        for inner in (*draft.rglob("*"), draft):
            if not inner.is_symlink():
                flush(inner)
        if path.exists():
            path.rename(old)
        try:
            draft.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        flush(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def remove_drafts(folder: Path) -> None:
    """Remove what killed writers left in a folder and in the folders in it. A folder that was being replaced when its
    writer was killed is put back."""
    for path in [*folder.glob(".*"), *folder.glob("*/.*")]:
        if not (left := _LEFT.fullmatch(path.name)):
            continue
        with contextlib.suppress(OSError):
            target = path.with_name(left["name"])
            if left["kind"] == "old" and not target.exists():
                path.rename(target)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk.

    Raises:
        OSError: the disk failed, or there is no such path.
    """
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError into a JournalError with advice. `action` is what failed: "write to", "read"."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"cannot {action} {path}: {error.strerror or error}. What was written before is safe; when this is "
            "fixed, --resume continues the run"
        ) from error


def open_inside(path: Path, folder: Path) -> BinaryIO:
    """Open a file of a folder whose content others may have written, for reading.

    No link below the folder is followed, and nothing but a regular file is read: no device, pipe or socket. The folder
    itself may be a link, as its user chose it; so may the file, if it is the folder's place that was chosen.

    Args:
        path: the file. If it is `folder` itself, that is a file that the user chose.
        folder: where all further parts of the path must be real.

    Raises:
        OSError: there is no such file, or it is a link or no regular file.
    """
    flags = os.O_RDONLY | _flags("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")  # a pipe would block
    names = path.relative_to(folder).parts
    if os.open not in os.supports_dir_fd:  # Windows: links are looked for by name
        inner = [folder.joinpath(*names[: number + 1]) for number in range(len(names))]
        if link := next((part for part in inner if part.is_symlink()), None):
            raise OSError(errno.ELOOP, _LINK, str(link))
        descriptor = os.open(path, flags)
    else:
        descriptor = os.open(folder, flags)
        for name in names:
            try:
                inside = os.open(name, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                strerror = _LINK if error.errno == errno.ELOOP else error.strerror
                raise OSError(error.errno, strerror, str(path)) from None
            finally:
                os.close(descriptor)
            descriptor = inside
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb", 1 << 20)


def read_inside(path: Path, folder: Path, most: int) -> bytes:
    """The content of a file, see `open_inside`.

    Raises:
        OSError: it cannot be opened, or has more than `most` bytes.
    """
    with open_inside(path, folder) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return content


def is_regular(path: Path) -> bool:
    """Whether this is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


_LINK = "it is a link, and links out of a run are not followed"


def _flags(*names: str) -> int:
    """Those of these flags that the system has."""
    return sum(getattr(os, name, 0) for name in names)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.draft{path.suffix}")
