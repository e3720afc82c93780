"""A checkpoint's state.json: what the checkpoint is, and which files belong to it.

All of it is checked when it is read: types and bounds, the checksum of the description, and that the folder holds the
listed files, as they were written, and no others. A checkpoint holds no links, and nothing outside of it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from marl_gem.errors import CheckpointError
from marl_gem.llm.pretrained import DEPTH, is_deeper
from marl_gem.specs import is_learner_name

FORMAT = 4
OLD_FORMATS = (2, 3)
"""Formats that are read too; their descriptions have no checksum."""

STATE = "state.json"
MODEL = "model"
"""The folder of a policy's weights and tokenizer, in that of the policy."""

STATE_BYTES = 1 << 24
"""The greatest size of state.json."""

LEFT_BY_SYSTEMS = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\._.*|\.nfs[0-9a-f]+")
"""Files that file managers and file systems put into any folder; nothing reads them."""

ADVICE = "Remove it, so that the one before it is used"

Count = Annotated[int, Meta(ge=0, le=1 << 40)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class PolicyState(msgspec.Struct, frozen=True):
    """What the files of a policy do not say."""

    # How many updates it has had.
    updates: Count
    # The versions in its pool, oldest first.
    pool: Annotated[list[Count], Meta(max_length=1 << 16)]
    # Whether there is a reference.
    reference: bool
    # Whether there is a critic.
    critic: bool = False


class CheckpointState(msgspec.Struct, frozen=True):
    """The content of state.json."""

    format: int
    # How many updates the run has had.
    updates: Count
    # The policies that learn, by name; each has a folder of this name.
    policies: dict[str, PolicyState]
    # The run's configuration as plain data.
    config: dict[str, Any]
    # For each file, by its path in the checkpoint, its size and its SHA-256.
    files: dict[str, tuple[Count, Digest]]
    # What the algorithm remembers, see `algorithms.base.Stateful`.
    algorithm: dict[str, Any] = {}
    # The results against opponents, see `league.League`.
    league: dict[str, Any] = {}
    # What tells the model apart over which the policies are adapters; empty if they are models of their own.
    base: str = ""
    # The folder of that model, as seen from the working directory; older checkpoints have `policy.start_from`.
    base_folder: str = ""
    # The SHA-256 of all the rest, see `checksum_of`; empty in older formats.
    checksum: str = ""


def write_state(
    folder: Path,
    updates: int,
    policies: Mapping[str, PolicyState],
    config: Mapping[str, Any],
    *,
    algorithm: Mapping[str, Any],
    league: Mapping[str, Any],
    base: str,
    base_folder: str,
) -> None:
    """Describe a checkpoint whose files are all in its folder; see `CheckpointState` for the parts.

    Raises:
        OSError: it cannot be written.
    """
    files = {name: (folder / name).stat().st_size for name in sorted(_files_in(folder))}
    values = {
        "format": FORMAT,
        "updates": updates,
        "policies": msgspec.to_builtins(policies),
        "config": dict(config),
        "algorithm": dict(algorithm),
        "league": dict(league),
        "base": base,
        "base_folder": base_folder,
        "files": {name: [size, _digest(folder / name)] for name, size in files.items()},
    }
    (folder / STATE).write_text(json.dumps({**values, "checksum": checksum_of(values)}, indent=1), "utf-8")


def read_state(path: Path) -> CheckpointState:
    """A checkpoint's description, after checking that it holds the listed files, as they were written, and no others.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    values = _read_values(path)
    if values.get("format") not in (FORMAT, *OLD_FORMATS):
        raise CheckpointError(
            f"{path} has format {values.get('format')!s:.40}, but this marl_gem reads {_formats()}; use the marl_gem "
            "that wrote it, or train anew under another name"
        )
    try:
        state = msgspec.convert(values, CheckpointState)
        if state.format == FORMAT and state.checksum != checksum_of(values):
            raise ValueError("it was changed since it was written")
        _check_consistency(path, state)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {STATE}: {error}. {ADVICE}") from error
    _check_files(path, state)
    if {name.partition("/")[0] for name in state.files} != state.policies.keys():
        raise CheckpointError(f"{path} is damaged: {STATE}: its files are not those of its policies. {ADVICE}")
    return state


def _read_values(path: Path) -> dict[str, Any]:
    file = path / STATE
    try:
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > STATE_BYTES:
            raise ValueError(f"it is no file of at most {STATE_BYTES >> 20} MiB")
        values = json.loads(file.read_bytes(), parse_constant=_refuse_constant)
        if not isinstance(values, dict):
            raise ValueError("it holds no JSON object")
        if is_deeper(values, DEPTH):
            raise ValueError(f"it is nested more than {DEPTH} deep")
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no checkpoint, or its {STATE} is damaged: {error}. {ADVICE}") from error
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _check_consistency(path: Path, state: CheckpointState) -> None:
    """Raises ValueError."""
    if not state.policies:
        raise ValueError("it names no policy")
    for name, policy in state.policies.items():
        if not is_learner_name(name):
            raise ValueError(f"{name[:80]!r} is no policy's name")
        if policy.updates > state.updates or any(version > policy.updates for version in policy.pool):
            raise ValueError(f"{name} has had more updates than the run")
    number = re.fullmatch(r"update-([0-9]+)", path.name)
    if number and int(number[1]) != state.updates:
        raise ValueError(f"it was written after {state.updates} updates")


def _check_files(path: Path, state: CheckpointState) -> None:
    """Hold the folder against the list."""
    try:
        there = _files_in(path) - {STATE}
        for name, (size, digest) in state.files.items():
            if name not in there:
                outside = ".." in Path(name).parts or Path(name).is_absolute()
                missing = "lies outside of it" if outside else "is missing"
                raise CheckpointError(f"{path} is damaged: {name[:200]} {missing}. {ADVICE}")
            if (path / name).stat().st_size != size or _digest(path / name) != digest:
                raise CheckpointError(f"{path} is damaged: {name} is cut short or changed. {ADVICE}")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise CheckpointError(
            f"{path}: {error}; a checkpoint holds files alone. Remove it, if you trust the rest"
        ) from error
    if unlisted := sorted(there - state.files.keys()):
        raise CheckpointError(
            f"{path} holds {unlisted[0]}, which its {STATE} does not list, so somebody added it. Remove the file if "
            "you trust the rest, or the checkpoint, so that the one before it is used"
        )


def _files_in(folder: Path) -> set[str]:
    """The paths of all files in a folder, with forward slashes, without those that systems leave behind.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds a link, or something else that is no file.
    """
    found = set()
    for inner, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            path = Path(inner, name)
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                kind = "a link" if stat.S_ISLNK(mode) else "no file"
                raise ValueError(f"{path.relative_to(folder).as_posix()} is {kind}")
            if stat.S_ISREG(mode) and not LEFT_BY_SYSTEMS.fullmatch(name):
                found.add(path.relative_to(folder).as_posix())
    return found


def _raise(error: OSError) -> None:
    raise error


def checksum_of(values: Mapping[str, Any]) -> str:
    """The SHA-256 of a description without its checksum, in a form that does not depend on white space and order."""
    rest = {name: value for name, value in values.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _formats() -> str:
    return f"{', '.join(map(str, OLD_FORMATS))} and {FORMAT}"
