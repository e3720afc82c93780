"""Games in which no answer beats all others: which opponents help?

    python benchmarks/league_tables.py [--seeds 3] [--updates 200] [--game weighted_rps]

A table learns by REINFORCE with normalized returns and Adam without momentum, as in the trainer; opponents are drawn by
the trainer's own league, for each episode anew, from the trainer's own pool of earlier versions. In four fifths of the
episodes the other player is drawn, in "newest only" in none. `last` is what a best response wins from the policies
after the last hundred updates on average, `average` what it wins from the average policy of the second half; 0 is an
equilibrium. Weighted rock-paper-scissors pays 1 to paper, 2 to scissors and 3 to rock where they win; Blotto is
`game:Blotto-v0`. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
from statistics import fmean
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from marl_gem.scenarios.games.blotto import allocations, outcome
from marl_gem.trainers.league import League, Opponent
from marl_gem.trainers.opponent_pool import OpponentPool
from marl_gem.trainers.sections import LeagueConfig

Floats: TypeAlias = npt.NDArray[np.float64]

GAMES: dict[str, tuple[list[list[float]], float]] = {
    "weighted_rps": ([[0, -1, 3], [1, 0, -2], [-3, 2, 0]], 0.03),
    "blotto": ([[outcome(a, b) for b in allocations(7, 3)] for a in allocations(7, 3)], 0.1),
}
"""What the first player wins, and the learning rate."""

LEAGUES = {
    "newest only": (LeagueConfig(), 0.0),
    "past, each as likely": (LeagueConfig(), 0.8),
    "prioritized, power 2": (LeagueConfig(past=0.0, prioritized=1.0), 0.8),
    "prioritized, power 6": (LeagueConfig(past=0.0, prioritized=1.0, power=6.0), 0.8),
}


def softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max())
    return weights / weights.sum()


def train(wins: Floats, rate: float, league: League, fraction: float, updates: int, seed: int) -> tuple[float, float]:
    """What best responses win from the last policies, and from the average one."""
    dice, rng, episodes = np.random.default_rng(seed), random.Random(seed), 64
    pool, logits, squares = OpponentPool(8, 10), np.zeros(len(wins)), np.zeros(len(wins))
    policies: list[Floats] = []
    for update in range(updates):
        pool.snapshot(update, lambda: {"logits": torch.from_numpy(logits.copy())})  # noqa: B023 - called at once
        newest = softmax(logits)
        older = {s.version: softmax(s.weights["logits"].numpy()) for s in pool.snapshots}
        drawn = [league.draw("policy", "policy", pool.versions, rng) for _ in range(round(episodes * fraction))]
        others: list[Opponent | None] = [*drawn, *[None] * (episodes - len(drawn))]
        mine = dice.choice(len(wins), episodes, p=newest)
        theirs = [dice.choice(len(wins), p=older[o.version] if o and o.kind == "past" else newest) for o in others]
        won = wins[mine, theirs]
        results = [(o, (float(np.sign(w)) + 1) / 2) for o, w in zip(others, won, strict=True) if o]
        league.record({"policy": results})
        advantages = (won - won.mean()) / (won.std() + 1e-9)
        gradient = np.bincount(mine, advantages, len(wins)) / episodes - advantages.mean() * newest
        squares = 0.99 * squares + 0.01 * gradient**2
        logits = logits + rate * gradient / (np.sqrt(squares / (1 - 0.99 ** (update + 1))) + 1e-8)
        policies.append(softmax(logits))
    mixed = np.mean(policies[updates // 2 :], 0)
    return fmean(float((wins @ policy).max()) for policy in policies[-100:]), float((wins @ mixed).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--game", choices=list(GAMES), help="only this one")
    arguments = parser.parse_args()
    rows = []
    for game in [arguments.game] if arguments.game else GAMES:
        wins, rate = np.array(GAMES[game][0], dtype=float), GAMES[game][1]
        for name, (config, fraction) in LEAGUES.items():
            runs = [
                train(wins, rate, League(config), fraction, arguments.updates, seed) for seed in range(arguments.seeds)
            ]
            last, average = (round(fmean(values), 3) for values in zip(*runs, strict=True))
            rows.append({"game": game, "opponents": name, "last": last, "average": average})
    print(json.dumps({"benchmark": "league_tables", "rows": rows}))


if __name__ == "__main__":
    main()
