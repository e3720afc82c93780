"""A game that one seat wins with probability p: what one normalization over both seats costs.

    python benchmarks/uneven_odds.py [--batches 2000] [--episodes 128]

Two seats play for +1 and -1. Each takes one of two actions, with probability 1/2 each, and its second action makes it
win a little more often; otherwise seat 0 wins with probability p. The policy gradient of each batch is computed from
the trainer's own advantages, normalized per agent and over all, on the same episodes. `noise` is the variance of that
gradient over its squared mean, `factor` how many times as large that is with one normalization: so many times the
episodes give the same certainty of the direction. Theory says 1 / (4 p (1 - p)). One JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
from statistics import fmean, pvariance

from marl_gem.trainers.algorithms.normalization import normalize

EDGE = 0.04
"""How much likelier the second action makes a win."""


def gradients(p: float, batches: int, episodes: int) -> dict[str, list[list[float]]]:
    """For each normalization and seat the derivative by the logit of the second action, batch by batch."""
    rng = random.Random(0)
    found: dict[str, list[list[float]]] = {"agent": [[], []], "all": [[], []]}
    for _ in range(batches):
        returns, actions = [], []
        for _ in range(episodes):
            taken = [rng.random() < 0.5, rng.random() < 0.5]
            won = 1.0 if rng.random() < p + EDGE * (taken[0] - taken[1]) else -1.0
            returns += [won, -won]
            actions += taken
        for name, seats in found.items():
            groups = [(f"player_{index % 2}",) if name == "agent" else ("all",) for index in range(len(returns))]
            advantages, _ = normalize(returns, groups)
            scores = [advantage * (taken - 0.5) for advantage, taken in zip(advantages, actions, strict=True)]
            for seat in (0, 1):
                seats[seat].append(fmean(scores[seat::2]))
    return found


def noise(seats: list[list[float]]) -> float:
    """The mean over the seats of variance / mean^2."""
    return fmean(pvariance(values) / fmean(values) ** 2 for values in seats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--episodes", type=int, default=128)
    arguments = parser.parse_args()
    rows = []
    for p in (0.5, 0.6, 0.8, 0.9, 0.95):
        found = {name: noise(seats) for name, seats in gradients(p, arguments.batches, arguments.episodes).items()}
        factor = {"factor": round(found["all"] / found["agent"], 3), "predicted": round(1 / (4 * p * (1 - p)), 3)}
        rows.append({"p": p, **{f"noise/{name}": round(value, 2) for name, value in found.items()}, **factor})
    print(json.dumps({"benchmark": "uneven_odds", "episodes": arguments.episodes, "rows": rows}))


if __name__ == "__main__":
    main()
