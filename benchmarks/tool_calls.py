"""Agents that learn when a call of a tool pays: ReBN, GRPO and RLOO from the same warm starts.

    python benchmarks/tool_calls.py [--recipe calculator] [--seeds 3] [--only rebn,grpo,rloo] [--set NAME=VALUE ...]

Half of the questions of `game:Arithmetic-v0` can be known by heart, the others need the calculator, and every call
costs. For each algorithm and seed: the success rate before and after training, on questions that are not trained on;
the share of first responses to easy and to hard questions that call, in the same episodes; the mean return, in which
calls are paid. For a seed all algorithms begin with the same warm start. A line for each run goes to standard error as
it ends; at the end one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from marl_gem.overrides import apply_overrides
from marl_gem.trainers.config import parse, read
from marl_gem.trainers.imitation import warm_started
from marl_gem.trainers.measurement import measure
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.sections import TrainConfig
from marl_gem.types import Episode
from marl_gem.views import as_text

ALGORITHMS = {
    "rebn": "algorithm.options.group_by=agent",
    "grpo": "algorithm.name=grpo",
    "rloo": "algorithm.name=rloo",
}


def configuration(recipe: str, seed: int, *changes: str) -> TrainConfig:
    return parse(apply_overrides(read(recipe), [f"seed={seed}", *changes]), "benchmark")


def warm_start(recipe: str, seed: int, folder: Path, *changes: str) -> Path:
    """The folder of a run that has imitated, and had no updates."""
    sizes = ("training.updates=0", "evaluation.final_episodes=1", "phases=[]")
    run = TrainingRun.start(folder, configuration(recipe, seed, *changes, *sizes))
    for _ in run.work():
        pass
    return folder


def call_shares(episodes: Iterable[Episode]) -> dict[str, float]:
    """For each grade of questions, of all agents and of each, the share of first responses that call a tool."""
    found: dict[str, list[bool]] = {}
    for episode in episodes:
        grade = ""
        for agent in dict.fromkeys(turn.agent for turn in episode.turns):
            first = episode.turns_of(agent)[0]
            grade = grade or ("hard" if "*" in as_text(first.observation) else "easy")
            for key in (grade, f"{grade}/{agent}"):
                found.setdefault(key, []).append("tool_calls" in first.info)
    return {key: round(fmean(called), 4) for key, called in sorted(found.items())}


def train(config: TrainConfig) -> dict[str, Any]:
    begun = time.perf_counter()
    loop, count = warm_started(config), config.evaluation.final_episodes
    before, _ = measure(loop, count, "before")
    while loop.updates < config.training.updates:
        loop.update()
    after, episodes = measure(loop, count, "after", analyse=True)
    return {
        "before": round(before.score, 4),
        "after": round(after.score, 4),
        "return": round(after.mean_return or 0.0, 4),
        "calls": call_shares(episodes),
        "exact": next(iter(after.analyses.values()), {}),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="calculator", choices=["calculator", "calculators"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ALGORITHMS), help="algorithms, with commas between them")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seeds):
            base = warm_start(arguments.recipe, seed, Path(folder) / str(seed), *arguments.set)
            for algorithm in arguments.only.split(","):
                changes = (*arguments.set, ALGORITHMS[algorithm], f"policy.start_from={base}")
                row = {"algorithm": algorithm, "seed": seed}
                row |= train(configuration(arguments.recipe, seed, *changes))
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "tool_calls", "recipe": arguments.recipe, "rows": rows}))


if __name__ == "__main__":
    main()
