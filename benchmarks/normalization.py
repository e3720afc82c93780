"""Does normalizing returns per agent matter? The same runs three ways, three seeds each.

    python benchmarks/normalization.py [--seeds 3] [--updates-kuhn 100] [--updates-tictactoe 60] [--updates-desk 60]
                                       [--only kuhn]

Prints one JSON line, with one row for each game and normalization: "agent" is per-agent ReBN, "all" one
normalization over both seats, "none" the returns as they are. For TicTacToe the figure is the score against
random play (higher is better; 400 games a seat), for Kuhn poker the exploitability of the last policy and of
the average policy (lower is better), for the help desk the success of user and assistant together on 200 tasks that
were not trained on; there the user earns its fidelity, so that the two seats' returns differ in mean and spread, and
it joins after a third of the updates. A small table for people goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean

from marl_gem.trainers.transitions import NORMALIZATIONS

from marl_gem.overrides import apply_overrides
from marl_gem.trainers.config import parse, read


def kuhn(normalization: str, seed: int, updates: int) -> dict[str, float]:
    from kuhn import train

    changes = [f"seed={seed}", f"self_play.normalization={normalization}", f"self_play.updates={updates}"]
    result = train(parse(apply_overrides(read("kuhn"), changes), "benchmark"))
    return {"exploitability_last": result["last"], "exploitability_average": result["average"]}


def tictactoe(normalization: str, seed: int, updates: int) -> dict[str, float]:
    from marl_gem.trainers.seating import ONE
    from marl_gem.trainers.self_play import SelfPlay

    from marl_gem.evaluation.head_to_head import head_to_head
    from marl_gem.evaluation.tally import overall
    from marl_gem.policies import RandomPolicy

    changes = [f"seed={seed}", f"self_play.normalization={normalization}", f"self_play.updates={updates}"]
    config = parse(apply_overrides(read("tictactoe"), changes), "benchmark")
    run = SelfPlay.start(config)
    for _ in run.warm_up():
        pass
    while run.updates < updates:
        run.update()
    tallies, _ = head_to_head(run.ground.make, run.trainees[ONE].policy, RandomPolicy(), games=400, seed=seed)
    total = overall(tallies)
    return {"score": total.score, "illegal_games": total.illegal / total.games}


def desk(normalization: str, seed: int, updates: int) -> dict[str, float]:
    from marl_gem.trainers.measure import measure
    from marl_gem.trainers.self_play import SelfPlay

    changes = [f"seed={seed}", f"self_play.normalization={normalization}", f"self_play.updates={updates}"]
    changes += [f'phases=[{{start = {updates // 3}, seats = {{user = "user"}}}}]', "options.user_reward=fidelity"]
    run = SelfPlay.start(parse(apply_overrides(read("desk"), changes), "benchmark"))
    for _ in run.warm_up():
        pass
    while run.updates < updates:
        run.update()
    measured, episodes = measure(run, 200, "final", [run.phase])
    return {"success": measured["score"], "fidelity": fmean(one.returns["user"] for one in episodes)}


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
                told = f"{name:<10} {normalization:<6} {figure:<23} {fmean(values):.3f}  {values}"
                print(told, file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "normalization", "rows": rows}))


if __name__ == "__main__":
    main()
