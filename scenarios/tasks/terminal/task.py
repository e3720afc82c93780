"""A task of a terminal: a folder in Harbor's form.

    task.toml         [metadata] difficulty; [verifier] timeout_sec; [environment] memory_mb, storage_mb, docker_image
    instruction.md    what the agent is to do
    environment/      Dockerfile or setup.sh, and the files they copy
    tests/            test.sh, which writes /logs/verifier/reward.txt or reward.json
    solution/         solve.sh

Ours besides: `[verifier] exit_code = true` demands that test.sh ends with exit code 0 for a reward, since a program of
the agent's that the tests run might write the file itself; `[environment] commands` names what must be installed.
"""

from __future__ import annotations

import functools
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.tools.sandbox import Limits
from marl_gem.tools.sandbox.limits import MIB

TASKS = Path(__file__).with_name("tasks")
"""The tasks of our own."""

_BACK_END = (
    "Such a task needs podman or docker, for which there is no back end here: give it a setup.sh or a Dockerfile of "
    "COPY, WORKDIR, ENV and RUN without a network"
)


class NeedsImage(RecordError):
    """A task that needs an image of its own, or a network, to be built."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}. {_BACK_END}")


@dataclass(frozen=True)
class TerminalTask:
    """A task. `grade` is its difficulty, `limits` those of its shell, `seconds` what its tests may take."""

    id: str
    folder: Path
    instruction: str
    grade: str
    limits: Limits
    seconds: float
    exit_code: bool = False
    commands: tuple[str, ...] = ()

    @property
    def solution(self) -> str | None:
        """The text of solve.sh, None if there is none."""
        path = self.folder / "solution" / "solve.sh"
        return path.read_text("utf-8") if path.is_file() else None

    @property
    def missing(self) -> tuple[str, ...]:
        """The commands that it needs and this machine does not have."""
        return tuple(name for name in self.commands if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") is None)


def load_task(folder: Path) -> TerminalTask:
    """Read a task's folder.

    Raises:
        RecordError: a file is missing or cannot be read; the message says which.
        NeedsImage: it names an image, or is made of several containers.
    """
    settings = _read_toml(folder / "task.toml")
    environment, verifier = _table(settings, "environment", folder), _table(settings, "verifier", folder)
    metadata = _table(settings, "metadata", folder)
    if environment.get("docker_image"):
        raise NeedsImage(f"{folder}/task.toml", f"it names the image {environment['docker_image']!r}")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / "environment" / name).exists():
            raise NeedsImage(f"{folder}/environment", f"it has a {name}")
    if not (folder / "tests" / "test.sh").is_file():
        raise RecordError(f"{folder}: there is no tests/test.sh")
    try:
        instruction = (folder / "instruction.md").read_text("utf-8").strip()
        memory, disk = int(environment.get("memory_mb", 512)), int(environment.get("storage_mb", 64))
        limits = Limits(wall=600.0, cpu=600.0, memory=memory * MIB, disk=min(disk, 1024) * MIB, output=MIB // 4)
        return TerminalTask(
            folder.name,
            folder,
            instruction,
            str(metadata.get("difficulty", "")),
            limits,
            float(verifier.get("timeout_sec", 60.0)),
            bool(verifier.get("exit_code", False)),
            tuple(map(str, environment.get("commands", ()))),
        )
    except OSError as error:
        raise RecordError(f"{folder}: {error}") from error
    except (ValueError, TypeError) as error:
        raise RecordError(f"{folder}/task.toml: {error}") from error


@functools.lru_cache(maxsize=16)
def load_tasks(folder: Path) -> tuple[TerminalTask, ...]:
    """The tasks of a folder, by name; or the task that it is.

    Raises:
        RecordError: there are none, or one cannot be read.
    """
    if (folder / "task.toml").is_file():
        return (load_task(folder),)
    if not folder.is_dir():
        raise RecordError(f"there is no folder {folder}")
    folders = sorted(path for path in folder.iterdir() if (path / "task.toml").is_file())
    if not folders:
        raise RecordError(f"{folder} has no tasks: folders with a task.toml, an instruction.md and tests/test.sh")
    return tuple(load_task(path) for path in folders)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}") from error


def _table(settings: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    table = settings.get(name, {})
    if not isinstance(table, dict):
        raise RecordError(f"{folder}/task.toml: [{name}] is a table, not {table!r:.80}")
    return table
