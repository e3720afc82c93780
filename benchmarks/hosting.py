"""The overhead of hosting: TextArena's loop compared with ours. Prints one line of JSON.

    python benchmarks/hosting.py

"steps": for each game, steps per second of CPU time in valid random play. TextArena's loop keeps one raw instance
(faster than a new one per episode, as hosting has it), calls `get_observation` and `step`, and takes its moves from
the same functions as ours; ours calls `reset` and `step` of an env. The two are measured in turns; the report has
medians. "long": one game of Kuhn poker with 5,000 steps, with TextArena's default rendering (the complete transcript at
every turn) and with ours.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable

import textarena

import marl_gem
from marl_gem.scenarios.textarena.env import TextArenaEnv
from marl_gem.scenarios.textarena.legal import LEGAL

GAMES = ("TicTacToe-v0", "ConnectFour-v0", "KuhnPoker-v0")
ROUNDS = 15
SECONDS = 0.25
LONG = 5_000


def main() -> None:
    steps = {game: compare(game) for game in GAMES}
    print(json.dumps({"benchmark": "hosting", "steps": steps, "long": long_game()}))


def compare(game: str) -> dict[str, float]:
    """Steps per second of both loops, measured in turns."""
    loops = {"textarena": raw_loop(game), "marl_gem": our_loop(game)}
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(ROUNDS):
        for name, episode in loops.items():
            steps, started = 0, time.process_time()
            while (elapsed := time.process_time() - started) < SECONDS:
                steps += episode()
            speeds[name].append(steps / elapsed)
    raw, ours = (statistics.median(speeds[name]) for name in loops)
    return {"textarena": round(raw), "marl_gem": round(ours), "ratio": round(ours / raw, 3)}


def raw_loop(game: str) -> Callable[[], int]:
    env, dice = textarena.make(f"{game}-raw"), random.Random(0)
    legal = LEGAL[type(env).__name__]

    def episode() -> int:
        steps, done = 0, False
        env.reset(num_players=2, seed=dice.getrandbits(32))
        while not done:
            env.get_observation()
            done, _ = env.step(dice.choice(legal(env)))
            steps += 1
        env.close()
        return steps

    return episode


def our_loop(game: str) -> Callable[[], int]:
    env, dice = marl_gem.make(f"ta:{game}"), random.Random(0)

    def episode() -> int:
        observations, infos = env.reset(seed=dice.getrandbits(32))
        while not env.done:
            actions = {agent: dice.choice(infos[agent]["legal_actions"]) for agent in observations}
            observations, _, _, _, infos = env.step(actions)
        return env.steps

    return episode


def long_game() -> dict[str, float]:
    """Seconds for one long game, each turn's observation read."""
    options = {"entry_point": "textarena.envs.KuhnPoker.env:KuhnPokerEnv", "max_rounds": LONG}
    default = textarena.make("KuhnPoker-v0", max_rounds=LONG)
    dice, characters, started = random.Random(0), 0, time.process_time()
    default.reset(num_players=2, seed=0)
    for _ in range(LONG):
        _, text = default.get_observation()
        characters += len(text)
        default.step(dice.choice(LEGAL["KuhnPokerEnv"](default.env)))
    theirs = time.process_time() - started

    textarena.register("KuhnPoker-v0-endless-raw", **options)
    env = TextArenaEnv("KuhnPoker-v0-endless", 2)
    env.max_steps = LONG
    dice, shown, started = random.Random(0), 0, time.process_time()
    observations, infos = env.reset(seed=0)
    while not env.done:
        ((agent, text),) = observations.items()
        shown += len(text)
        observations, _, _, _, infos = env.step({agent: dice.choice(infos[agent]["legal_actions"])})
    ours = time.process_time() - started
    return {
        "steps": env.steps,
        "textarena_seconds": round(theirs, 3),
        "marl_gem_seconds": round(ours, 3),
        "times_faster": round(theirs / ours, 1),
        "textarena_characters": characters,
        "marl_gem_characters": shown,
    }


if __name__ == "__main__":
    main()
