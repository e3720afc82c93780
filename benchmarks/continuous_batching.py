"""Tokens a second of a model in this process, with a static and with a continuous batch.

    python benchmarks/continuous_batching.py

So many conversations are held at once, each of some turns; an answer's length is lognormal. With a static batch every
turn waits for the longest answer among all conversations; with a continuous one each conversation goes on by itself.
Both ways are timed in one run, one after the other, on the same seeds. Prints one line of JSON; `ratio` is that of the
tokens a second, `passes` how many forward passes there were, and `rows` how many rows they had on average.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from typing import Any

import torch

from marl_gem.llm import Sampling
from marl_gem.llm.transformers import Batching, TransformersLLM
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer

SIGMA = 0.8
"""The standard deviation of the logarithm of an answer's length."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--median", type=int, default=40, help="tokens of an answer")
    parser.add_argument("--width", type=int, default=128, help="of the model's hidden states")
    parser.add_argument("--layers", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = vars(arguments).copy()
    _measure(arguments, "static", turns=1)  # what is imported and allocated at first
    for batching in ("static", "continuous"):
        figures |= {f"{name}_{batching}": value for name, value in _measure(arguments, batching).items()}
    figures["ratio"] = figures["tokens_per_second_continuous"] / figures["tokens_per_second_static"]
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}))


def _measure(arguments: argparse.Namespace, batching: Batching, turns: int = 0) -> dict[str, float]:
    tokenizer = tiny_tokenizer(["a b c d e f g h i j"] * 3, vocabulary=300)
    model = tiny_model(tokenizer, width=arguments.width, layers=arguments.layers, context=4096, seed=1)
    llm = TransformersLLM(model, tokenizer, batching=batching)
    llm.template.ends = frozenset()  # an answer ends at its drawn length
    rows: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )

    async def converse(index: int) -> int:
        rng = random.Random(index)
        tokens = 0
        for turn in range(turns or arguments.turns):
            length = max(1, round(rng.lognormvariate(0.0, SIGMA) * arguments.median))
            text = "a b c d " * rng.randint(1, 8)
            response = await llm.complete([{"role": "user", "content": text}], Sampling(length), seed=turn)
            tokens += len(response.token_ids)
        return tokens

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*map(converse, range(arguments.conversations))))

    begun = time.perf_counter()
    tokens = asyncio.run(all_of_them())
    seconds = time.perf_counter() - begun
    return {
        "tokens_per_second": tokens / seconds,
        "seconds": seconds,
        "tokens": tokens,
        "passes": len(rows),
        "rows": sum(rows) / len(rows),
    }


if __name__ == "__main__":
    main()
