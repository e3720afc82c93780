"""How long programs, snippets and commands take in a sandbox, beside bare Python. Prints one line of JSON.

    python benchmarks/sandbox.py

"fresh" is `Sandbox.run`, "bare" is the same Python with the same options and no sandbox; they take turns. "warm" are
calls of sessions. "a second" is with two threads. "grown" is by how much this process's memory grew while a program
wrote without end. Times are milliseconds by the clock, as medians and as the least ("best", which a busy machine
disturbs less), and of CPU time ("cpu") with that of all processes that were started.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from marl_gem.tools.sandbox import PythonSession, Sandbox, ShellSession
from marl_gem.tools.sandbox.confinement import interpreter

ROUNDS, CALLS, RUNS = 40, 400, 120
FRESH_LIMIT_MS, PYTHON_LIMIT_MS, SHELL_LIMIT_MS, RATE_LIMIT = 15, 3, 2, 60


def main() -> None:
    sandbox = Sandbox()
    bare, fresh = in_turns(lambda: subprocess.run(bare_command(), capture_output=True), lambda: sandbox.run("print(1)"))
    report = {
        "benchmark": "sandbox",
        **{f"bare_{name}": value for name, value in bare.items()},
        **{f"fresh_{name}": value for name, value in fresh.items()},
        "fresh_over_bare_ms": round(fresh["ms"] - bare["ms"], 1),
        "fresh_over_bare_best_ms": round(fresh["best_ms"] - bare["best_ms"], 1),
        "fresh_over_bare_limit_ms": FRESH_LIMIT_MS,
        **asyncio.run(sessions()),
        "fresh_a_second": rate(sandbox),
        "fresh_a_second_limit": RATE_LIMIT,
        "grown_mib": grown(sandbox),
    }
    print(json.dumps(report))


def bare_command() -> list[str]:
    return [interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c", "print(1)"]


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def in_turns(*actions: Callable[[], object]) -> list[dict[str, float]]:
    """The milliseconds of each action, by the clock and of CPU time."""
    clock: list[list[float]] = [[] for _ in actions]
    cpu: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS):
        for index, action in enumerate(actions):
            started, used = time.perf_counter(), cpu_seconds()
            action()
            clock[index].append(time.perf_counter() - started)
            cpu[index].append(cpu_seconds() - used)
    return [
        {"ms": milliseconds(times), "best_ms": round(1000 * min(times), 1), "cpu_ms": milliseconds(used)}
        for times, used in zip(clock, cpu, strict=True)
    ]


def milliseconds(seconds: list[float]) -> float:
    return round(1000 * statistics.median(seconds), 2)


async def sessions() -> dict[str, float]:
    """The median of a call, and of a reset."""
    report: dict[str, float] = {}
    calls = (("python", PythonSession(), "1 + 1", PYTHON_LIMIT_MS), ("shell", ShellSession(), "true", SHELL_LIMIT_MS))
    for name, session, code, limit in calls:
        async with session:
            await session.run(code)
            times, resets = [], []
            for _ in range(CALLS):
                started = time.perf_counter()
                await session.run(code)
                times.append(time.perf_counter() - started)
            for _ in range(10):
                started = time.perf_counter()
                await session.reset()
                await session.run(code)
                resets.append(time.perf_counter() - started)
            report |= {f"warm_{name}_ms": milliseconds(times), f"warm_{name}_limit_ms": limit}
            report[f"warm_{name}_best_ms"] = round(1000 * min(times), 2)
            report[f"reset_and_{name}_ms"] = milliseconds(resets)
    return report


def rate(sandbox: Sandbox) -> float:
    """Fresh runs a second, with two threads."""
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: sandbox.run("print(1)"), range(RUNS)))
    return round(RUNS / (time.perf_counter() - started), 1)


def grown(sandbox: Sandbox) -> float:
    """MiB by which the most memory that this process has used grows while a program writes without end."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sandbox.run("while True: print('x' * 1000)").ended == "output"
    return round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1)


if __name__ == "__main__":
    main()
