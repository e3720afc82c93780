"""Runs abuses in sandboxes, each under an outer guard: `python -m tests.sandbox.guarded [--as-user UID] [NAME ...]`.

A sandbox that fails must harm nothing. So each abuse runs in a process that is in a pids and a memory cgroup, or that
is an unprivileged user's with a low limit of processes; that has a low limit of file sizes; and that is killed, with
all that is left, by the clock. Prints a line of JSON for each. Ends with exit code 3 where no such guard can be had.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECRET = "marl-gem-secret-7c1f"
TASKS = 70
"""Processes and threads that a guard allows: more than a sandbox with 24 processes needs, and few for the machine."""
MEMORY = 1 << 30
SECONDS = 120
NO_GUARD = 3

CGROUPS = Path("/sys/fs/cgroup")


class Cgroup:
    """Control groups for one abuse, of either version. Falsy where they cannot be made."""

    def __init__(self) -> None:
        old = (CGROUPS / "pids" / "cgroup.procs").exists()
        parents = [CGROUPS / "pids", CGROUPS / "memory"] if old else [CGROUPS]
        limit = "memory.limit_in_bytes" if old else "memory.max"
        self.folders: list[Path] = []
        for parent in parents:
            folder = parent / f"marl-gem-test-{os.getpid()}"
            try:
                folder.mkdir()
                self.folders.append(folder)
                for name, value in (("pids.max", TASKS), (limit, MEMORY)):
                    if name.partition(".")[0] == parent.name or not old:
                        (folder / name).write_text(str(value))
            except OSError:
                self.remove()
                self.folders = []
                return

    def __bool__(self) -> bool:
        return bool(self.folders)

    def enter(self) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def members(self) -> list[int]:
        return [int(line) for line in (self.folders[0] / "cgroup.procs").read_text().split()] if self else []

    def kill(self) -> None:
        """End whatever is left, until nothing is."""
        for _ in range(500):
            members = self.members()
            if not members:
                return
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def remove(self) -> None:
        for folder in self.folders:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.02)


def tasks_of(uid: int) -> int:
    """How many processes and threads a user has."""
    count = 0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and folder.stat().st_uid == uid:
                count += sum(1 for _ in (folder / "task").iterdir())
    return count


def enter_guard(cgroup: Cgroup, uid: int | None) -> None:
    """Put this process under the guard. Ends it with exit code 3 if there is none."""
    os.setsid()
    cgroup.enter()
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if uid is not None and os.getuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if os.getuid() != 0:
        limit = tasks_of(os.getuid()) + TASKS
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    elif not cgroup:
        os._exit(NO_GUARD)


def guarded(action: Callable[[], Any], uid: int | None = None, seconds: float = SECONDS) -> tuple[Any, int]:
    """Run an action in a forked process under a guard of its own.

    Returns:
        What it returned (plain data; None if it was killed), and how many processes were left of it.
    """
    cgroup = Cgroup()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            enter_guard(cgroup, uid)
            result = json.dumps(action()).encode()
            while result:
                result = result[os.write(writing, result) :]
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    chunks: list[bytes] = []
    deadline = time.monotonic() + seconds
    try:
        while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunks.append(os.read(reading, 65536))
            if not chunks[-1]:
                break
    finally:
        os.close(reading)
        left = [member for member in cgroup.members() if member != pid]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        cgroup.kill()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        cgroup.remove()
    if status == NO_GUARD:
        sys.exit(NO_GUARD)
    return (json.loads(b"".join(chunks)) if status == 0 else None), len(left)


@contextlib.contextmanager
def outside() -> Iterator[dict[str, str]]:
    """What abuses aim at: a server, a process, a file, an open file, secrets in the environment."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o777)
        (folder / "canary").write_text(SECRET)
        os.set_inheritable(stack.enter_context((folder / "canary").open()).fileno(), True)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"marl-gem-{os.getpid()}"
        listener.bind("\0" + name)
        listener.listen()
        victim = subprocess.Popen(["sleep", "1000"])
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        os.environ["API_KEY"] = SECRET
        yield {
            "PORT": str(server.getsockname()[1]),
            "NAME": name,
            "VICTIM": str(victim.pid),
            "FOLDER": str(folder),
            "SECRET": SECRET,
            "HOME": str(Path.home()),
        }
        assert victim.poll() is None, "the victim was killed"
        assert (folder / "canary").read_text() == SECRET


def placed(code: str, words: dict[str, str]) -> str:
    """A program with what is outside in it."""
    for word, value in words.items():
        code = code.replace(f"@{word}@", value)
    return code


def abuse(name: str, words: dict[str, str]) -> dict[str, Any]:
    """Run one abuse in a sandbox of its own."""
    from marl_gem.tools.sandbox import Limits, Sandbox
    from tests.sandbox.abuses import ABUSES, LIMITS, PRELUDE

    code, _, limits, stdin = ABUSES[name]
    sandbox = Sandbox(Limits(**{**LIMITS, **limits}))  # type: ignore[arg-type]
    data = bytes(stdin)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    completed = sandbox.run(placed(PRELUDE + code, words), data)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 - 3 * stdin
    return {**completed._asdict(), "grown": grown}


def escapes(names: list[str], words: dict[str, str]) -> list[dict[str, Any]]:
    """Try escapes, each a snippet of the same session."""
    from marl_gem.tools.sandbox import Limits, PythonSession
    from tests.sandbox.abuses import ESCAPE_PRELUDE, ESCAPES, LIMITS

    async def run() -> list[dict[str, Any]]:
        async with PythonSession(Limits(**LIMITS)) as session:  # type: ignore[arg-type]
            first = await session.run(ESCAPE_PRELUDE)
            assert first.exit_code == 0, first
            return [(await session.run(placed(ESCAPES[name], words)))._asdict() for name in names]

    return asyncio.run(run())


def report(name: str, result: dict[str, Any] | None, left: int) -> None:
    sys.stdout.write(json.dumps({"name": name, "result": result, "left": left}) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--as-user", type=int)
    options = parser.parse_args()
    from tests.sandbox.abuses import ABUSES, ESCAPES

    names = options.names or [*ESCAPES, *ABUSES]
    chosen = [name for name in names if name in ESCAPES]
    with outside() as words:
        results, left = guarded(lambda: escapes(chosen, words), options.as_user)
        for name, result in zip(chosen, results or [None] * len(chosen), strict=True):
            report(name, result, left)
        for name in names:
            if name in ABUSES:
                result, left = guarded(lambda name=name: abuse(name, words), options.as_user)  # type: ignore[misc]
                report(name, result, left)


if __name__ == "__main__":
    main()
