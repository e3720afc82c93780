"""What the shell of a task begins with: its Dockerfile's COPY, WORKDIR, ENV and RUN without a network, or its setup.sh.

The host's /usr stands for the image. The files are made once in a process, in a sandbox, and written into each
episode's shell.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from marl_gem.errors import RecordError
from marl_gem.scenarios.tasks.terminal.task import NeedsImage, TerminalTask
from marl_gem.tools.sandbox import File, Sandbox, read_folder

WORKDIR = "/app"
HOME = "/tmp"
ALWAYS = (WORKDIR,)
"""Folders that the shell of every task may write to, besides /tmp."""

SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/proc", "/dev", "/sys", "/tests", "/logs")
"""Folders that no task may write to: the host's, read-only, and those of the tests."""

_STANDARD_IMAGES = re.compile(r"^(ubuntu|debian|python|bash|buildpack-deps)(?![a-z])")
_NETWORK = re.compile(r"\b(apt|apt-get|apk|yum|dnf|pip3?|uv|uvx|npm|cargo|conda|curl|wget|git clone)\b")
_IGNORED = ("CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "SHELL", "STOPSIGNAL", "USER", "VOLUME")
_DATES = {"GIT_AUTHOR_DATE": "2025-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z"}
_NAMES = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org"}
_COMMITTER = {"GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.org"}
BUILD_ENVIRONMENT = {**_DATES, **_NAMES, **_COMMITTER}
"""So that what git makes is equal in all processes."""


@dataclass(frozen=True)
class Start:
    """What a shell begins with: its writable folders, files, folder and variables."""

    folders: tuple[str, ...]
    files: dict[str, File]
    workdir: str
    variables: dict[str, str]

    @property
    def prelude(self) -> str:
        """The first command of the shell."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return "\n".join([f"export HOME={HOME}", *exports, f"cd {shlex.quote(self.workdir)}"])


@dataclass
class Plan:
    """A Dockerfile as it is read: files to write and commands to run, in order."""

    workdir: str
    variables: dict[str, str]
    steps: list[tuple[str, str, dict[str, File] | str]]  # folder, what it is, and files or a command
    folders: set[str]


@functools.lru_cache(maxsize=256)
def build(task: TerminalTask) -> Start:
    """Make what the shell of a task begins with.

    Raises:
        RecordError: the Dockerfile or setup.sh fails; the message has its output.
        NeedsImage: it needs an image or a network.
        SandboxUnavailable: this machine cannot confine programs.
    """
    plan = plan_of(task)
    folders = tuple(sorted({*ALWAYS, *plan.folders, "/" + plan.workdir.split("/")[1]} - {"/tmp"}))
    with Sandbox(task.limits, folders=folders).start() as started:
        started.write_files({plan.workdir: File(mode=0o755, kind="folder")})
        for workdir, what, step in plan.steps:
            if isinstance(step, dict):
                started.write_files(step)
                continue
            exports = {"HOME": HOME, **BUILD_ENVIRONMENT, **plan.variables}
            lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
            command = "\n".join([*lines, f"mkdir -p {workdir} && cd {workdir} || exit", step])
            completed = started.run(["/bin/bash", "-c", command], wall=300.0)
            if completed.ended != "exit" or completed.exit_code != 0:
                output = (completed.stdout + completed.stderr)[-1000:].strip()
                raise RecordError(f"{task.folder}/environment: {what} failed ({completed.exit_code}): {output}")
        made = started.read_files([*folders, "/tmp"])
    times = {path: file._replace(time=File().time) for path, file in made.items()}
    return Start(folders, times, plan.workdir, plan.variables)


@functools.lru_cache(maxsize=256)
def plan_of(task: TerminalTask) -> Plan:
    """What is to be done to make a task's start.

    Raises:
        RecordError: the Dockerfile cannot be read.
        NeedsImage: it needs an image or a network.
    """
    folder = task.folder / "environment"
    dockerfile, setup = folder / "Dockerfile", folder / "setup.sh"
    if dockerfile.is_file() and not setup.is_file():
        return _read_dockerfile(dockerfile)
    plan = Plan(WORKDIR, {}, [], set())
    if folder.is_dir():
        made_of = (f"{WORKDIR}/setup.sh", f"{WORKDIR}/Dockerfile")
        files = {path: file for path, file in read_folder(folder, WORKDIR).items() if path not in made_of}
        plan.steps.append((WORKDIR, "COPY . .", files))
    if setup.is_file():
        plan.steps.append((WORKDIR, "setup.sh", setup.read_text("utf-8")))
    return plan


def _read_dockerfile(path: Path) -> Plan:
    plan = Plan("/", {}, [], set())
    stages = 0
    text = re.sub(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*", " ", path.read_text("utf-8"))
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" ")
        name, rest = name.upper(), rest.strip()
        where = f"{path}: {line.strip():.100}"
        if not name or name.startswith("#") or name in _IGNORED:
            continue
        if name == "FROM":
            stages += 1
            if stages > 1 or not _STANDARD_IMAGES.match(rest.split()[0].rpartition("/")[2]):
                raise NeedsImage(where, "only a plain Ubuntu, Debian or Python image is stood for by this machine")
        elif name == "WORKDIR":
            plan.workdir = _writable(_joined(plan.workdir, rest), plan, where)
        elif name in ("ENV", "ARG"):
            plan.variables |= _variables(rest)
        elif name in ("COPY", "ADD"):
            plan.steps.append((plan.workdir, line.strip(), _copied(path.parent, rest, plan, where)))
        elif name == "RUN":
            if _NETWORK.search(rest):
                raise NeedsImage(where, "there is no network here")
            command = shlex.join(json.loads(rest)) if rest.startswith("[") else rest
            plan.steps.append((plan.workdir, line.strip(), command))
        else:
            raise RecordError(f"{where}: the instruction {name} is not known")
    plan.workdir = plan.workdir if plan.workdir != "/" else WORKDIR
    return plan


def _variables(text: str) -> dict[str, str]:
    if "=" not in text.split()[0]:  # the old form: ENV NAME value
        name, _, value = text.partition(" ")
        return {name: value.strip()} if value else {}
    return dict(word.partition("=")[::2] for word in shlex.split(text))


def _copied(context: Path, text: str, plan: Plan, where: str) -> dict[str, File]:
    """The files that COPY writes."""
    words = [str(word) for word in json.loads(text)] if text.startswith("[") else shlex.split(text)
    if any(word.startswith("--from") for word in words):
        raise NeedsImage(where, "it copies from another image")
    *sources, target = (word for word in words if not word.startswith("--"))
    into_folder = target.endswith(("/", "/.")) or target == "." or len(sources) > 1
    inside = _writable(_joined(plan.workdir, target), plan, where)
    files: dict[str, File] = {}
    for source in sources:
        found = sorted(context.glob(source.lstrip("/"))) if source not in (".", "./") else [context]
        if not found:
            raise RecordError(f"{where}: there is no {source}")
        for path in found:
            if not path.resolve().is_relative_to(context.resolve()):
                raise RecordError(f"{where}: {source} lies outside of the environment")
            if path.is_dir():
                files |= read_folder(path, inside)
            else:
                mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                files[f"{inside}/{path.name}" if into_folder else inside] = File(path.read_bytes(), mode)
    return files


def _joined(workdir: str, path: str) -> str:
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{workdir}/{path}").split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _writable(path: str, plan: Plan, where: str) -> str:
    """A path that a task writes to, whose folder at the top becomes writable."""
    top = "/" + path.split("/")[1]
    if top == "/" or top in SYSTEM:
        raise NeedsImage(where, f"{path} is read-only here")
    plan.folders.add(top)
    return path
