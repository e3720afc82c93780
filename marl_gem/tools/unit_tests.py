"""Programs in responses, judged by tests: as a function, and as a reward that a text can name.

    judgement = await judge(program, [{"input": "1 2", "output": "3"}])
    --wrap 'reward=unit_tests:tests=tests.json'

A test is a dict in one of three forms, as JSON has them:

    {"input": "1 2", "output": "3"}                           standard input, and what the program prints
    {"call": "add", "arguments": [1, 2], "output": 3}         a call of a function, and its result
    {"code": "assert add(1, 2) == 3"}                         assertions about functions of the program

Programs run in the sandbox, see `tools.sandbox.check`: they cannot judge themselves.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from marl_gem.errors import ConfigError
from marl_gem.faults import shown
from marl_gem.tools.sandbox import Case, Limits, Verdict, check
from marl_gem.tools.sandbox.check import Outcome
from marl_gem.tools.sandbox.limits import MIB
from marl_gem.types import read_json

REASONS: dict[Outcome, str] = {
    "passed": "",
    "failed": "wrong answer",
    "error": "run-time error",
    "syntax": "compile error",
    "timeout": "time limit",
    "memory": "memory limit",
    "output": "output limit",
    "killed": "crash",
}
"""Why a program did not pass, by the outcome of `check`."""

Test = Mapping[str, Any]

_FENCE = re.compile(r"^[ \t]*```[ \t]*[\w+-]*[ \t]*$", re.MULTILINE)

_SAME = """
def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
def _same(value, expected):
    value, expected = _plain(value), _plain(expected)
    if isinstance(expected, float) and isinstance(value, (int, float)):
        return abs(value - expected) <= 1e-6 * max(1.0, abs(expected))
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    return value == expected and isinstance(value, bool) == isinstance(expected, bool)
"""
"""Lists and tuples count alike, as JSON has one of them, and floats may differ in the seventh digit."""


class Judgement(NamedTuple):
    """How a program did: how many tests passed of all, the verdicts of those that were run, and why it is not right.

    `reason` is empty for a program that passes all tests, else one of `REASONS` for the first test that did not.
    """

    passed: int
    total: int
    verdicts: list[Verdict]
    reason: str

    @property
    def share(self) -> float:
        """The share of tests that passed, from 0 to 1."""
        return self.passed / self.total


def last_program(text: str) -> str | None:
    """The last block of code between ``` marks in a text, as GEM finds it; None if there is none.

    A block that is not closed reaches to the end of the text.
    """
    marks = list(_FENCE.finditer(text))
    if not marks:
        return None
    start = marks[-2 if len(marks) % 2 == 0 else -1].end()
    end = marks[-1].start() if len(marks) % 2 == 0 else len(text)
    return text[start:end].strip("\n")


async def judge(
    program: str, tests: Sequence[Test], limits: Limits | None = None, every: bool = False, packages: Sequence[str] = ()
) -> Judgement:
    """Test a program, as many at the same time as there are processors.

    Args:
        program: its text.
        tests: one or several, see above.
        limits: what it may use, for each test.
        every: True runs every test; otherwise it stops at the first that does not pass, and tests of functions run
            together, with one time limit for all.
        packages: folders with packages that it may import.

    Raises:
        ConfigError: what should be a test is none.
        SandboxUnavailable: this machine cannot confine programs.
        SandboxError: a sandbox failed; this says nothing about the program.
    """
    prepared = [_prepared(test) for test in tests]
    if not prepared:
        raise ConfigError("a program is judged by one test or more")
    total = len(prepared)
    weights = [1] * total
    codes = [test for test in prepared if isinstance(test, str)]
    if not every and len(codes) > 1:
        prepared = ["\n".join(codes), *(test for test in prepared if not isinstance(test, str))]
        weights = [len(codes)] + [1] * (total - len(codes))
    full = _with_method(program, tests)
    work = functools.partial(check, full, prepared, limits, packages=packages, stop=not every)
    verdicts = await asyncio.get_running_loop().run_in_executor(_executor(), work)
    passed = sum(weight for weight, verdict in zip(weights, verdicts, strict=False) if verdict.passed)
    wrong = [verdict for verdict in verdicts if not verdict.passed]
    return Judgement(passed, total, verdicts, REASONS[wrong[0].outcome] if wrong else "")


async def unit_tests(
    text: str,
    tests: str | Path | Sequence[Test],
    partial: bool = False,
    timeout: float = 10.0,
    memory: int = 512,
) -> float:
    """1 if the last block of code in the text is a program that passes all tests, else 0. For `--wrap reward=`.

    Args:
        text: what is scored.
        tests: a list of tests, or a JSON file with one.
        partial: True gives the share of tests that pass.
        timeout: seconds for each test.
        memory: MiB for each test.

    Raises:
        ConfigError: there are no such tests.
        SandboxError: they could not be run.
    """
    listed = _tests_in(Path(tests)) if isinstance(tests, (str, Path)) else tests
    program = last_program(text)
    if program is None:
        return 0.0
    limits = Limits(wall=timeout, cpu=timeout, memory=memory * MIB)
    judgement = await judge(program, listed, limits, every=partial)
    return judgement.share if partial else float(judgement.passed == judgement.total)


def failures(judgement: Judgement) -> dict[str, int]:
    """How many of the tests that were run ended in which way, in the words of `REASONS`; "passed" for those."""
    return dict(Counter(REASONS[verdict.outcome] or "passed" for verdict in judgement.verdicts))


def _tests_in(path: Path) -> list[Test]:
    try:
        tests = read_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the tests in {path} cannot be read: {error}") from error
    if not isinstance(tests, list):
        raise ConfigError(f"{path} should hold a list of tests")
    return tests


def _prepared(test: Any) -> str | Case:
    """A test as `check` takes it.

    Raises:
        ConfigError: it is none.
    """
    match test:
        case {"input": str(given), "output": str(output)}:
            return Case(given, output)
        case {"code": str(code)}:
            return code
        case {"call": str(name), "arguments": [*arguments], "output": output} if name.isidentifier():
            call = f"{name}({', '.join(map(repr, arguments))})"
            return f"{_SAME}\nassert _same({call}, {output!r}), {f'{call[:200]} should be {output!r:.200}'!r}"
    raise ConfigError(
        f"a test is an object with input and output, with call, arguments and output, or with code, not {shown(test)}"
    )


def _with_method(program: str, tests: Sequence[Test]) -> str:
    """A program whose functions are methods of a class Solution, as on LeetCode, with these as functions."""
    names = sorted({test["call"] for test in tests if "call" in test})
    if not names or not re.search(r"^class Solution\b", program, re.MULTILINE):
        return program
    lines = [f"if {name!r} not in globals(): {name} = Solution().{name}" for name in names]
    return "\n".join([program, *lines])


def _executor() -> ThreadPoolExecutor:
    """Threads that wait for sandboxes; a forked process has its own."""
    pid = os.getpid()
    if pid not in _executors:
        _executors[pid] = ThreadPoolExecutor(os.cpu_count() or 2, thread_name_prefix="marl_gem-tests")
    return _executors[pid]


_executors: dict[int, ThreadPoolExecutor] = {}
