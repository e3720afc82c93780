"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from marl_gem.errors import RecordError


@contextmanager
def whole(path: Path, *, force: bool = False, keep: Collection[Path] = ()) -> Iterator[Path]:
    """A draft beside `path` to write to; when all went well it takes the place of `path`, else it goes.

    Args:
        path: what is to be there in the end. Its folder is made if it is not there.
        force: whether a file that is there already may be replaced.
        keep: files that are never replaced.

    Raises:
        RecordError: the file is there already, or it cannot be written.
    """
    if path.resolve() in {file.resolve() for file in keep}:
        raise RecordError(f"{path} belongs to the run; choose another name")
    if path.is_dir():
        raise RecordError(f"{path} is a folder; name a file in it")
    if path.exists() and not force:
        raise RecordError(f"{path} is there already; choose another name, or replace it with --force")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        draft.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
