"""Kuhn poker with lopsided pay: what each algorithm makes of rewards in different units.

    python benchmarks/lopsided.py [--seeds 3] [--updates 100] [--episodes 256] [--only rebn/agent,rae] [--pay r]
                                  [--set training.learning_rate=5e-4 ...]

player_1 is paid factor * chips + offset, which changes none of its best replies and no equilibrium: a sound learner
does not notice. One transformer holds both seats and learns by self-play. The figure is the exploitability in true
chips a hand (0 at an equilibrium, 0.458 for uniform play), as a mean over the policies after the last ten updates.
Predictions are those of tables in place of the transformer, with the same updates, episodes, pull and momentum
(`kuhn_tables.py`), where these know the algorithm. `noise` is 1 + d^2 of per-agent ReBN's metric `noise_gain`, the mean
of both seats over the run. A line for each cell goes to standard error as it is finished; at the end one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import fmean
from typing import Any

from kuhn import strategy
from kuhn_tables import Settings, predict

from marl_gem.overrides import apply_overrides
from marl_gem.scenarios.games.kuhn_analysis import exploitability
from marl_gem.trainers.config import parse, read
from marl_gem.trainers.imitation import warm_started
from marl_gem.trainers.schedule import SHARED_POLICY
from marl_gem.trainers.sections import TrainConfig

ALGORITHMS = {
    "rebn/agent": "algorithm.options.group_by=agent",
    "rebn/all": "algorithm.options.group_by=all",
    "rebn/none": "algorithm.options.group_by=none",
    "rae": "algorithm.name=rae",
    "rloo": "algorithm.name=rloo",
    "grpo": "algorithm.name=grpo",
    "reinforce_pp": "algorithm.name=reinforce_pp",
    "ppo": 'algorithm={name = "ppo", options = {group_by = "all"}}',
}
PREDICTED = {"rebn/agent": "agent", "rebn/all": "all", "rebn/none": "none", "rae": "rae"}
PAYS = {"r": (1.0, 0.0), "r + 5": (1.0, 5.0), "10 r": (10.0, 0.0), "10 r + 50": (10.0, 50.0)}
MEASURED = ("r", "10 r + 50")
"""The pays that are measured by default."""

SETTINGS = (
    "training.opponent_pool_fraction=0",
    "training.momentum=0",
    "training.reference_every=0",
    "training.learning_rate=1e-3",
    "training.kl=0.3",
    "training.kl_final=0.05",
)


def configuration(algorithm: str, pay: str, seed: int, *changes: str) -> TrainConfig:
    factor, offset = PAYS[pay]
    wrappers = [] if pay == "r" else [f"reward_scale={factor:g},agents=player_1,offset={offset:g}"]
    settings = [f"seed={seed}", f"wrappers={json.dumps(wrappers)}", ALGORITHMS[algorithm], *SETTINGS, *changes]
    return parse(apply_overrides(read("kuhn"), settings), "benchmark")


def train(config: TrainConfig) -> dict[str, float]:
    loop = warm_started(config)
    llm = loop.learners[SHARED_POLICY].sampler.policy.llm
    found, gains = [], []
    while loop.updates < config.training.updates:
        metrics, _ = loop.update()
        gains += [value for name, value in metrics.items() if name.startswith("noise_gain/")]
        if loop.updates > config.training.updates - 10:
            found.append(exploitability(strategy(llm)[0]))
    return {"exploitability": round(fmean(found), 4), **({"noise": round(fmean(gains), 3)} if gains else {})}


def cell(algorithm: str, pay: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One algorithm and one pay: measured with every seed, and predicted."""
    begun, factor, offset = time.perf_counter(), *PAYS[pay]
    sizes = (f"training.updates={arguments.updates}", f"training.episodes={arguments.episodes}")
    runs = [train(configuration(algorithm, pay, seed, *sizes, *arguments.set)) for seed in range(arguments.seeds)]
    values = [run["exploitability"] for run in runs]
    row: dict[str, Any] = {"algorithm": algorithm, "pay": pay, "mean": round(fmean(values), 4), "seeds": values}
    if algorithm in PREDICTED:
        settings = Settings(
            updates=arguments.updates,
            episodes=arguments.episodes,
            momentum=0.0,
            learning_rate=0.1,
            normalization=PREDICTED[algorithm],  # type: ignore[arg-type]
            factor=factor,
            offset=offset,
        )
        row["predicted"] = predict(settings, 3)["last"]
    if "noise" in runs[0]:
        row["noise"] = fmean(run["noise"] for run in runs)
    return {**row, "seconds": round(time.perf_counter() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--only", default=",".join(ALGORITHMS), help="algorithms, with commas between them")
    parser.add_argument("--pay", action="append", choices=list(PAYS), help="only this pay; may be given again")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    rows = []
    for pay in arguments.pay or MEASURED:
        for algorithm in arguments.only.split(","):
            rows.append(cell(algorithm, pay, arguments))
            row = rows[-1]
            predicted = f"{row['predicted']:.3f}" if "predicted" in row else "-"
            line = f"{pay:<10} {algorithm:<13} measured {row['mean']:.3f} {row['seeds']}  tables {predicted}"
            print(f"{line}  {row['seconds']} s", file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "lopsided", "updates": arguments.updates, "rows": rows}))


if __name__ == "__main__":
    main()
