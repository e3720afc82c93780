"""`rg:` against ReasoningGym itself: an item and its score of each of the 105 names, in one run.

    python benchmarks/reasoning.py [--rounds 3]

ReasoningGym generates and scores in this process; `rg:` plays the episode, with both in a confined worker. A round is
one item of every name, so the slow generators count as they do in a mixture of all tasks; `median_ms` is the time of a
name in the middle, of ReasoningGym and of `rg:`, where an item takes less time than an episode.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time

import marl_gem
from marl_gem.scenarios.tasks.reasoning import FINITE, SIZE, highest_levels


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="How many items of each name.")
    rounds = parser.parse_args().rounds

    import reasoning_gym

    names = sorted(highest_levels())
    theirs = {name: reasoning_gym.create_dataset(name, seed=0, size=SIZE) for name in names}
    ours = {name: marl_gem.make(f"rg:{name}") for name in names}
    for name in names:  # what is loaded at the first use does not count
        theirs[name][0]
        ours[name].reset(seed=0)
        ours[name].step({"solver": "1"})
    seconds = {name: [0.0, 0.0] for name in names}
    for seed in range(1, rounds + 1):
        for name in names:
            began = time.perf_counter()
            entry = theirs[name][seed % SIZE if name in FINITE else seed]
            with contextlib.suppress(Exception):  # some raise on a text that is no answer
                theirs[name].score_answer(entry["answer"] or "1", entry)
            middle = time.perf_counter()
            env = ours[name]
            env.reset(seed=seed)
            env.step({"solver": env.unwrapped.written(entry["answer"] or "1")})  # type: ignore[attr-defined]
            seconds[name][0] += middle - began
            seconds[name][1] += time.perf_counter() - middle
    total = [sum(both[side] for both in seconds.values()) for side in (0, 1)]
    print(
        json.dumps(
            {
                "benchmark": "reasoning_gym",
                "items": rounds * len(names),
                "reasoning_gym_per_second": round(rounds * len(names) / total[0], 1),
                "rg_per_second": round(rounds * len(names) / total[1], 1),
                "ratio": round(total[0] / total[1], 3),
                "median_ms": [
                    round(1000 * statistics.median(both[side] for both in seconds.values()) / rounds, 3)
                    for side in (0, 1)
                ],
            }
        )
    )


if __name__ == "__main__":
    main()
