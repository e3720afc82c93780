"""The first process of a sandbox: it starts programs, holds them to their limits, ends them, and reports.

The code of this folder is sent into the sandbox and runs there as process 1, in a Python without site-packages. It
never runs a program's code itself, only in processes that it forks and that have no rights. Nothing inside can signal
it, since process 1 of a namespace is protected; when it ends, the kernel ends everything else in the sandbox. It
imports only modules that load in well under a millisecond: no pathlib, no ctypes, and `_signal` in place of `signal`,
which wraps its numbers in enums and takes 15 ms.

Requests come as an 8-byte length and a marshalled dict, from the parent, which is trusted. Replies are lengths and
bytes, see `reply`: the parent never decodes an object that was made here.
"""

from __future__ import annotations

import marshal
import os
import sys
import time
from _signal import SIG_DFL, SIGCONT, SIGINT, SIGKILL, SIGSTOP, signal  # type: ignore[import-not-found]

from marl_gem.tools.sandbox.inside.files import get, put, wipe
from marl_gem.tools.sandbox.inside.processes import Processes
from marl_gem.tools.sandbox.inside.running import EXIT, KILLED, MEMORY, Run, Worker
from marl_gem.tools.sandbox.inside.worker import (
    SHELL,
    become_worker,
    execute,
    read_exactly,
    report_errors,
    run_code,
    run_snippets,
    set_dumpable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Program = Callable[[], None]

GRACE = 0.3
"""Seconds that a session has to answer after it was interrupted, before it is killed and loses its state."""

FILES = ("put", "get", "wipe")
"""Requests that move files."""


class Guard:
    """Serves one request after the other."""

    def __init__(self, control: int, settings: dict[str, Any]) -> None:
        self.control = control
        self.settings = settings
        self.processes = Processes(settings["namespace"], settings["folders"])
        self.worker: Worker | None = None
        self.first_files = self.processes.files()

    def serve(self) -> Program:
        """Serve until the parent hangs up. Returns in a forked worker only: with the program that it is to run."""
        try:
            while True:
                header = read_exactly(self.control, 8)
                request = marshal.loads(read_exactly(self.control, int.from_bytes(header, "little")))
                if request["kind"] in FILES:
                    program = self.move_files(request)
                    if program is not None:
                        return program
                    continue
                if self.worker is None:
                    started = self.start(request)
                    if not isinstance(started, Worker):
                        return started
                    self.worker, self.processes.worker = started, started.pid
                else:
                    self.processes.signal_all(SIGCONT)
                self.carry_out(request, self.worker)
        except EOFError:
            self.processes.signal_all(SIGKILL)
            os._exit(0)

    def start(self, request: dict[str, Any]) -> Worker | Program:
        """Fork a worker. In this process, returns the worker; in the worker, what it is to run."""
        kind, names = request["kind"], ("stdin", "stdout", "stderr")
        session = kind in ("python", "shell")
        pipes = {name: os.pipe() for name in (*names, *(("commands", "done") if session else ()))}
        inward = ("stdin", "commands")
        pid = os.fork()
        if pid == 0:
            paths = request.get("paths", [])
            theirs = {name: ends[0] if name in inward else ends[1] for name, ends in pipes.items()}
            request["stdin"] = b""  # or it would count as the worker's memory
            become_worker(theirs, self.settings)
            if kind in FILES:
                move = {"put": put, "get": lambda: get(paths), "wipe": lambda: wipe(paths)}
                return lambda: report_errors(move[kind])
            if kind == "python":
                return run_snippets
            if kind == "shell":
                return lambda: execute(["/bin/bash", "--norc", "--noprofile", "-c", SHELL, "bash"])
            if request["argv"] is not None:
                return lambda: execute(request["argv"])
            return lambda: run_code(request["code"], request["name"])
        ours = {}
        for name, (read, write) in pipes.items():
            ours[name] = write if name in inward else read
            os.close(read if name in inward else write)
            os.set_blocking(ours[name], False)
        return Worker(pid, ours)

    def carry_out(self, request: dict[str, Any], worker: Worker) -> None:
        """Let a worker do what is asked, within the limits, and report."""
        session = request["kind"] != "run"
        run = Run(self.control, self.processes, worker, request, self.settings["limits"])
        over = run.until_over(time.monotonic() + request["wall"])
        if over is None and session and run.why != MEMORY:
            self.interrupt(request["kind"], worker)
            over = run.until_over(time.monotonic() + GRACE, drain=True)
        lost = session and (over is None or run.status is not None)
        if not session or lost:
            self.processes.signal_all(SIGKILL)
            code = run.reap()
            worker.close()
            self.worker = self.processes.worker = None
        else:
            self.processes.signal_all(SIGSTOP)
            code = run.answer
        if session:
            self.processes.reap_orphans()
        else:
            self.processes.wait_for_end()
        why, last_line = run.why, run.output["stderr"].rstrip().rpartition(b"\n")[2]
        if why == EXIT and code < 0:
            why = KILLED
        elif why == EXIT and code == 1 and last_line.startswith(b"MemoryError"):
            why = MEMORY
        reply(self.control, run.output["stdout"], run.output["stderr"], code, why, lost)

    def move_files(self, request: dict[str, Any]) -> Program | None:
        """Let a process move files, while all others are stopped. Returns in that process only: with what it is to do.

        Files may hold more than programs may write, so a request says how many bytes may come back.
        """
        if request["kind"] == "wipe":
            request["paths"] = self.settings["folders"]
            if self.processes.namespace and self.processes.files() == self.first_files:
                reply(self.control, b"", b"", 0, EXIT, False)
                return None
        started = self.start(request)
        if not isinstance(started, Worker):
            return started
        limits = {**self.settings["limits"], "output": request["most"]}
        run = Run(self.control, self.processes, started, request, limits)
        run.until_over(time.monotonic() + request["wall"])
        if run.status is None:
            os.kill(started.pid, SIGKILL)
        code = run.reap()
        started.close()
        reply(self.control, run.output["stdout"], run.output["stderr"], code, run.why, False)
        return None

    def interrupt(self, kind: str, worker: Worker) -> None:
        """Ask a session to stop what it does: Ctrl-C for Python; a shell loses the commands that it started."""
        if kind == "python":
            os.kill(worker.pid, SIGINT)
            return
        for pid in self.processes.ids():
            if pid != worker.pid:
                try:
                    os.kill(pid, SIGKILL)
                except OSError:
                    continue


def reply(file: int, stdout: bytes, stderr: bytes, code: int, why: int, lost: bool) -> None:
    """Report: two lengths and an exit code (4 bytes each), why it is over and whether state is lost (a byte each)."""
    numbers = [
        len(stdout).to_bytes(4, "little"),
        len(stderr).to_bytes(4, "little"),
        code.to_bytes(4, "little", signed=True),
    ]
    data = memoryview(b"".join([*numbers, bytes([why, lost]), stdout, stderr]))
    while data:
        data = data[os.write(file, data) :]


def main(control: int, settings: dict[str, Any]) -> Program:
    """Serve the parent. Returns in workers, with what they are to run."""
    if settings["namespace"]:
        set_dumpable(0)
    sys.path[:0] = settings["paths"]
    signal(SIGINT, SIG_DFL)  # which process 1 never gets from inside
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.chdir(settings["folders"][0])
    return Guard(control, settings).serve()
