"""The checkpoints in a run's folder: which there are, and which are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from marl_gem.errors import CheckpointError
from marl_gem.runs.folder import CHECKPOINTS, checkpoints, updates_of
from marl_gem.trainers.checkpoint_state import STATE

KEEP = 2
"""How many of the newest checkpoints of a run are kept, whatever the configuration says."""


def newest(path: Path) -> Path:
    """The newest checkpoint in a run's folder, in a folder of checkpoints, or `path` itself if it is one.

    Raises:
        CheckpointError: there is none.
    """
    if (path / STATE).exists():
        return path
    found = _there(path)
    if not found:
        raise CheckpointError(f"there is no checkpoint in {path}; name a run's folder, such as runs/demo")
    return found[-1]


def find(path: Path, updates: int | None = None) -> Path:
    """The checkpoint after so many updates, or the newest.

    Args:
        path: a run's folder, or a folder of checkpoints; without `updates` also a checkpoint.
        updates: how many the run had had.

    Raises:
        CheckpointError: there is no such checkpoint; the message names those that there are.
    """
    if updates is None:
        return newest(path)
    found = {updates_of(folder): folder for folder in _there(path)}
    if updates not in found:
        there = ", ".join(f"{path}@{number}" for number in found)
        raise CheckpointError(f"there is no checkpoint {path}@{updates}; there is {there or 'none'}")
    return found[updates]


def is_trained(path: Path) -> bool:
    """Whether a folder is a run's, holds checkpoints, or is one; not so the folder of a model."""
    return (path / STATE).exists() or (path / CHECKPOINTS).is_dir() or bool(checkpoints(path))


def remove_old(folder: Path, keep_multiple: int) -> None:
    """Remove all checkpoints in a folder but the newest and those that are to stay.

    Args:
        folder: of checkpoints.
        keep_multiple: those after a multiple of so many updates stay; 0 for none.

    Raises:
        OSError: they cannot be removed.
    """
    for old in checkpoints(folder)[:-KEEP]:
        if not keep_multiple or updates_of(old) % keep_multiple:
            shutil.rmtree(old)


def _there(path: Path) -> list[Path]:
    return checkpoints(path / CHECKPOINTS) or checkpoints(path)
