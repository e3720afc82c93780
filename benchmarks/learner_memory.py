"""The memory that one update takes on a CPU, with a large vocabulary.

    python benchmarks/learner_memory.py --rows 2 --tokens 1024 --kl 0.2

A GPT-2 of 45 million parameters with a vocabulary of 151,936 (Qwen3's) learns from rows of random tokens, all of which
but the first were sampled. Prints one line of JSON; sizes are in GiB. `above_base` is the peak of the resident memory
less what was resident before the update, when model and reference were there already; it includes the gradient and
the optimizer's state. `predicted_above_base` is what `trainers/memory_plan.py` says.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from marl_gem.trainers.algorithms import policy_gradient
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.memory_plan import plan_memory
from marl_gem.trainers.rows import Row
from marl_gem.trainers.sections import TrainConfig, TrainingConfig, TrainingScenario
from marl_gem.trainers.tiny import tiny_tokenizer

VOCABULARY = 151_936
GIB = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024, help="in each row")
    parser.add_argument("--kl", type=float, default=0.2, help="weight of the divergence from the reference")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--packing", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=256, n_layer=8, n_head=4, n_positions=arguments.tokens,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
    )  # fmt: skip
    memory = Memory(arguments.precision, arguments.activation_checkpointing, arguments.packing)
    backend = LocalBackend(model, tiny_tokenizer(["a b"]), memory=memory)
    backend.set_reference()
    rows = _rows(arguments.rows, arguments.tokens)
    base, begun = _resident(), time.perf_counter()
    metrics = backend.forward_backward(rows, policy_gradient, denominator=len(rows), kl_weight=arguments.kl)
    metrics["gradient_norm"] = backend.step(learning_rate=1e-6, max_grad_norm=1.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    predicted = _predicted(model, arguments)
    figures = {
        "rows": len(rows),
        "tokens": arguments.tokens,
        "kl": arguments.kl,
        **memory._asdict(),
        "parameters": model.num_parameters(),
        "above_base": round((peak - base) / GIB, 2),
        "predicted_above_base": round(predicted / GIB, 2),
        "measured_to_predicted": round((peak - base) / predicted, 2),
        "peak": round(peak / GIB, 2),
        "seconds": round(time.perf_counter() - begun, 1),
        "loss": metrics["loss"],
        "gradient_norm": metrics["gradient_norm"],
    }
    print(json.dumps(figures))


def _predicted(model: GPT2LMHeadModel, arguments: argparse.Namespace) -> int:
    """What `memory_plan` says that the update takes: all but the weights, which are there before."""
    config = TrainConfig(
        scenarios=(TrainingScenario(id="game:KuhnPoker-v0"),),
        device="cpu",
        training=TrainingConfig(
            micro_batch_tokens=min(16_384, arguments.rows * arguments.tokens),
            precision=arguments.precision,
            activation_checkpointing=arguments.activation_checkpointing,
            kl=arguments.kl,
            kl_final=arguments.kl,
            opponent_pool_fraction=0.0,
        ),
    )
    plan = plan_memory(config, model, 1)
    return sum(part.total for part in (*plan.static, *plan.update) if part.name != "each policy's weights")


def _rows(count: int, tokens: int) -> list[Row]:
    rng = random.Random(0)
    sampled = tokens - 1
    return [
        Row(
            tuple(rng.randrange(VOCABULARY) for _ in range(tokens)),
            [0.0] + [rng.uniform(-1, 1)] * sampled,
            [0] + [1] * sampled,
            [0.0] + [-11.0] * sampled,
            [0.0] * tokens,
            [0.0] * tokens,
            [0] + [sampled] * sampled,
        )
        for _ in range(count)
    ]


def _resident() -> int:
    """The resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
