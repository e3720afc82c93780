"""Time and memory of 4,096 episodes at once over HTTP. Prints one line of JSON.

    python benchmarks/live_episodes.py

6,134 episodes of three turns, 18,402 calls in all, with a journal. A server in another process (tests/fake_server.py)
answers each call after one second. `peak_mib` is the most memory that this process ever held, libraries included;
`cpu_s` is its processor time, `seconds` the wall time until the last episode is on disk.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from marl_gem.evaluation import Numbers, Progress, plan_evaluation, run
from marl_gem.llm.http import HTTPModel
from marl_gem.llm.retry import Retrying
from marl_gem.policies import LLMPolicy

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fake_server import serving
from tests.toys import ThreeTurns

LIVE, EPISODES, TURNS, LATENCY = 4096, 6134, 3, 1.0
MOST_MIB, MOST_SECONDS = 200, 19


def main() -> None:
    gc.set_threshold(50_000)  # as the command line does
    seen: list[Progress] = []
    peaks: list[int] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    with serving("--latency", str(LATENCY)) as url, tempfile.TemporaryDirectory() as folder:
        policy = LLMPolicy(Retrying(HTTPModel(url, "tiny", logprobs="off")))
        plan = plan_evaluation(ThreeTurns, policy, Numbers(n=EPISODES))
        before = time.process_time()
        result = run(plan, Path(folder) / "run", concurrency=LIVE, watch=watch)
        cpu = time.process_time() - before
        lines = (Path(folder) / "run" / "episodes.jsonl").read_bytes().splitlines()
    report = {
        "benchmark": "live_episodes",
        "live": LIVE,
        "calls": EPISODES * TURNS,
        "seconds": round(seen[-1].seconds, 1),
        "cpu_s": round(cpu, 1),
        "peak_mib": round(peaks[-1] / 1024),
        "journal_exact": len({json.loads(line)["id"] for line in lines}) == len(lines) == EPISODES,
        "failed": result.report.episodes.failed_ever,
        "load_average": os.getloadavg()[0],
        "limits": {"peak_mib": MOST_MIB, "seconds": MOST_SECONDS},
    }
    met = report["seconds"] <= MOST_SECONDS and report["peak_mib"] <= MOST_MIB and report["journal_exact"]
    print(json.dumps(report | {"met": met}))


if __name__ == "__main__":
    main()
