"""The file that an export writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from marl_gem.errors import RecordError
from marl_gem.runs.files import replacing


@contextmanager
def export_target(path: Path, *, force: bool = False, keep: Collection[Path] = ()) -> Iterator[Path]:
    """Give the path of a draft to write. If the block succeeds, the draft replaces `path`; otherwise it is removed.

    Args:
        path: the file to write. Its folder is made if it is not there.
        force: whether an existing file may be replaced.
        keep: files that are never replaced.

    Raises:
        RecordError: the file exists already, or it cannot be written.
    """
    if path.resolve() in {file.resolve() for file in keep}:
        raise RecordError(f"{path} belongs to the run; choose another name")
    if path.is_dir():
        raise RecordError(f"{path} is a folder; name a file in it")
    _refuse_to_replace(path, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            yield draft
            _refuse_to_replace(path, force)  # it may have appeared in the meantime
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def _refuse_to_replace(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise RecordError(f"{path} exists already; choose another name, or replace it with --force")
