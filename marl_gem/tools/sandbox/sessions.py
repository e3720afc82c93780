"""Sessions: Python and a shell that keep their state from call to call, confined as `Sandbox` confines.

Both are resources that a `ResourcePool` hands out. Between two calls every process
of a session is stopped, so that one that waits for its agent uses no CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from marl_gem.errors import SandboxError
from marl_gem.tools.resources import Resource
from marl_gem.tools.sandbox.connection import Backend, Connection, Reply
from marl_gem.tools.sandbox.files import Content, File, check_moved, files_of, get_request, put_request
from marl_gem.tools.sandbox.limits import Completed, Limits
from marl_gem.tools.sandbox.sandbox import Sandbox


class Session(Resource):
    """What both sessions are: a sandbox that starts with the first call and is asked time and again.

    Args:
        limits: what each call may use; memory, processes and disk are for the session.
        backend: as of `Sandbox`.
        packages, folders, mounts: as of `Sandbox`.

    Raises:
        SandboxUnavailable: this machine cannot confine programs.
    """

    kind = ""

    def __init__(
        self,
        limits: Limits | None = None,
        backend: Backend = "bubblewrap",
        packages: Sequence[str | Path] = (),
        folders: Sequence[str] = (),
        mounts: Mapping[str, str | Path] | None = None,
    ) -> None:
        self.sandbox = Sandbox(limits, backend, packages, folders, mounts)
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start the sandbox, if it has not been started.

        Raises:
            SandboxError: it cannot start.
        """
        if self._connection is None or not self._connection.alive:
            await self.stop()
            sandbox = self.sandbox
            self._connection = await asyncio.to_thread(Connection, sandbox.limits, sandbox.backend, sandbox.view)

    async def run(self, code: str, wall: float | None = None) -> Completed:
        """Run a snippet or a command, and wait for it. Calls of several tasks are run one after the other.

        Args:
            code: the snippet or the command.
            wall: the seconds it may take; by default those of the limits.

        Raises:
            SandboxError: the sandbox failed; this says nothing about the code. The next call starts a new one.
        """
        request = {"kind": self.kind, "code": code, "stdin": b"", "wall": wall or self.sandbox.limits.wall}
        return (await self._ask(request)).completed()

    async def write_files(self, files: Mapping[str, Content]) -> None:
        """Write files by their paths inside; folders above them are made. Processes of the session are stopped.

        Raises:
            SandboxError: they cannot be written, for instance since they do not fit.
            ValueError: a path is not absolute.
        """
        check_moved(await self._ask(put_request(files)))

    async def read_files(self, paths: Sequence[str]) -> dict[str, File]:
        """The files at these paths, and all below those that are folders. What does not exist is left out.

        Raises:
            SandboxError: they are more than what the limits allow, or cannot be read.
        """
        request = get_request(paths, self.sandbox.limits, len(self.sandbox.view.folders))
        return files_of(await self._ask(request))

    async def _ask(self, request: dict[str, Any]) -> Reply:
        async with self._turn:
            if self._connection is not None and not self._connection.alive:
                await self.stop()
                raise SandboxError("the sandbox ended by itself after the last call. The next call starts a new one")
            await self.start()
            assert self._connection is not None
            try:
                return await self._connection.exchange_async(request)
            except BaseException:
                self._connection = None  # it is closed
                raise

    async def reset(self) -> None:
        """Forget everything: variables, files and processes."""
        await self.stop()
        await self.start()

    async def healthy(self) -> bool:
        """Whether the sandbox runs."""
        return self._connection is not None and self._connection.alive

    async def stop(self) -> None:
        """End the sandbox with everything in it. It may be started again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close_async()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


class PythonSession(Session):
    """Python that keeps its variables from snippet to snippet.

    `run(code)` gives what was printed, and the value of a last expression as the interactive Python shows it. An
    exception has exit code 1, and the variables stay. After "timeout" and "output" they stay if the snippet ends within
    0.3 seconds of a KeyboardInterrupt; otherwise, and after "memory" and a crash, `state_lost` is set.
    """

    kind = "python"


class ShellSession(Session):
    """A bash that keeps its folder, variables and files from command to command.

    Commands read nothing: their standard input is empty. After "timeout" and "output" the processes that were started
    are killed, also those in the background. `exit` ends the shell, and the next command starts a new one, in the same
    files: `state_lost` is set.
    """

    kind = "shell"
