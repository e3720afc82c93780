"""A request that is carried out inside a sandbox: bytes go to and fro, and limits are looked at.

See guard.py for where this runs.
"""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from marl_gem.tools.sandbox.inside.processes import Processes

TICK = 0.03
"""Seconds between two looks at memory, CPU time, files and zombies."""

EXIT, TIMEOUT, MEMORY, KILLED, OUTPUT = range(5)
"""Why a request is over."""


class Worker:
    """A process that runs a program, and the ends of its pipes that stay here."""

    def __init__(self, pid: int, files: dict[str, int]) -> None:
        self.pid = pid
        self.files = files
        self.ended = os.pidfd_open(pid)

    def close(self) -> None:
        for file in (self.ended, *self.files.values()):
            os.close(file)
        self.files = {}


class Run:
    """A request that is carried out: what was written so far, and why it is over."""

    def __init__(
        self, control: int, processes: Processes, worker: Worker, request: dict[str, Any], limits: dict[str, Any]
    ) -> None:
        self.control = control
        self.processes = processes
        self.limits = limits
        self.worker = worker
        self.output = {"stdout": b"", "stderr": b""}
        self.why = EXIT
        self.status: int | None = None
        self.answer = 0
        self.answered = b""
        self.cpu = processes.cpu()
        self.chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self.left: int = limits["output"]
        self.next_look = time.monotonic() + TICK
        self.to_write = {"stdin": memoryview(request["stdin"]), "commands": memoryview(b"")}
        if request["kind"] == "python":
            code = request["code"].encode("utf-8", "surrogatepass")
            self.to_write["commands"] = memoryview(len(code).to_bytes(8, "little") + code)
        elif request["kind"] == "shell":
            command = request["code"].encode("utf-8", "surrogateescape").replace(b"\0", b"")
            self.to_write["commands"] = memoryview(command + b"\0")

    def until_over(self, deadline: float, drain: bool = False) -> bool | None:
        """Exchange bytes until the worker is done (True) or a limit is exceeded (None, and `why`).

        With `drain`, what is written is thrown away, and limits that were exceeded are not looked at again.
        """
        over: bool | None = None
        while over is None:
            now = time.monotonic()
            if now >= deadline:
                self.why = self.why if drain else TIMEOUT
                break
            over = self.exchange(min(deadline, self.next_look) - now, drain)
            if over is None and time.monotonic() >= self.next_look:
                self.look()
            if self.why != EXIT and not drain:
                break
        for name, chunks in self.chunks.items():
            self.output[name] = b"".join(chunks)
        return over

    def exchange(self, seconds: float, drain: bool) -> bool | None:
        """Wait for something to happen, and see to it. True when the worker is done."""
        files = self.worker.files
        waiting = select.poll()
        waiting.register(self.control, select.POLLIN)
        waiting.register(self.worker.ended, select.POLLIN)
        names = {}
        for name, file in files.items():
            if name in self.to_write and not self.to_write[name] and name == "commands":
                continue
            waiting.register(file, select.POLLOUT if name in self.to_write else select.POLLIN)
            names[file] = name
        events = [file for file, _ in waiting.poll(max(0.0, seconds) * 1000)]
        if self.control in events:
            raise EOFError  # the parent is gone, or breaks the protocol
        for name in [names[file] for file in events if file in names]:
            if name in self.chunks:
                self.read(name, drain)
            elif name in self.to_write:
                self.write(name)
        if self.worker.ended in events:
            self.status = os.waitpid(self.worker.pid, 0)[1]
            self.drain_pipes(drain)
            return True
        if any(names.get(file) == "done" for file in events) and self.is_answered():
            self.drain_pipes(drain)
            return True
        return None

    def write(self, name: str) -> None:
        """Write what the worker is to read; close its standard input when there is no more."""
        try:
            if self.to_write[name]:
                self.to_write[name] = self.to_write[name][os.write(self.worker.files[name], self.to_write[name]) :]
        except BlockingIOError:
            return
        except OSError:
            self.to_write[name] = memoryview(b"")
        if name == "stdin" and not self.to_write[name]:
            os.close(self.worker.files.pop(name))

    def read(self, name: str, drain: bool) -> int:
        """Read what there is, up to the limit. Returns how many bytes came: 0 is the end or nothing yet."""
        try:
            data = os.read(self.worker.files[name], 65536)
        except BlockingIOError:
            return 0
        if not data:
            os.close(self.worker.files.pop(name))
        elif not drain:
            if len(data) > self.left:
                self.why = OUTPUT
            self.chunks[name].append(data[: self.left])
            self.left -= min(self.left, len(data))
        return len(data)

    def drain_pipes(self, drain: bool) -> None:
        """Read what the worker wrote before it was done. A pipe holds 64 KiB, and others may still write."""
        for name in ("stdout", "stderr"):
            for _ in range(16):
                if name not in self.worker.files or not self.read(name, drain):
                    break

    def is_answered(self) -> bool:
        """Whether the session has said that it is done, with its exit code. What it says is not to be relied on."""
        data = os.read(self.worker.files["done"], 64)
        if not data:
            os.close(self.worker.files.pop("done"))  # such as `exec` in a shell: it is done when the process ends
        self.answered = (self.answered + data)[:64]
        if b"\n" not in self.answered:
            return False
        digits = self.answered.split(b"\n")[0][:9]
        self.answer = int(digits) if digits.isdigit() else 1
        return True

    def look(self) -> None:
        """See whether memory, CPU time or files exceed the limits."""
        processes, limits = self.processes, self.limits
        most = limits["memory"]
        much = processes.memory() > most and processes.memory(exact=processes.namespace) > most
        if much or processes.files() > limits["files"]:
            self.why = MEMORY
        elif processes.cpu() - self.cpu > limits["cpu"]:
            self.why = TIMEOUT
        processes.reap_orphans()
        self.next_look = time.monotonic() + TICK

    def reap(self) -> int:
        """The exit code of a worker that has ended or was killed; minus the signal's number where it was one."""
        status = self.status if self.status is not None else os.waitpid(self.worker.pid, 0)[1]
        return os.waitstatus_to_exitcode(status)
