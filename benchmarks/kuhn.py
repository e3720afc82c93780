"""Kuhn poker by self-play: how exploitable is the trained policy, exactly?

    python benchmarks/kuhn.py [--seed N] [--set training.updates=50 ...]

Prints one JSON line. Exploitability is in chips a hand: 0 for an equilibrium, 0.458 for uniform play. It is
computed by walking through the whole game, with the model's own probabilities of its answers at the twelve
information sets, scaled to the legal ones (`illegal` is the greatest share that is not). `last` is the
policy after the last update; `average` is the average of the policies after each update of the second half.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from statistics import fmean

from marl_gem.llm.transformers import TransformersLLM
from marl_gem.overrides import apply_overrides
from marl_gem.scenarios.games.kuhn_analysis import (
    GAME_VALUE,
    INFORMATION_SETS,
    InformationSet,
    average,
    exploitability,
    uniform,
    value,
)
from marl_gem.scenarios.games.kuhn_poker import moves, situation
from marl_gem.trainers.config import parse, read
from marl_gem.trainers.imitation import warm_started
from marl_gem.trainers.schedule import SHARED_POLICY
from marl_gem.trainers.sections import TrainConfig


def strategy(llm: TransformersLLM) -> tuple[dict[InformationSet, float], float]:
    """The model's strategy under the view "bare", and the greatest probability it gives to illegal answers."""
    bets, illegal = {}, 0.0
    for card, history in INFORMATION_SETS:
        prompt = llm.encode([{"role": "user", "content": situation(card, history)}])
        pass_, bet = (math.exp(llm.logprob(prompt, llm.encode_answer(f"[{move}]"))) for move in moves(history))
        bets[card, history] = bet / (pass_ + bet)
        illegal = max(illegal, 1 - pass_ - bet)
    return bets, illegal


def train(config: TrainConfig) -> dict[str, float]:
    """Train once, and judge the policy after every update."""
    begun = time.perf_counter()
    loop = warm_started(config)
    llm = loop.learners[SHARED_POLICY].sampler.policy.llm
    strategies = [strategy(llm)[0]]
    gains = []  # see the metric noise_gain of per-agent ReBN
    while loop.updates < config.training.updates:
        metrics, _ = loop.update()
        gains += [value for name, value in metrics.items() if name.startswith("noise_gain/")]
        bets, illegal = strategy(llm)
        strategies.append(bets)
    mixed = average(strategies[len(strategies) // 2 :])
    return {
        "warm_start": round(exploitability(strategies[0]), 4),
        "last": round(exploitability(strategies[-1]), 4),
        "average": round(exploitability(mixed), 4),
        "value_last": round(value(strategies[-1], strategies[-1]), 4),
        "value_average": round(value(mixed, mixed), 4),
        "illegal": round(illegal, 4),
        **({"noise_gain": round(fmean(gains), 4)} if gains else {}),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    config = parse(apply_overrides(read("kuhn"), [f"seed={arguments.seed}", *arguments.set]), "the command line")
    result = train(config)
    known = {"uniform": round(exploitability(uniform()), 4), "game_value": round(GAME_VALUE, 4)}
    print(json.dumps({"benchmark": "kuhn", "seed": arguments.seed, **result, **known}))


if __name__ == "__main__":
    main()
