"""CPU time of the client for a call of a model behind HTTP, compared with litellm. Prints one line of JSON.

    python benchmarks/client.py

A server in another process (tests/fake_server.py) answers every call immediately, with 64 tokens. 64 callers send
conversations of 8 messages, one call after the other: "ours" with HTTPModel, "ours_tokens" with token ids and
log-probabilities as training requests them, "ours_retrying" with Retrying, "litellm" with `litellm.acompletion` (left
out if it is not installed), "litellm_tokens" with log-probabilities. The five are measured in turns. The report has
milliseconds of this process's CPU time per call and calls per second, as medians of the rounds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from marl_gem.llm import Sampling
from marl_gem.llm.http import HTTPModel
from marl_gem.llm.retry import Retrying
from marl_gem.types import Message

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fake_server import serving

CONCURRENCY, CALLS, ROUNDS = 64, 640, 5
TEXT = "I would open with the centre, for it lies on four lines of the board."[:64].ljust(64)
LIMIT_MS = 1.5

QUESTION = "Board:\n. . .\n. X .\n. . O\nYou play X. Which square do you take? Answer with its number in brackets. " * 3
MESSAGES: list[Message] = [
    {"role": "system", "content": "You play tic-tac-toe."},
    *[{"role": role, "content": QUESTION} for _ in range(3) for role in ("user", "assistant")],
    {"role": "user", "content": QUESTION},
]

Ask = Callable[[int], Awaitable[Any]]


def main() -> None:
    with serving("--text", TEXT) as url:
        clients = {
            "ours": by(HTTPModel(url, "tiny", logprobs="off")),
            "ours_tokens": by(HTTPModel(url, "tiny")),
            "ours_retrying": by(Retrying(HTTPModel(url, "tiny", logprobs="off"))),
            **by_litellm(url),
        }
        measured = asyncio.run(take_turns(clients))
    report: dict[str, Any] = {"benchmark": "client", "concurrency": CONCURRENCY}
    for name, rounds in measured.items():
        cpu, rate = zip(*rounds, strict=True)
        report[name] = {"cpu_ms": round(statistics.median(cpu), 3), "calls_a_second": round(statistics.median(rate))}
    print(json.dumps(report | {"limit_ms": LIMIT_MS, "met": report["ours_tokens"]["cpu_ms"] < LIMIT_MS}))


def by(model: HTTPModel | Retrying) -> Ask:
    return lambda number: model.complete(MESSAGES, Sampling(max_tokens=64), number)


def by_litellm(url: str) -> dict[str, Ask]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download of a price list
    try:
        import litellm
    except ImportError:
        return {}
    litellm.suppress_debug_info, litellm.telemetry = True, False
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)

    def ask(number: int, **options: Any) -> Awaitable[Any]:
        return litellm.acompletion(  # type: ignore[no-any-return]
            model="openai/tiny",
            messages=MESSAGES,
            api_base=url,
            api_key="none",
            max_tokens=64,
            temperature=1.0,
            top_p=1.0,
            seed=number,
            num_retries=0,
            **options,
        )

    return {"litellm": ask, "litellm_tokens": lambda number: ask(number, logprobs=True)}


async def take_turns(clients: dict[str, Ask]) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of CPU time per call and calls per second, of every round after the first, which warms up."""
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    for round_ in range(ROUNDS + 1):
        for name, ask in clients.items():
            cost = await measure(ask)
            if round_:
                measured[name].append(cost)
    return measured


async def measure(ask: Ask) -> tuple[float, float]:
    numbers = iter(range(CALLS))

    async def caller() -> None:
        for number in numbers:
            await ask(number)

    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
    return (time.process_time() - cpu) / CALLS * 1e3, CALLS / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
