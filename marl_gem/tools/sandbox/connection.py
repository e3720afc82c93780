"""The parent's side of a sandbox: it starts the first process inside, sends requests and reads bounded replies."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import marshal
import os
import queue
import select
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from marl_gem.errors import SandboxError
from marl_gem.tools.sandbox.confinement import (
    View,
    check_machine,
    choose_user,
    command,
    contents,
    environment,
    interpreter,
    processes_counted,
)
from marl_gem.tools.sandbox.limits import Completed, Ended, Limits

Backend = Literal["bubblewrap", "unsafe"]

HEADER = 14
MARGIN = 5.0
"""Seconds beyond the limit after which a sandbox that does not answer is killed. Its own clock ends programs before."""
PATIENCE = 2.0
"""Seconds that a sandbox may take to end, before it is killed."""
ENDINGS: tuple[Ended, ...] = ("exit", "timeout", "memory", "killed", "output")

_START = """
import marshal, os, sys
control = int(sys.argv[1])
def read(size):
    data = b""
    while len(data) < size:
        data += os.read(control, size - len(data)) or os._exit(0)
    return data
settings = marshal.loads(read(int.from_bytes(read(8), "little")))
for name, code in settings.pop("modules"):
    sys.modules[name] = module = type(sys)(name)
    exec(code, module.__dict__)
program = module.main(control, settings)
del control, read, settings, name, code, module
program()
"""
"""What Python runs inside: it reads the modules of inside/ from the connection. In a forked worker, `main` returns."""

_MODULES = ("processes", "files", "worker", "running", "guard")


class Connection:
    """A started sandbox. Requests are answered one after the other.

    Args:
        limits: what its programs may use.
        backend: "bubblewrap", or "unsafe" for a process with this user's rights.
        view: what its programs see of files.
        channel: a socket that programs find as file descriptor 202.

    Raises:
        SandboxUnavailable: this machine cannot confine programs.
    """

    def __init__(self, limits: Limits, backend: Backend, view: View, channel: socket.socket | None = None) -> None:
        self.limits = limits
        self.confined = backend == "bubblewrap"
        self.folder: str | None = None
        if self.confined:
            check_machine()
        else:
            self.folder = tempfile.mkdtemp(prefix="marl-gem-unsafe-")
        self.socket, theirs = socket.socketpair()
        try:
            user = choose_user(os.geteuid(), Path("/proc/self/uid_map").read_text()) if self.confined else None
            self._first = self._settings(user, view, channel)
            self.socket.setblocking(False)
            self.process = on_launcher(lambda: self._launch(theirs, user, view, channel))
        except BaseException:
            self.socket.close()
            self._remove_folder()
            raise
        finally:
            theirs.close()

    def _launch(
        self, theirs: socket.socket, user: int | None, view: View, channel: socket.socket | None
    ) -> subprocess.Popen[bytes]:
        files = [theirs.fileno()] + ([channel.fileno()] if channel else [])
        python = [interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c", _START, str(theirs.fileno())]
        prefix: list[str] = []
        with contextlib.ExitStack() as stack:
            if self.confined:
                reading = {}
                for name, data in contents(user).items():
                    reading[name], writing = os.pipe()
                    stack.callback(os.close, reading[name])
                    with os.fdopen(writing, "wb") as file:
                        file.write(data)  # fits into the pipe
                files += reading.values()
                prefix = command(self.limits, user, view, reading)
            null = subprocess.DEVNULL
            return subprocess.Popen(
                [*prefix, *python],
                stdin=null,
                stdout=null,
                stderr=subprocess.PIPE,
                pass_fds=files,
                env=environment(),
                start_new_session=not self.confined,
                cwd=self.folder,
            )

    def _settings(self, user: int | None, view: View, channel: socket.socket | None) -> bytes:
        tasks = self.limits.processes + processes_counted(user) if self.confined else 0
        settings = {
            "modules": inside(),
            "limits": {**asdict(self.limits), "tasks": tasks},
            "user": user,
            "namespace": self.confined,
            "channel": channel.fileno() if channel else None,
            "paths": [str(path) for path in view.packages],
            "folders": ["/tmp", *view.folders] if self.confined else [self.folder],
        }
        return framed(settings)

    def ask(self, request: dict[str, Any]) -> Completed:
        """Send a request and wait for the reply, see `exchange`."""
        return self.exchange(request).completed()

    async def ask_async(self, request: dict[str, Any]) -> Completed:
        """As `ask`, without blocking the event loop."""
        return (await self.exchange_async(request)).completed()

    def exchange(self, request: dict[str, Any]) -> Reply:
        """Send a request and wait for the reply.

        Raises:
            SandboxError: the sandbox ended by itself, or did not answer.
        """
        try:
            to_send, reply = memoryview(self._take(request)), self._reply(request)
            deadline = time.monotonic() + request["wall"] + MARGIN
            waiting = select.poll()
            while not reply.complete:
                waiting.register(self.socket, select.POLLIN | (select.POLLOUT if to_send else 0))
                events = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
                if not events:
                    raise SandboxError(f"the sandbox did not answer within {request['wall'] + MARGIN:g} seconds")
                if events[0][1] & select.POLLOUT and to_send:
                    to_send = to_send[self.socket.send(to_send) :]
                if events[0][1] & ~select.POLLOUT:
                    reply.feed(self.socket.recv(reply.missing))
            return reply
        except BaseException as error:
            self._fail(error)
            raise

    async def exchange_async(self, request: dict[str, Any]) -> Reply:
        """As `exchange`, without blocking the event loop. A sandbox whose caller is cancelled is ended."""
        loop, reply = asyncio.get_running_loop(), self._reply(request)
        try:
            async with asyncio.timeout(request["wall"] + MARGIN):
                await loop.sock_sendall(self.socket, self._take(request))
                while not reply.complete:
                    reply.feed(await loop.sock_recv(self.socket, reply.missing))
            return reply
        except BaseException as error:
            self._fail(error)
            raise

    def _reply(self, request: dict[str, Any]) -> Reply:
        return Reply(request.get("most", self.limits.output))

    def _take(self, request: dict[str, Any]) -> bytes:
        data, self._first = self._first + framed(request), b""
        return data

    def _fail(self, error: BaseException) -> None:
        """End the sandbox after a failure, and say what bubblewrap or Python said, if that is the reason."""
        said_nothing = isinstance(error, (ConnectionError, EOFError, BrokenPipeError))
        text = self._last_words() if said_nothing else ""
        self.close()
        if said_nothing:
            raise SandboxError(f"the sandbox ended by itself{': ' + text if text else ''}") from error
        if isinstance(error, TimeoutError):
            raise SandboxError("the sandbox did not answer") from error

    def _last_words(self) -> str:
        stderr = self.process.stderr
        if stderr is None or not is_ready(stderr.fileno(), 1.0):
            return ""
        return os.read(stderr.fileno(), 4096).decode("utf-8", "replace").strip()

    @property
    def alive(self) -> bool:
        """Whether the sandbox can be asked."""
        return self.socket.fileno() >= 0 and self.process.poll() is None

    def close(self) -> None:
        """End every process in the sandbox, and wait until they are gone. May be called twice."""
        self.socket.close()  # the first process inside ends with it
        if self.process.returncode is None:
            ended = os.pidfd_open(self.process.pid)
            try:
                if not is_ready(ended, PATIENCE):
                    self.process.kill()
            finally:
                os.close(ended)
        self._finish()

    async def close_async(self) -> None:
        """As `close`, without blocking the event loop, and without a thread: at the end of a process there is none."""
        self.socket.close()
        if self.process.returncode is None:
            ended, gone, loop = os.pidfd_open(self.process.pid), asyncio.Event(), asyncio.get_running_loop()
            loop.add_reader(ended, gone.set)
            try:
                async with asyncio.timeout(PATIENCE):
                    await gone.wait()
            except TimeoutError:
                self.process.kill()
            finally:
                loop.remove_reader(ended)
                os.close(ended)
        self._finish()

    def _finish(self) -> None:
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self.folder is not None:
            import shutil

            shutil.rmtree(self.folder, ignore_errors=True)


class Reply:
    """A reply as it comes in. It never holds more than a limit of bytes and a header."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = bytearray()
        self.missing = HEADER
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Take in bytes.

        Raises:
            EOFError: there are no more.
            SandboxError: it is no reply, or longer than the limit.
        """
        if not data:
            raise EOFError("the sandbox closed the connection")
        self.data += data
        self.missing -= len(data)
        if self.missing == 0 and len(self.data) == HEADER:
            self.missing = sum(self._sizes())
            if self.missing > self.limit or self.data[12] >= len(ENDINGS):
                raise SandboxError("the sandbox sent what is no reply")
        self.complete = self.missing == 0

    def _sizes(self) -> tuple[int, int]:
        return int.from_bytes(self.data[:4], "little"), int.from_bytes(self.data[4:8], "little")

    def completed(self) -> Completed:
        """The reply, once it is complete."""
        middle = HEADER + self._sizes()[0]
        code = int.from_bytes(self.data[8:12], "little", signed=True)
        stdout, stderr = self.data[HEADER:middle], self.data[middle:]
        texts = stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")
        return Completed(*texts, code, ENDINGS[self.data[12]], bool(self.data[13]))

    def stdout(self) -> memoryview:
        """The bytes of standard output."""
        return memoryview(self.data)[HEADER : HEADER + self._sizes()[0]]


def is_ready(file: int, seconds: float) -> bool:
    """Wait until a file can be read. Unlike `select.select` it takes more than 1,024 files."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def framed(record: dict[str, Any]) -> bytes:
    """A record as it is sent into the sandbox."""
    data = marshal.dumps(record)
    return len(data).to_bytes(8, "little") + data


@functools.cache
def inside() -> list[tuple[str, Any]]:
    """The compiled modules of inside/, in the order in which they import each other."""
    folder, package = Path(__file__).with_name("inside"), __name__.rpartition(".")[0]
    compiled = []
    for name in _MODULES:
        code = compile((folder / f"{name}.py").read_text("utf-8"), f"<{name}>", "exec", dont_inherit=True)
        compiled.append((f"{package}.inside.{name}", code))
    return compiled


_launchers: dict[int, queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]] = {}
_lock = threading.Lock()


def on_launcher(launch: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Call `launch` in a thread that lives as long as this process.

    bubblewrap dies with its parent, and to the kernel that is the thread that started it.
    """
    with _lock:
        work = _launchers.get(os.getpid())
        if work is None:
            work = _launchers[os.getpid()] = queue.SimpleQueue()
            threading.Thread(target=_launch_all, args=(work,), name="sandbox launcher", daemon=True).start()
    future: Future[subprocess.Popen[bytes]] = Future()
    work.put((launch, future))
    return future.result()


def _launch_all(work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]) -> None:
    while True:
        launch, future = work.get()
        try:
            future.set_result(launch())
        except BaseException as error:
            future.set_exception(error)
        del launch, future
