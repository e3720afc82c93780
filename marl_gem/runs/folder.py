"""A run's folder: the names of its files, its configuration, and the name of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marl_gem.errors import ConfigError, JournalError
from marl_gem.runs.checksum import FIELD as CHECKSUM
from marl_gem.runs.files import explained, json_bytes, read_json_file, write_file

CONFIG, REPORT, TASKS = "config.json", "report.json", "tasks.json"
EPISODES, ERRORS, METRICS = "episodes.jsonl", "errors.jsonl", "metrics.jsonl"
CHECKPOINTS = "checkpoints"


def fresh_folder(parent: Path, stem: str) -> Path:
    """The first of `parent/stem-1`, `parent/stem-2`, ... that is not there. Nothing is made."""
    number = 1
    while (folder := parent / f"{stem}-{number}").exists():
        number += 1
    return folder


def is_empty(folder: Path) -> bool:
    """Whether a folder is not there, or holds nothing but hidden files such as its lock.

    Raises:
        JournalError: it cannot be read.
    """
    with explained(folder, "read"):
        return not folder.exists() or all(file.name.startswith(".") for file in folder.iterdir())


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run, as plain data.

    Raises:
        ConfigError: the folder holds no config.json, or a damaged one.
        JournalError: it cannot be read.
    """
    path = folder / CONFIG
    try:
        return read_json_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{folder} is no run: it holds no {CONFIG}") from None
    except ValueError as error:
        raise ConfigError(
            f"{path} is damaged: {error}. Put it back from a copy; if you changed it on purpose, remove its last "
            f'field, "{CHECKSUM}"'
        ) from error
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror or error}") from error


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write config.json into a folder, which is made if it is not there. An equal file is not touched.

    Raises:
        JournalError: it cannot be written.
    """
    path, content = folder / CONFIG, json_bytes(config)
    with explained(folder, "write to"):
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() == content:
            return
    write_file(path, content)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder of checkpoints, oldest first; none if it is not there."""
    found = [path for path in folder.glob("update-*") if path.name.removeprefix("update-").isdecimal()]
    return sorted(found, key=updates_of)


def updates_of(checkpoint: Path) -> int:
    """How many updates a run had had when it wrote a checkpoint, by the name of its folder."""
    return int(checkpoint.name.removeprefix("update-"))
