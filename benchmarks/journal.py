"""What it takes to resume a finished run of 200,000 episodes and to report on it. Prints one line of JSON.

    python benchmarks/journal.py

The episodes are of Kuhn poker by random players, 1.5 KB each, every line with its checksum. Three processes do one
thing each: "plain" decodes every line with `json.loads` and forgets it, the yardstick of this machine; "resumed" is
`evaluate(..., resume=True)` of the run, with nothing left to play, until report and pictures are on disk; "listed"
reads the summaries and totals that the viewer shows. `seconds` is the processor time of a process, from its first
import to its end, so that other work on the machine counts little; `peak_mib` is the most memory that it held.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPISODES, DISTINCT = 200_000, 500
MOST_SECONDS, MOST_MIB = 20.0, 500


def main() -> None:
    report: dict[str, Any] = {"benchmark": "journal", "episodes": EPISODES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        in_a_process(lambda: write(folder))
        report["megabytes"] = (folder / "episodes.jsonl").stat().st_size // 10**6
        for step in (plain, resumed, listed):
            report[step.__name__] = in_a_process(lambda step=step: step(folder))  # type: ignore[misc]
    for step in ("resumed", "listed"):
        report[step]["ratio"] = round(report[step]["seconds"] / report["plain"]["seconds"], 2)
    report["limits"] = {"seconds": MOST_SECONDS, "peak_mib": MOST_MIB}
    report["met"] = report["resumed"]["seconds"] < MOST_SECONDS and report["resumed"]["peak_mib"] < MOST_MIB
    print(json.dumps(report))


def write(folder: Path) -> None:
    """A finished run, without its report. The episodes are 500 that were played, with the ids and seeds of others."""
    import msgspec

    from marl_gem.evaluation.result_store import ResultStore
    from marl_gem.rollout import collect
    from marl_gem.runs.journal import Journal
    from marl_gem.types import to_json

    plan = kuhn_poker()
    ResultStore.open(plan, folder, resume=False)
    slots = list(plan.slots.values())
    played = collect(plan.scenario.make, [plan.job(slot) for slot in slots[:DISTINCT]])
    Journal(folder / "episodes.jsonl").append(
        to_json(msgspec.structs.replace(played[slot.index % DISTINCT], id=slot.id, seed=slot.seed)).encode()
        for slot in slots
    )


def plain(folder: Path) -> None:
    with (folder / "episodes.jsonl").open("rb") as file:
        for line in file:
            json.loads(line)


def resumed(folder: Path) -> None:
    from marl_gem.evaluation import run

    assert run(kuhn_poker(), folder, resume=True).report.episodes.counted == EPISODES


def listed(folder: Path) -> None:
    from marl_gem.runs.reader import RunReader
    from marl_gem.viewer.overview import overview

    assert overview(RunReader(folder).entries()).episodes == EPISODES


def kuhn_poker() -> Any:
    from marl_gem.evaluation import Numbers, plan_evaluation
    from marl_gem.policies import RandomPolicy

    return plan_evaluation("game:KuhnPoker-v0", RandomPolicy(), Numbers(n=EPISODES))


def in_a_process(step: Callable[[], None]) -> dict[str, float]:
    """The processor time and the peak memory of a step in a process for itself."""
    begun = time.perf_counter()
    child = os.fork()
    if not child:
        try:
            step()
            os._exit(0)
        finally:
            os._exit(1)
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit("a step failed")
    seconds = used.ru_utime + used.ru_stime
    wall = time.perf_counter() - begun
    return {"seconds": round(seconds, 2), "wall": round(wall, 2), "peak_mib": round(used.ru_maxrss / 1024)}


if __name__ == "__main__":
    main()
