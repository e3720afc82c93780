"""Worker processes that can be killed: libraries that score what models wrote never run in this process.

    workers = Workers("math", ["math_scoring"], packages=["math_verify"])
    reply = await workers.call("score", gold, answer, seconds=1.0)

A worker is a sandbox (`marl_gem.tools.sandbox`) whose Python has imported the libraries once; a call then takes a
fraction of a millisecond. All envs of a process share its workers. Where bubblewrap cannot run, a worker is a process
with this user's rights, and only its memory, the size of its files and the time of each call are limited: see
docs/tasks.md for what that means.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import os
import signal
import socket
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from marl_gem.errors import MissingPackage, ResourceError, SandboxUnavailable
from marl_gem.tools.resources import Resource, ResourcePool, in_resource_loop, submit
from marl_gem.tools.sandbox.confinement import View, check_machine
from marl_gem.tools.sandbox.connection import Backend, Connection
from marl_gem.tools.sandbox.limits import MIB, Completed, Limits
from marl_gem.tools.sandbox.sandbox import run_request

MOST_WORKERS = 8
"""More are never started, however many processors there are."""

MARGIN = 30.0
"""Seconds by the clock, beyond ten times a call's CPU time, after which a worker that does not answer is killed."""

START_SECONDS = 120.0
"""So long may the libraries take to import."""

MOST_BYTES = 32 * MIB
"""A longer reply is none."""

_LIMITS = Limits(wall=1e8, cpu=1e8, memory=2048 * MIB, processes=8)
_INSIDE = Path(__file__).with_name("inside")

Problem = Literal["", "timeout", "crash", "raised"]


class Reply(NamedTuple):
    """What became of a call. `problem` is empty, and `value` what the function returned; or it is

    - "timeout": the call took more CPU time than it may.
    - "crash": the process died of it, twice.
    - "raised": the function raised; `text` says what.
    """

    value: Any
    problem: Problem = ""
    text: str = ""


class Worker(Resource):
    """One worker process; see `Workers` for the arguments."""

    def __init__(self, modules: tuple[str, ...], packages: tuple[str, ...], purpose: str) -> None:
        self._modules, self._packages, self._purpose = modules, packages, purpose
        self._connection: Connection | None = None
        self._channel: socket.socket | None = None
        self._running: asyncio.Task[Completed] | None = None

    async def start(self) -> None:
        view = View(tuple(_folder_of(name) for name in self._packages))
        backend = choose_backend()
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        try:
            self._connection = await asyncio.to_thread(Connection, _LIMITS, backend, view, theirs)
        finally:
            theirs.close()
        request = run_request(_LIMITS, program_of(self._modules), "")
        self._running = asyncio.create_task(self._connection.ask_async(request))
        await self.ask("ready", (), START_SECONDS)

    async def ask(self, function: str, arguments: Sequence[Any], seconds: float) -> dict[str, Any]:
        """Call a function.

        Raises:
            ResourceError: the process has died, or does not answer; it is stopped.
        """
        assert self._channel is not None
        call = json.dumps({"function": function, "arguments": arguments, "seconds": seconds}).encode()
        loop, complete = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(10.0 * seconds + MARGIN):
                await loop.sock_sendall(self._channel, len(call).to_bytes(4, "little") + call)
                size = int.from_bytes(await self._read(4), "little")
                if size > MOST_BYTES:
                    raise ResourceError(f"{self._purpose}: a worker sent {size:,} bytes")
                reply = json.loads(await self._read(size))
                complete = isinstance(reply, dict)
            if not complete:
                raise ResourceError(f"{self._purpose}: a worker sent what is no reply")
            return reply  # type: ignore[no-any-return]
        except (OSError, EOFError, ValueError) as error:  # a TimeoutError is an OSError
            raise ResourceError(f"{self._purpose}: a worker process died{await self._last_words()}") from error
        finally:
            if not complete:
                await self.stop()  # half a reply may be on its way

    async def _read(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), bytearray()
        assert self._channel is not None
        while len(data) < size:
            part = await loop.sock_recv(self._channel, size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    async def _last_words(self) -> str:
        """Why it died, as far as it is known."""
        if self._running is None:
            return ""
        with contextlib.suppress(Exception):
            completed = await asyncio.wait_for(asyncio.shield(self._running), 1.0)
            last_line = completed.stderr.strip().rpartition("\n")[2][:500]
            return f": {last_line or completed.ended}"
        return ", or did not answer"

    async def healthy(self) -> bool:
        return self._connection is not None and self._connection.alive

    async def stop(self) -> None:
        connection, self._connection = self._connection, None
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._running
        if connection is not None:
            await connection.close_async()
        if self._channel is not None:
            self._channel.close()


class Workers:
    """The workers of a suite, as many as there are processors, started when they are needed.

    Args:
        purpose: for messages.
        modules: files of inside/ whose functions can be called, by their names in their dict `FUNCTIONS`.
        packages: the packages that they import, for the folders where these lie.
        extra: the extra of marl_gem that installs them.
    """

    def __init__(self, purpose: str, modules: Sequence[str], packages: Sequence[str], extra: str) -> None:
        self._purpose, self._packages, self._extra = purpose, tuple(packages), extra
        factory = functools.partial(Worker, tuple(modules), self._packages, purpose)
        size = min(MOST_WORKERS, os.cpu_count() or 1)
        self._pool = ResourcePool(factory, size, timeout=600.0, name=f"workers of {purpose}")

    def check(self) -> None:
        """Raise MissingPackage where a package is not installed."""
        for name in self._packages:
            if importlib.util.find_spec(name) is None:
                raise MissingPackage(name.replace("_", "-"), self._extra, self._purpose)

    async def call(self, function: str, *arguments: Any, seconds: float) -> Reply:
        """Call a function in a worker, and wait for it. It may take so many seconds of CPU time.

        Raises:
            ResourceError: no worker could be started, or workers died although the call's process did not.
        """
        return await in_resource_loop(self._call(function, arguments, seconds))

    def call_and_wait(self, function: str, *arguments: Any, seconds: float) -> Reply:
        """As `call`, for code that is not asynchronous."""
        return submit(self._call(function, arguments, seconds)).result()

    def close(self) -> None:
        """End all workers; they cannot be used again. At the end of a process this happens by itself."""
        submit(self._pool.close()).result()

    async def _call(self, function: str, arguments: Sequence[Any], seconds: float) -> Reply:
        for is_last in (False, True):
            async with self._pool.lease() as worker:
                try:
                    reply = await worker.ask(function, arguments, seconds)
                except ResourceError:
                    if is_last:
                        raise
                    continue
            if "value" in reply:
                return Reply(reply["value"])
            if "raised" in reply:
                return Reply(None, "raised", f"{reply['raised']}: {reply.get('text', '')}")
            if reply.get("died") == signal.SIGPROF:
                return Reply(None, "timeout", f"it took more than {seconds:g} s of CPU time")
        return Reply(None, "crash", f"the process died of it, by signal {reply.get('died')}")


@functools.cache
def choose_backend() -> Backend:
    """How workers are confined on this machine; a warning says so if they are not."""
    try:
        check_machine()
    except SandboxUnavailable as error:
        text = f"answers are scored in processes with your rights, which only time and memory limit: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return "unsafe"
    return "bubblewrap"


def _folder_of(package: str) -> Path:
    """The folder that a package is imported from."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ResourceError(f"the package {package!r} is not installed")
    return Path(found.origin).resolve().parents[1]


@functools.cache
def program_of(modules: tuple[str, ...]) -> str:
    """A program that defines the functions of these modules, and serves them."""
    lines = ["import sys", "functions = {'ready': lambda: True}"]
    package = f"{__name__.rpartition('.')[0]}.inside"
    for name in ("expressions", *modules, "serve"):
        text, full = (_INSIDE / f"{name}.py").read_text("utf-8"), f"{package}.{name}"
        lines += [f"module = sys.modules[{full!r}] = type(sys)({full!r})"]
        lines += [f"exec(compile({text!r}, {f'<{name}>'!r}, 'exec'), module.__dict__)"]
        lines += ["functions.update(getattr(module, 'FUNCTIONS', {}))"]
    return "\n".join([*lines, "module.serve(functions)"])
