"""How much faster a run is whose rollouts overlap with its updates.

    python benchmarks/overlap.py
    python benchmarks/overlap.py --in-process

Both ways are timed in one run: taking turns (training.staleness = 0) and overlapping (--staleness). Without
`--in-process` a stand-in for a model's server on a GPU answers: an answer takes time in proportion to its length, which
is lognormal, and no CPU; the learner waits, too, for --update seconds, as for a GPU. With `--in-process` a tiny model
in this process answers and learns, on two CPU threads, one of each side. Prints one line of JSON; times are in seconds,
`speedup` is that of taking turns divided by that of overlapping.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from marl_gem.llm import Sampling
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.config import parse
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.start import start
from marl_gem.types import Message, Response, ToolSpec

SIGMA = 0.8
"""The standard deviation of the logarithm of an answer's length."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--staleness", type=int, default=1)
    parser.add_argument("--median", type=float, default=0.1, help="seconds that an answer of median length takes")
    parser.add_argument("--update", type=float, default=0.0, help="seconds; 0 for as long as the episodes take")
    parser.add_argument("--in-process", action="store_true", help="a tiny model answers and learns here")
    arguments = parser.parse_args()
    with contextmanager(_nothing if arguments.in_process else _server)(arguments.median):
        playing = fmean(_times(arguments, staleness=0, update=0.0)[1])
        update = 0.0 if arguments.in_process else arguments.update or playing
        in_turn, _ = _times(arguments, staleness=0, update=update)
        overlapped, _ = _times(arguments, staleness=arguments.staleness, update=update)
    figures = {
        "in_process": arguments.in_process,
        "updates": arguments.updates,
        "episodes": arguments.episodes,
        "staleness": arguments.staleness,
        "seconds_playing": playing,
        "seconds_update": update,
        "in_turn": in_turn,
        "overlapped": overlapped,
        "speedup": in_turn / overlapped,
    }
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}))


def _times(arguments: argparse.Namespace, *, staleness: int, update: float) -> tuple[float, list[float]]:
    """The wall time of a run's updates, and how long each waited for its episodes."""
    config = parse(
        {
            "scenario": "game:KuhnPoker-v0",
            "device": "cpu",
            "policy": {"width": 64 if arguments.in_process else 16, "layers": 2, "heads": 2},
            "imitation": {"episodes": 20, "steps": 1},
            "training": {
                "updates": arguments.updates,
                "episodes": arguments.episodes,
                "staleness": staleness,
                "opponent_pool_fraction": 0.0,
            },
        },
        "benchmark",
    )
    loop, _ = start(config)
    with _slow_steps(update):
        begun = time.perf_counter()
        waited = _updates(loop)
        return time.perf_counter() - begun, waited


def _updates(loop: TrainingLoop) -> list[float]:
    try:
        return [loop.update()[0]["seconds_playing"] for _ in range(loop.config.training.updates)]
    finally:
        loop.close()


@contextmanager
def _slow_steps(seconds: float) -> Iterator[None]:
    """Every step of a backend takes so much longer."""
    step = LocalBackend.step

    def slow(backend: LocalBackend, **options: Any) -> float:
        time.sleep(seconds)
        return step(backend, **options)

    LocalBackend.step = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalBackend.step = step  # type: ignore[method-assign]


def _nothing(_: float) -> Iterator[None]:
    yield


def _server(median: float) -> Iterator[None]:
    """Answers of a model take time, as if they were long: `median` seconds times a lognormal draw from their seed."""
    complete = TransformersLLM.complete

    async def slow(
        llm: TransformersLLM, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        await asyncio.sleep(median * random.Random(seed).lognormvariate(0.0, SIGMA))
        return await complete(llm, messages, sampling, seed, tools)

    TransformersLLM.complete = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        TransformersLLM.complete = complete  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
