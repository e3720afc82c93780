"""Does normalizing returns per agent matter? The same runs three ways, three seeds each.

    python benchmarks/normalization.py [--seeds 3] [--updates-kuhn 100] [--updates-tictactoe 60] [--updates-desk 60]
                                       [--only kuhn]

Prints one JSON line, with one row for each game and normalization: "agent" is per-agent ReBN, "all" one
normalization over both seats, "none" the returns as they are. The figures are: for TicTacToe the score against
random play (higher is better; 400 games a seat), for Kuhn poker the exploitability of the last and of the average
policy (lower is better), for the help desk the success of user and assistant together on 200 tasks that were not
trained on. There the user is rewarded for its fidelity, so that the two seats' returns differ in mean and spread,
and it joins after a third of the updates. A small table for people goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean

from marl_gem.overrides import apply_overrides
from marl_gem.trainers.config import parse, read
from marl_gem.trainers.imitation import warm_started
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.measurement import measure
from marl_gem.trainers.sections import TrainConfig

NORMALIZATIONS = ("agent", "all", "none")
KUHN = (
    "training.opponent_pool_fraction=0.5",
    "training.momentum=0.9",
    "training.reference_every=0",
    "training.kl=0.3",
    "training.kl_final=0.05",
)
"""The settings that the figures in docs/measurements.md were measured with; the recipe has others now."""


def configuration(recipe: str, normalization: str, seed: int, updates: int, *changes: str) -> TrainConfig:
    settings = [f"seed={seed}", f"algorithm.options.group_by={normalization}", f"training.updates={updates}", *changes]
    return parse(apply_overrides(read(recipe), settings), "benchmark")


def trained(config: TrainConfig) -> tuple[TrainingLoop, dict[str, float]]:
    """A run of all updates; under per-agent ReBN also the mean of its metric `noise_gain`.

    That is 1 + d^2, where d is the distance of a seat's mean return from the mean of all, in standard deviations of the
    seat's: by how much one normalization over both seats would raise the variance of the gradient.
    """
    loop, gains = warm_started(config), []
    while loop.updates < config.training.updates:
        metrics, _ = loop.update()
        gains += [value for name, value in metrics.items() if name.startswith("noise_gain/")]
    return loop, {"noise_gain": fmean(gains)} if gains else {}


def kuhn(normalization: str, seed: int, updates: int) -> dict[str, float]:
    from kuhn import train

    result = train(configuration("kuhn", normalization, seed, updates, *KUHN))
    figures = {"exploitability_last": result["last"], "exploitability_average": result["average"]}
    return figures | {name: value for name, value in result.items() if name == "noise_gain"}


def tictactoe(normalization: str, seed: int, updates: int) -> dict[str, float]:
    loop, gain = trained(configuration("tictactoe", normalization, seed, updates))
    return {"score": measure(loop, 400, "final")[0].score, **gain}


def desk(normalization: str, seed: int, updates: int) -> dict[str, float]:
    phases = f'phases=[{{start = {updates // 3}, seats = {{user = "user"}}}}]'
    config = configuration("desk", normalization, seed, updates, phases, "options.user_reward=fidelity")
    loop, gain = trained(config)
    measured, episodes = measure(loop, 200, "final", [loop.phase])
    fidelity = fmean(episode.returns["user"] for episode in episodes)
    return {"success": measured.score, "fidelity": fidelity, **gain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates-kuhn", type=int, default=100)
    parser.add_argument("--updates-tictactoe", type=int, default=60)
    parser.add_argument("--updates-desk", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=["kuhn", "tictactoe", "desk"], help="only this game")
    arguments = parser.parse_args()
    games = {kuhn: arguments.updates_kuhn, tictactoe: arguments.updates_tictactoe, desk: arguments.updates_desk}
    games = {game: updates for game, updates in games.items() if arguments.only in (None, game.__name__)}
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        futures = {
            (game.__name__, normalization): [
                pool.submit(game, normalization, seed, updates) for seed in range(arguments.seeds)
            ]
            for game, updates in games.items()
            for normalization in NORMALIZATIONS
        }
        rows = []
        for (name, normalization), pending in futures.items():
            results = [future.result() for future in pending]
            for figure in results[0]:
                values = [round(result[figure], 4) for result in results]
                rows.append(
                    {
                        "game": name,
                        "normalization": normalization,
                        "figure": figure,
                        "mean": round(fmean(values), 4),
                        "seeds": values,
                    }
                )
                line = f"{name:<10} {normalization:<6} {figure:<23} {fmean(values):.3f}  {values}"
                print(line, file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "normalization", "rows": rows}))


if __name__ == "__main__":
    main()
