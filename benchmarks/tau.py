"""What a TAU-bench episode costs, beside what the official code does for it. Prints one line of JSON.

    MARL_GEM_TAU_BENCH=/path/to/data python benchmarks/tau.py

For each domain: "load_ms", reading everything once; "reset_reward_us", a reset and the reward of an episode that played
the task's own calls (without those calls), beside "official_ms", what the official code does for the same: it reads all
files anew for the reset, and for the reward hashes the data, reads all files again, plays the task's calls on them and
hashes that. (The official package is not on the index; its steps are done here with the standard library, in the same
run.) "calls_a_second": tool calls of all test tasks through the env, one response each, CPU time.
"live_mib": memory of 1,000 episodes live at once that have played their task's calls, shared data included.

"import_s": `marl-gem tau import CHECKOUT` for both domains, the start of Python included; the median of three. The
official checkout is not at hand: "import_from" says what stands in for it.

"slowest_text_s": the CPU time of the slowest step in the help desk with a text of 10 MB, of several made to be slow, in
either seat. "slowest_call_s": the same for one call of the calculator.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from marl_gem.scenarios.tau import catalog
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.tools.calls import write_call

FOLDER = Path(os.environ.get("MARL_GEM_TAU_BENCH", "."))
DOMAINS = ("retail", "airline")
LIVE = 1_000
LONG = 10_000_000


def main() -> None:
    if len(sys.argv) > 1:
        print(live_mib(sys.argv[1]))
        return
    if not (FOLDER / "retail").is_dir():
        sys.exit("set MARL_GEM_TAU_BENCH to a folder with TAU-bench's data")
    imported = {"import_s": import_seconds(), "import_from": "its data, written as an official checkout has it"}
    slowest = {"slowest_text_s": slowest_text(), "slowest_call_s": slowest_call()}
    print(json.dumps({"benchmark": "tau", **{name: measure(name) for name in DOMAINS}, **imported, **slowest}))


def measure(name: str) -> dict[str, float]:
    started = time.perf_counter()
    domain = catalog.domain(name)
    domain.database.texts  # noqa: B018 - made when first needed, and part of what a start costs
    load = time.perf_counter() - started
    env = TauEnv(domain)
    ours, official = [], []
    for round_ in range(9):
        ours.append(reset_and_reward(env))
        official.append(official_reset_and_reward(name, round_ % env.tasks))
    best = statistics.median(ours), statistics.median(official)
    memory = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
    return {
        "load_ms": round(load * 1e3, 1),
        "reset_reward_us": round(best[0] * 1e6, 1),
        "official_ms": round(best[1] * 1e3, 1),
        "times_faster": round(best[1] / best[0]),
        "calls_a_second": round(calls_a_second(env)),
        "live_mib": float(memory.stdout),
    }


def play(env: TauEnv, task: int) -> int:
    """Play a task's own calls; how many there were."""
    env.reset(seed=0, options={"task": task})
    env.step({"user": "Hello"})
    made = 0
    for text in gold(env):
        env.step({"assistant": text})
        made += 1
    return made


def gold(env: TauEnv) -> Iterator[str]:
    for action in env.task.actions:
        if action.name not in env.domain.terminating:
            yield write_call(action.name, action.arguments)


def reset_and_reward(env: TauEnv) -> float:
    """Seconds for a reset and, after the calls, for the reward; the mean over all tasks, goals known."""
    seconds = 0.0
    for task in range(env.tasks):
        env.domain.goal("test", task)
        started = time.perf_counter()
        env.reset(seed=0, options={"task": task})
        seconds += time.perf_counter() - started
        play(env, task)
        started = time.perf_counter()
        verdict = env.domain.judge("test", task, env.session, list(env.task.outputs))
        seconds += time.perf_counter() - started
        assert verdict.reward == 1.0
    return seconds / env.tasks


def official_reset_and_reward(name: str, task: int) -> float:
    """Seconds for what the official code does: two loads, two hashes of everything, the task's calls between."""
    started = time.perf_counter()
    read(name)
    fingerprint(read(name))
    state = read(name)
    fingerprint(state)
    seconds = time.perf_counter() - started
    return seconds - timed(lambda: read(name))  # of the three loads here, the official code makes two


def read(name: str) -> dict[str, Any]:
    return {file.stem: load(file) for file in sorted((FOLDER / name / "data").glob("*.json"))}


def fingerprint(state: dict[str, Any]) -> str:
    """The official way: everything is made hashable, recursively, and its text hashed."""
    return hashlib.sha256(str(hashable(state)).encode()).hexdigest()


def hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, hashable(part)) for key, part in sorted(value.items()))
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return value


def timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def calls_a_second(env: TauEnv) -> float:
    rates = []
    for _ in range(5):
        made, seconds = 0, 0.0
        for task in range(env.tasks):
            env.reset(seed=0, options={"task": task})
            env.step({"user": "Hello"})
            texts = list(gold(env))
            started = time.process_time()
            for text in texts:
                env.step({"assistant": text})
            seconds += time.process_time() - started
            made += len(texts)
        rates.append(made / seconds)
    return statistics.median(rates)


def import_seconds() -> float:
    """Seconds that the command takes; what it writes must be what the checkout was made of."""
    with tempfile.TemporaryDirectory() as folder:
        checkout, into = Path(folder) / "tau-bench", Path(folder) / "imported"
        for name in DOMAINS:
            write_checkout(FOLDER / name, checkout / "tau_bench" / "envs" / name)
        command = [sys.executable, "-m", "marl_gem.cli", "tau", "import", str(checkout), "--into", str(into)]
        seconds = [timed(lambda: subprocess.run(command, capture_output=True, check=True)) for _ in range(3)]
        for name in DOMAINS:
            for file in (FOLDER / name).rglob("*.json"):
                assert json.loads((into / name / file.relative_to(FOLDER / name)).read_text()) == load(file), file
    return round(statistics.median(seconds), 2)


def write_checkout(source: Path, target: Path) -> None:
    """One domain in the official layout: tasks and tools as Python files, the rest as it is."""
    (target / "tools").mkdir(parents=True)
    (target / "data").symlink_to((source / "data").resolve())
    (target / "wiki.md").symlink_to((source / "policy.md").resolve())
    for file in source.glob("tasks_*.json"):
        tasks = ",\n".join(f"    Task({fields(task)})" for task in load(file))
        (target / f"{file.stem}.py").write_text(f"from tau_bench.types import Action, Task\n\nTASKS = [\n{tasks}\n]\n")
    schemas = load(source / "tools.json")
    for number, schema in enumerate(schemas):
        text = f"class Tool{number}(Tool):\n    @staticmethod\n    def get_info():\n        return {schema!r}\n"
        (target / "tools" / f"tool_{number}.py").write_text(text)
    names = ", ".join(f"Tool{number}" for number in range(len(schemas)))
    (target / "tools" / "__init__.py").write_text(f"ALL_TOOLS = [{names}]\n")


def fields(task: dict[str, Any]) -> str:
    actions = ", ".join(f"Action(name={action['name']!r}, kwargs={action['kwargs']!r})" for action in task["actions"])
    return ", ".join(
        [f"{name}={value!r}" for name, value in task.items() if name != "actions"] + [f"actions=[{actions}]"]
    )


def load(file: Path) -> Any:
    return json.loads(file.read_text())


def slowest_text() -> float:
    parts = (
        "word ",
        STOP,
        STOP[:-3],
        "<tool_response>",
        "<tool_call>",
        write_call("look_up", {"name": "Ann"}),
        "[",
        "9",
    )
    texts = [part * (LONG // len(part)) for part in parts] + [write_call("look_up", {"name": "x" * LONG})]
    env = TauEnv(catalog.domain("desk"), user_reward="fidelity")
    seconds = []
    for text in texts:
        for before in ({}, {"user": "Hello"}):
            env.reset(seed=0)
            if before:
                env.step(before)
            started = time.process_time()
            env.step({env.acting[0]: text})
            seconds.append(time.process_time() - started)
    return round(max(seconds), 2)


def slowest_call() -> float:
    expressions = ("9**9**9**9", "*".join(["9**9999"] * 1000), "+".join(["9**49000"] * 5000), "1+" * 49_000 + "1")
    domain, seconds = catalog.domain("retail-mini"), []
    for expression in expressions:
        started = time.process_time()
        domain.call(domain.session(), "calculate", {"expression": expression})
        seconds.append(time.process_time() - started)
    return round(max(seconds), 2)


def live_mib(name: str) -> float:
    """Resident memory that 1,000 live episodes and the shared data take, in a process of its own."""
    before = resident()
    first = TauEnv(catalog.domain(name))
    envs = [first, *(TauEnv(first.domain) for _ in range(LIVE - 1))]
    for number, env in enumerate(envs):
        play(env, number % env.tasks)
    gc.collect()
    return round((resident() - before) / 2**20, 1)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
