"""The entries of a large file of episodes in a hidden file beside it, so that a viewer need not read every episode.

Each line is an `Entry` as JSON; the last one is the `End`, with a checksum of the others. The file only saves time: one
that is missing, damaged or of another state of the episodes is ignored.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec

from marl_gem.runs.entries import Entry, Summary, entry_of, judge_summary
from marl_gem.runs.files import is_regular, read_inside, replacing

FORMAT = 1
"""Of the file. It changes where the meaning of an entry does."""

LARGE = 2_000_000
"""Files of episodes with fewer bytes have no index: they are read in a moment."""

MOST_BYTES = 2**30
"""An index with more bytes is ignored, before it fills the memory."""

LAST = 64
"""So many bytes before the end of the episodes are compared."""


class End(msgspec.Struct, frozen=True):
    """The last line: which episodes the entries are of, and the CRC-32 of all lines before it.

    `size` and `last_bytes` are those of the file of episodes, `modified` is its time in ns, `lines` counts its lines.
    `fields` are those of a `Summary`.
    """

    size: int
    last_bytes: bytes
    modified: int
    lines: int
    crc32: int
    fields: tuple[str, ...] = Summary.__struct_fields__
    format: int = FORMAT


_decode_end = msgspec.json.Decoder(End).decode
_decode_entries = msgspec.json.Decoder(Entry).decode_lines


def index_path(path: Path) -> Path:
    """Where the index of a file of episodes is."""
    return path.with_name(f".{path.name}.index")


def write_index(path: Path) -> None:
    """Write the index of a file of episodes that nobody writes to any more, unless the file is small or unfinished.

    The index is left out where it cannot be written, or where an entry cannot be JSON.
    """
    if not is_regular(path) or path.stat().st_size < LARGE:
        return
    with (
        contextlib.suppress(OSError, ValueError, OverflowError),
        path.open("rb") as episodes,
        replacing(index_path(path)) as draft,
        draft.open("wb") as index,
    ):
        _write(episodes, index)


def _write(episodes: BinaryIO, index: BinaryIO) -> None:
    """Raises ValueError if the last line of the episodes is not finished."""
    status = os.fstat(episodes.fileno())
    encode, checksum, offset, number, line = msgspec.json.Encoder().encode, 0, 0, 0, b""
    for number, line in enumerate(episodes, 1):
        if line.strip():
            entry = entry_of(str(number), offset, line)
            if entry.summary and entry.summary.zero_sum is not None:
                judge_summary(entry.summary, entry.summary.zero_sum)
            text = encode(entry) + b"\n"
            checksum = crc32(text, checksum)
            index.write(text)
        offset += len(line)
    if offset != status.st_size or not line.endswith(b"\n"):
        raise ValueError("the episodes are being written")
    episodes.seek(offset - min(offset, LAST))
    index.write(encode(End(offset, episodes.read(LAST), status.st_mtime_ns, number, checksum)) + b"\n")


def read_index(episodes: BinaryIO, path: Path, root: Path) -> tuple[list[Entry], End] | None:
    """The entries of a file of episodes from its index, and up to where they go; None without an index that fits.

    An index fits a file that has not changed since, or that has only grown.

    Args:
        episodes: the file, which is open.
        path: its path.
        root: the folder that the user chose; below it no link is followed.
    """
    status = os.fstat(episodes.fileno())
    try:
        content = read_inside(index_path(path), path.parent if root == path else root, MOST_BYTES)
        entries, _, last = content.rstrip(b"\n").rpartition(b"\n")
        end = _decode_end(last)
        if end.format != FORMAT or end.fields != Summary.__struct_fields__ or end.crc32 != crc32(entries + b"\n"):
            return None
        if end.size > status.st_size or (end.size == status.st_size and end.modified != status.st_mtime_ns):
            return None
        episodes.seek(end.size - len(end.last_bytes))
        if episodes.read(len(end.last_bytes)) != end.last_bytes:
            return None
        return _decode_entries(entries), end
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
