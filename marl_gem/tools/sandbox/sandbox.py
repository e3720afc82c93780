"""`Sandbox`: a program at a time, each from a fresh start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marl_gem.tools.sandbox.confinement import check_machine
from marl_gem.tools.sandbox.connection import Backend, Connection
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

    Raises:
        SandboxUnavailable: this machine cannot confine programs; the message says what would help.
        ValueError: there is no such back end or folder.
    """

    def __init__(
        self, limits: Limits | None = None, backend: Backend = "bubblewrap", packages: Sequence[str | Path] = ()
    ) -> None:
        if backend not in ("bubblewrap", "unsafe"):
            raise ValueError(f"there is no back end {backend!r}: take 'bubblewrap' or 'unsafe'")
        if backend == "bubblewrap":
            check_machine()
        self.limits = limits or Limits()
        self.backend: Backend = backend
        self.packages = tuple(Path(path).resolve() for path in packages)
        for path in self.packages:
            if not path.is_dir():
                raise ValueError(f"there is no folder {path}, whose packages programs are to import")
            if backend == "bubblewrap" and os.geteuid() == 0 and path.stat().st_mode & 0o005 != 0o005:
                raise ValueError(f"programs run as a user without rights, who may not read {path}: chmod o+rx it")

    def run(self, program: str | Sequence[str], stdin: str | bytes = "") -> Completed:
        """Run a program: text is Python code, a sequence is a command and its arguments.

        Raises:
            SandboxError: the sandbox failed; this says nothing about the program.
        """
        connection = Connection(self.limits, self.backend, self.packages)
        try:
            return connection.ask(run_request(self.limits, program, stdin))
        finally:
            connection.close()


def run_request(limits: Limits, program: str | Sequence[str], stdin: str | bytes) -> dict[str, Any]:
    """A run as it is sent into the sandbox."""
    data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
    code, argv = (program, None) if isinstance(program, str) else ("", list(program))
    return {"kind": "run", "code": code, "argv": argv, "name": "<program>", "stdin": data, "wall": limits.wall}
