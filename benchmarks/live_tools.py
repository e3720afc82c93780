"""Time and memory of 1,000 episodes at once whose agents call tools. Prints one line of JSON.

    python benchmarks/live_tools.py

In Kuhn poker both agents have the calculator, a search over 10,000 passages, a tool that takes a thread for 10 ms and
a tool with a state of its own; in each of its turns an agent calls all four and then moves. Every response takes half a
second, so that all episodes are live at the same time. `peak_mib` is the most memory that this process ever held,
libraries included. No tool starts a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path

import marl_gem
from marl_gem.policies import Info
from marl_gem.rollout import Job, collect
from marl_gem.tools import tool
from marl_gem.tools.calls import write_call
from marl_gem.types import Observation, Response, Role
from marl_gem.wrappers import ToolEnv

EPISODES, LATENCY, MOST_MIB = 1000, 0.5, 600


@tool
def wait(seconds: float) -> str:
    """Wait in a thread."""
    time.sleep(min(seconds, 1.0))
    return "waited"


class Notes:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> str:
        """Write a line, and show all.

        Args:
            line: what to write.
        """
        self.lines.append(line)
        return "\n".join(self.lines)


class Caller:
    """Calls all tools, then takes the first legal action."""

    name = "caller"

    def __init__(self) -> None:
        self._called = False

    def agent(self, agent_id: str, role: Role, seed: int) -> Caller:
        return Caller()

    async def act(self, observation: Observation, info: Info) -> Response:
        await asyncio.sleep(LATENCY)
        self._called = not self._called
        if not self._called:
            return Response(info["legal_actions"][0])
        calls = (
            write_call("calculator", {"expression": "3 ** 20 % 1000"}),
            write_call("search", {"query": "word7 word77"}),
            write_call("wait", {"seconds": 0.01}),
            write_call("Notes", {"line": "a note"}),
        )
        return Response("".join(calls))


def write_corpus(path: Path, passages: int = 10_000) -> None:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(passages):
            text = " ".join(f"word{rng.randrange(5000)}" for _ in range(100))
            file.write(json.dumps({"title": f"passage {number}", "text": text}) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MARL_GEM_CACHE"] = folder
        corpus = Path(folder) / "corpus.jsonl"
        write_corpus(corpus)
        tools = ["calculator", f"search:corpus={corpus}", wait, tool(Notes)]
        jobs = [Job(seed, Caller()) for seed in range(EPISODES)]
        ToolEnv(marl_gem.make("game:KuhnPoker-v0"), tools)  # builds the index
        started, cpu = time.perf_counter(), time.process_time()
        episodes = collect(lambda: ToolEnv(marl_gem.make("game:KuhnPoker-v0"), tools), jobs, concurrency=EPISODES)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    calls = [call for episode in episodes for turn in episode.turns for call in turn.info.get("tool_calls", ())]
    report = {
        "benchmark": "live_tools",
        "live": EPISODES,
        "calls": len(calls),
        "failed_calls": sum(bool(call["error"]) for call in calls),
        "failed_episodes": sum(episode.error is not None for episode in episodes),
        "seconds": round(seconds, 1),
        "cpu_s": round(cpu, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "load_average": os.getloadavg()[0],
        "limits": {"peak_mib": MOST_MIB},
    }
    print(json.dumps(report | {"met": report["peak_mib"] <= MOST_MIB and not report["failed_calls"]}))


if __name__ == "__main__":
    main()
