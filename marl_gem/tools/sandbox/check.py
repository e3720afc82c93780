"""Programs are judged from outside: by what they print, or by tests that run in another sandbox.

A program that prints "passed", exits with 0, replaces `==` or looks for the tests gains nothing: expected output is
compared in this process; tests call the program's functions through a channel that carries plain data alone, and their
verdict is the exit code of a process in another sandbox.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

from marl_gem.errors import SandboxError
from marl_gem.tools.sandbox.connection import Backend, Connection
from marl_gem.tools.sandbox.inside.tests import FAILED, NO_PROGRAM, PASSED
from marl_gem.tools.sandbox.limits import Completed, Ended, Limits
from marl_gem.tools.sandbox.sandbox import Sandbox, StartedSandbox, run_request

Outcome = Literal["passed", "failed", "error", "syntax", "timeout", "memory", "output", "killed"]

NO_PYTHON = ("SyntaxError", "IndentationError", "TabError")


class Case(NamedTuple):
    """A test of a program by its input and output. White space at the ends of lines and of the text does not count."""

    stdin: str
    stdout: str


class Verdict(NamedTuple):
    """What came of a test.

    `outcome` is "passed"; "failed": another output, or an assertion that does not hold; "error": the program or the
    test raised; "syntax": the program is no Python; "timeout", "memory", "output": a limit was exceeded; "killed": by a
    signal. `detail` says more, for people and models.
    """

    outcome: Outcome
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


def check(
    code: str,
    tests: Iterable[str | Case],
    limits: Limits | None = None,
    backend: Backend = "bubblewrap",
    packages: Sequence[str | Path] = (),
    stop: bool = False,
) -> list[Verdict]:
    """Test a program, with each test from a fresh start.

    Args:
        code: the program, in Python.
        tests: each is a `Case`; or Python code with assertions, which calls functions of the program by their names.
            These take and return plain data: None, numbers, texts, bytes, lists, tuples, sets, dicts. An argument that
            a function changes stays unchanged for the test.
        limits: what the program may use, for each test.
        backend, packages: as of `Sandbox`.
        stop: whether to stop at the first test that does not pass.

    Returns:
        A verdict for each test that was run.

    Raises:
        SandboxUnavailable: this machine cannot confine programs.
        SandboxError: a sandbox failed; this says nothing about the program.
    """
    sandbox = Sandbox(limits, backend, packages)
    started: StartedSandbox | None = None
    verdicts = []
    try:
        for test in tests:
            if isinstance(test, Case):
                started = _emptied(sandbox, started)
                verdicts.append(_by_output(started, code, test))
            else:
                verdicts.append(_by_code(sandbox, code, test))
            if stop and not verdicts[-1].passed:
                break
    finally:
        if started is not None:
            started.close()
    return verdicts


def _emptied(sandbox: Sandbox, started: StartedSandbox | None) -> StartedSandbox:
    """A sandbox without files and processes: this one, if all that was left there can be removed."""
    if started is not None:
        try:
            started.wipe()
        except SandboxError:
            started.close()
        else:
            return started
    return sandbox.start()


def _by_output(sandbox: StartedSandbox, code: str, case: Case) -> Verdict:
    completed = sandbox.run(code, case.stdin)
    last_line = completed.stderr.rstrip().rpartition("\n")[2]
    if completed.ended != "exit" or completed.exit_code != 0:
        is_syntax = last_line.startswith(NO_PYTHON)
        return Verdict("syntax" if is_syntax else _ending(completed.ended), last_line)
    if _lines(completed.stdout) == _lines(case.stdout):
        return Verdict("passed")
    return Verdict("failed", f"printed {completed.stdout[:200]!r}, expected {case.stdout[:200]!r}")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _ending(ended: Ended) -> Outcome:
    return "error" if ended == "exit" else ended


def _by_code(sandbox: Sandbox, code: str, test: str) -> Verdict:
    """Run program and test side by side. When either is over, its end of the channel closes, and so the other ends."""
    limits, theirs, ours = sandbox.limits, *socket.socketpair()
    with closing(theirs), closing(ours):
        program = Connection(limits, sandbox.backend, sandbox.view, theirs)
        try:
            tester = Connection(Limits(wall=limits.wall + 1), sandbox.backend, sandbox.view, ours)
        except BaseException:
            program.close()
            raise
    sides = {
        program: run_request(limits, _harness("program"), code),
        tester: run_request(tester.limits, _harness("tests"), test),
    }
    with ThreadPoolExecutor(2) as threads:
        running = {threads.submit(connection.ask, request): connection for connection, request in sides.items()}
        try:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                running[future].close()
            completed = {connection: future.result() for future, connection in running.items()}
        finally:
            program.close()
            tester.close()
    return _verdict(completed[program], completed[tester])


def _verdict(program: Completed, tests: Completed) -> Verdict:
    detail = tests.stderr.strip()
    if tests.ended == "exit" and tests.exit_code == PASSED:
        return Verdict("passed")
    if tests.ended == "exit" and tests.exit_code == FAILED:
        return Verdict("failed", detail)
    if program.ended != "exit":
        return Verdict(_ending(program.ended), detail)
    if tests.ended == "exit" and tests.exit_code == NO_PROGRAM:
        return Verdict("syntax" if detail.startswith(NO_PYTHON) else "error", detail)
    return Verdict(_ending(tests.ended), detail)


@functools.cache
def _harness(name: str) -> str:
    """Code that makes the modules of inside/ that one side needs, and calls `main` of the last."""
    folder, package = Path(__file__).with_name("inside"), __name__.rpartition(".")[0]
    lines = ["import sys"]
    for module in ("plain", name):
        text = (folder / f"{module}.py").read_text("utf-8")
        full = f"{package}.inside.{module}"
        lines += [f"sys.modules[{full!r}] = type(sys)({full!r})"]
        lines += [f"exec(compile({text!r}, {f'<{module}>'!r}, 'exec'), sys.modules[{full!r}].__dict__)"]
    lines += [f"run = sys.modules[{full!r}].main", "del sys", "run()"]
    return "\n".join(lines)
