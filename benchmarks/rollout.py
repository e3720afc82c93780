"""What playing many episodes at once costs over playing each in a loop of its own. Prints one line of JSON.

    python benchmarks/rollout.py

Every step of every episode waits a time drawn beforehand (lognormal, mean 20 ms, sigma 1.5; 20 steps an
episode). "threads" is the yardstick: one plain thread for each episode, which sleeps those times and does
nothing else. "env" plays the same episodes with the wait in a blocking env, "agent" with the wait in the
agent. All three take turns; medians of seconds are told, and how many times the yardstick ours take.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.policies import Info, ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.types import Observation, Response, Role

MEAN, SIGMA, STEPS = 0.020, 1.5, 20
EPISODES = {64: 7, 1024: 5}
"""How many at once, and how often each is measured."""


def main() -> None:
    results = {str(episodes): compare(episodes, repetitions) for episodes, repetitions in EPISODES.items()}
    print(json.dumps({"benchmark": "rollout", "episodes": results}))


def compare(episodes: int, repetitions: int) -> dict[str, float]:
    """Median seconds of all three, and the ratios; each repetition draws new waits for all three alike."""
    ways = {"threads": play_in_threads, "env": play_with_slow_envs, "agent": play_with_slow_agents}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions):
        waits = draw_waits(episodes, seed=repetition)
        for name, way in ways.items():
            started = time.perf_counter()
            way(waits)
            seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    ratios = {
        name: statistics.median(ours / plain for ours, plain in zip(seconds[name], seconds["threads"], strict=True))
        for name in ("env", "agent")
    }
    return {f"{name}_seconds": round(median, 3) for name, median in medians.items()} | {
        f"{name}_ratio": round(ratio, 3) for name, ratio in ratios.items()
    }


def draw_waits(episodes: int, seed: int) -> list[list[float]]:
    dice, centre = random.Random(seed), math.log(MEAN) - SIGMA**2 / 2
    return [[dice.lognormvariate(centre, SIGMA) for _ in range(STEPS)] for _ in range(episodes)]


def play_in_threads(waits: list[list[float]]) -> None:
    def loop(waits_of_thread: list[float]) -> None:
        for wait in waits_of_thread:
            time.sleep(wait)

    threads = [threading.Thread(target=loop, args=(waits_of_thread,)) for waits_of_thread in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def play_with_slow_envs(waits: list[list[float]]) -> None:
    play(lambda: SlowEnv(waits), ScriptedPolicy(lambda observation, info: "go on"), len(waits))


def play_with_slow_agents(waits: list[list[float]]) -> None:
    play(QuickEnv, SlowPolicy(waits), len(waits))


def play(make: Callable[[], MultiAgentEnv], policy: Any, episodes: int) -> None:
    """One job an episode, all at once; the seed tells which waits are its own."""
    played = collect(make, [Job(seed, policy) for seed in range(episodes)], concurrency=episodes)
    assert all(len(episode.turns) == STEPS and not episode.error for episode in played)


class QuickEnv(MultiAgentEnv):
    possible_agents = ("player",)
    selector = SequentialSelector()
    max_steps = STEPS

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards["player"] = 1.0


class SlowEnv(QuickEnv):
    blocking = True

    def __init__(self, waits: list[list[float]]) -> None:
        self._all_waits = waits

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self._waits = iter(self._all_waits[self.seed])

    def _process_actions(self, actions: dict[str, str]) -> None:
        time.sleep(next(self._waits))
        super()._process_actions(actions)


class SlowPolicy:
    """Answers after a while. Every seat taken gets the waits of one episode, in order."""

    name = "slow"

    def __init__(self, waits: list[list[float]]) -> None:
        self._unplayed = iter(waits)

    def agent(self, agent_id: str, role: Role, seed: int) -> SlowAgent:
        return SlowAgent(next(self._unplayed))


class SlowAgent:
    def __init__(self, waits: list[float]) -> None:
        self._waits = iter(waits)

    async def act(self, observation: Observation, info: Info) -> Response:
        await asyncio.sleep(next(self._waits))
        return Response("go on")


if __name__ == "__main__":
    main()
