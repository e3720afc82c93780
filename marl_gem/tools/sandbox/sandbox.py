"""`Sandbox`: a program at a time, each from a fresh start; or several in a started one, which keeps files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from marl_gem.tools.sandbox.confinement import View, check_machine
from marl_gem.tools.sandbox.connection import Backend, Connection
from marl_gem.tools.sandbox.files import (
    Content,
    File,
    check_moved,
    files_of,
    get_request,
    put_request,
    wipe_request,
)
from marl_gem.tools.sandbox.limits import Completed, Limits


class Sandbox:
    """Runs programs that nobody trusts. Each run starts from nothing and leaves nothing.

    A program sees the system read-only, an empty folder /tmp, no network, no other processes, an empty environment, and
    no file of the user's. It runs as a user without rights, in namespaces of its own, under a filter of system calls.

    Args:
        limits: what a run may use.
        backend: "bubblewrap"; or "unsafe": programs run with this user's rights, and only time, output, and the memory
            and file size of each process are limited. Never give that what a model wrote.
        packages: folders with Python packages that programs may import. They are mounted read-only.
        folders: paths of further writable folders, such as "/app"; each is empty at first and has `limits.disk` bytes.
        mounts: paths inside, and the files or folders of this machine that stand there, read-only.

    Raises:
        SandboxUnavailable: this machine cannot confine programs; the message says what would help.
        ValueError: there is no such back end, file or folder, or "unsafe" cannot have it.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        backend: Backend = "bubblewrap",
        packages: Sequence[str | Path] = (),
        folders: Sequence[str] = (),
        mounts: Mapping[str, str | Path] | None = None,
    ) -> None:
        if backend not in ("bubblewrap", "unsafe"):
            raise ValueError(f"there is no back end {backend!r}: take 'bubblewrap' or 'unsafe'")
        if backend == "bubblewrap":
            check_machine()
        elif folders or mounts:
            raise ValueError("the back end 'unsafe' cannot have folders or mounts")
        self.limits = limits or Limits()
        self.backend: Backend = backend
        self.packages = tuple(Path(path).resolve() for path in packages)
        mounted = tuple((inside, Path(path).resolve()) for inside, path in (mounts or {}).items())
        for path in self.packages:
            if not path.is_dir():
                raise ValueError(f"there is no folder {path}, whose packages programs are to import")
        for path in (*self.packages, *(path for _, path in mounted)):
            if not path.exists():
                raise ValueError(f"there is no file or folder {path}, which is to be mounted")
            if backend == "bubblewrap" and os.geteuid() == 0 and path.is_dir() and path.stat().st_mode & 0o005 != 0o005:
                raise ValueError(f"programs run as a user without rights, who may not read {path}: chmod o+rx it")
        for inside in (*folders, *(inside for inside, _ in mounted)):
            if not inside.startswith("/") or os.path.normpath(inside) != inside or inside in ("/", "/tmp"):
                raise ValueError(f"a folder of a sandbox is a path such as /app, not {inside!r}")
        self.view = View(self.packages, tuple(folders), mounted)

    def run(self, program: str | Sequence[str], stdin: str | bytes = "") -> Completed:
        """Run a program: text is Python code, a sequence is a command and its arguments.

        Raises:
            SandboxError: the sandbox failed; this says nothing about the program.
        """
        with self.start() as started:
            return started.run(program, stdin)

    def start(self) -> StartedSandbox:
        """A sandbox for several runs, which share their files. Close it, or use it in a `with` block.

        Raises:
            SandboxError: it cannot start.
        """
        return StartedSandbox(self)


class StartedSandbox:
    """A sandbox that runs one program after the other. When a run is over, all of its processes are ended.

    Between runs, files are written and read with the rights of the programs. `Sandbox.start` makes it.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._connection = Connection(sandbox.limits, sandbox.backend, sandbox.view)

    def run(self, program: str | Sequence[str], stdin: str | bytes = "", wall: float | None = None) -> Completed:
        """Run a program, as `Sandbox.run`; in `wall` seconds, where they are given.

        Raises:
            SandboxError: the sandbox failed; this says nothing about the program.
        """
        request = run_request(self.sandbox.limits, program, stdin)
        return self._connection.ask({**request, "wall": wall or request["wall"]})

    def write_files(self, files: Mapping[str, Content]) -> None:
        """Write files by their paths inside; folders above them are made.

        Raises:
            SandboxError: they cannot be written, for instance since they do not fit.
            ValueError: a path is not absolute.
        """
        check_moved(self._connection.exchange(put_request(files)))

    def read_files(self, paths: Sequence[str]) -> dict[str, File]:
        """The files at these paths, and all below those that are folders. What does not exist is left out.

        Raises:
            SandboxError: they are more than what the limits allow, or cannot be read.
        """
        request = get_request(paths, self.sandbox.limits, len(self.sandbox.view.folders))
        return files_of(self._connection.exchange(request))

    def wipe(self) -> None:
        """Remove all files that programs have left.

        Raises:
            SandboxError: some cannot be removed.
        """
        check_moved(self._connection.exchange(wipe_request()))

    def close(self) -> None:
        """End the sandbox. May be called twice."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_request(limits: Limits, program: str | Sequence[str], stdin: str | bytes) -> dict[str, Any]:
    """A run as it is sent into the sandbox."""
    data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
    code, argv = (program, None) if isinstance(program, str) else ("", list(program))
    return {"kind": "run", "code": code, "argv": argv, "name": "<program>", "stdin": data, "wall": limits.wall}
