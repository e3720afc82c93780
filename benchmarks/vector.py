"""What a vector of envs gains where steps wait, and what it costs where they do not. Prints one line of JSON.

    python benchmarks/vector.py

"waiting": 64 envs whose steps sleep (lognormal, mean 20 ms, sigma 1.5). "partial" sends every env its next
step as soon as its last has ended; "barrier" is the baseline: `ThreadPoolExecutor.map` over the same envs,
64 threads, every step waiting for the slowest. Both take the same 6,400 steps with the same waits, and the
clock runs until the last has ended. "speedup" is how many times more steps a second partial steps make.

"trivial": microseconds for one step of a game that does next to nothing, by the number of envs, without
threads: "vector" through `VectorEnv.step`, "plain" in a loop over the envs. (With many envs a plain step
costs more, too: Python's garbage collector has more to look at, and the processor's caches hold less of it.)

In both comparisons the two ways take turns; medians are given, also of the ratio within each turn.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from marl_gem.env import MultiAgentEnv
from marl_gem.selectors.parallel import ParallelSelector
from marl_gem.vector import VectorEnv

MEAN, SIGMA, ENVS, ROUNDS = 0.020, 1.5, 64, 100
WAITING_REPETITIONS = 5
TRIVIAL_ENVS, TRIVIAL_STEPS, TRIVIAL_REPETITIONS = (10, 100, 1_000, 10_000), 50_000, 9


def main() -> None:
    trivial = {str(envs): compare_trivial(envs) for envs in TRIVIAL_ENVS}
    print(json.dumps({"benchmark": "vector", "waiting": compare_waiting(), "trivial": trivial}))


def compare_waiting() -> dict[str, float]:
    """Median steps a second of both; each repetition draws new waits for both alike."""
    speeds: dict[str, list[float]] = {"partial": [], "barrier": []}
    for repetition in range(WAITING_REPETITIONS):
        waits = draw_waits(seed=repetition)
        for name, way in (("partial", wait_in_partial_steps), ("barrier", wait_at_a_barrier)):
            speeds[name].append(len(waits) / way(waits))
    ratios = [ours / theirs for ours, theirs in zip(speeds["partial"], speeds["barrier"], strict=True)]
    return {f"{name}_steps_per_second": round(statistics.median(all_), 1) for name, all_ in speeds.items()} | {
        "speedup": round(statistics.median(ratios), 2),
        "least_speedup": round(min(ratios), 2),
    }


def draw_waits(seed: int) -> list[float]:
    dice, centre = random.Random(seed), math.log(MEAN) - SIGMA**2 / 2
    return [dice.lognormvariate(centre, SIGMA) for _ in range(ENVS * ROUNDS)]


def wait_in_partial_steps(waits: list[float]) -> float:
    """Seconds until all steps have been taken, each sent as soon as an env is free."""
    with VectorEnv(Sleeper, ENVS) as envs:
        results = envs.reset()
        ahead = iter(waits)
        started = time.perf_counter()
        while results:
            envs.send({result.index: actions for result, actions in zip(results, map(sleep, ahead), strict=False)})
            results = envs.recv() if envs.outstanding else []
        return time.perf_counter() - started


def wait_at_a_barrier(waits: list[float]) -> float:
    """Seconds until all steps have been taken, one of each env at a time."""
    envs = [Sleeper() for _ in range(ENVS)]
    for env in envs:
        env.reset()
    with ThreadPoolExecutor(ENVS) as pool:
        list(pool.map(time.sleep, [0.05] * ENVS))  # so that its threads have started, as the vector's have
        started = time.perf_counter()
        for first in range(0, len(waits), ENVS):
            list(pool.map(MultiAgentEnv.step, envs, map(sleep, waits[first : first + ENVS])))
        return time.perf_counter() - started


def compare_trivial(count: int) -> dict[str, float]:
    """Median microseconds for one step of one env, both ways, and the ratio."""
    actions = [dict.fromkeys(Trivial.possible_agents, "on") for _ in range(count)]
    envs = [Trivial() for _ in range(count)]
    for env in envs:
        env.reset()
    with VectorEnv(Trivial, count) as vector:
        vector.reset()
        ways: dict[str, Callable[[], Sequence[object]]] = {
            "plain": lambda: [env.step(its_actions) for env, its_actions in zip(envs, actions, strict=True)],
            "vector": lambda: vector.step(actions),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(TRIVIAL_REPETITIONS):
            for name, way in ways.items():
                taken[name].append(time_steps(way, count))
    ratios = [ours / plain for ours, plain in zip(taken["vector"], taken["plain"], strict=True)]
    return {name: round(statistics.median(each), 2) for name, each in taken.items()} | {
        "ratio": round(statistics.median(ratios), 2)
    }


def time_steps(step_all: Callable[[], Sequence[object]], count: int) -> float:
    """Microseconds a step, on average over many."""
    rounds = TRIVIAL_STEPS // count
    started = time.perf_counter()
    for _ in range(rounds):
        results = step_all()  # kept until the next, as in a loop that reads them
    taken = time.perf_counter() - started
    assert len(results) == count
    return taken / rounds / count * 1e6


def sleep(seconds: float) -> dict[str, str]:
    return {"player": repr(seconds)}


class Sleeper(MultiAgentEnv):
    """Sleeps for as many seconds as the action says."""

    possible_agents = ("player",)
    selector = ParallelSelector()
    blocking = True

    def observe(self, agent: str) -> str:
        return "How long?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        time.sleep(float(actions["player"]))


class Trivial(MultiAgentEnv):
    possible_agents = ("a", "b")
    selector = ParallelSelector()

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards["a"] = 1.0


if __name__ == "__main__":
    main()
