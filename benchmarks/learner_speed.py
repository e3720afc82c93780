"""Sampled tokens a second that the learner trains on, for long episodes: merged rows, a row a transition, and TRL.

    python benchmarks/learner_speed.py [--trl FOLDER] [--episodes 4] [--turns 16] [--rounds 3]

Every turn of an episode extends the conversation: 32 tokens that are shown and 32 that were sampled. "merged" trains an
episode as one row, as the trainer does; "transitions" reads the whole prompt anew for every turn (as GEM and Oat do);
"trl" is the loss, backward pass and step of TRL's GRPOTrainer on the same rows, where TRL is found in FOLDER
(`pip install --no-deps --target FOLDER trl==1.16.0`). All take the same tiny Qwen3 of random weights, whose head is a
quarter of it, as in Qwen3-0.6B; float32, one thread, Adam, micro-batches of the same greatest number of tokens. Prints
one JSON line: sampled tokens a second of processor time (the best round), peak of the resident memory beyond what it
was before the first update in MiB, and how far the gradient is from that of "merged" (relative to its norm, after both
are scaled to the same norm).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from marl_gem.trainers.algorithms import policy_gradient
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.batch import Trajectory, Transition
from marl_gem.trainers.rows import Row, merge
from marl_gem.trainers.tiny import tiny_tokenizer

SHOWN, SAMPLED, VOCABULARY = 32, 32, 2048
VARIANTS = ("merged", "transitions", "trl")


def model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, tie_word_embeddings=True,
        )
    )  # fmt: skip


def episodes(count: int, turns: int) -> list[Trajectory]:
    """Episodes of random tokens and advantages."""
    rng = random.Random(0)
    found: list[Trajectory] = []
    for episode in range(count):
        history: tuple[int, ...] = ()
        trajectory = []
        for turn in range(turns):
            prompt = history + tuple(rng.randrange(VOCABULARY) for _ in range(SHOWN))
            action = tuple(rng.randrange(VOCABULARY) for _ in range(SAMPLED))
            history = prompt + action
            trajectory.append(
                Transition(
                    episode=str(episode), group="0", turn=turn, scenario="s", agent="a", prompt_ids=prompt,
                    action_ids=action, logprobs=(-9.0,) * SAMPLED, version=0, reward=0.0, return_=0.0,
                    advantage=rng.uniform(-1, 1),
                )
            )  # fmt: skip
        found.append(trajectory)
    return found


def ours(batch: list[Trajectory], micro_batch_tokens: int, merged: bool) -> tuple[torch.nn.Module, Callable[[], None]]:
    """The model, and an update of it without its step."""
    backend = LocalBackend(model(), tiny_tokenizer(["a b"]), micro_batch_tokens=micro_batch_tokens)
    trajectories = batch if merged else [[transition] for trajectory in batch for transition in trajectory]
    rows, turns = merge(trajectories, fold=False), sum(map(len, batch))

    def forward_backward() -> None:
        backend.forward_backward(rows, policy_gradient, denominator=turns)

    return backend.model, forward_backward


def trls(batch: list[Trajectory], micro_batch_tokens: int, folder: str) -> tuple[torch.nn.Module, Callable[[], None]]:
    """The same with TRL's trainer."""
    sys.path.insert(0, folder)
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = merge(batch, fold=False)
    at_once = max(1, micro_batch_tokens // len(rows[0].ids))
    arguments = GRPOConfig(
        tempfile.mkdtemp(), use_cpu=True, bf16=False, gradient_checkpointing=False, loss_type="dr_grpo", beta=0.0,
        num_generations=2, per_device_train_batch_size=2, max_completion_length=len(rows[0].ids), report_to=[],
    )  # fmt: skip
    trainer = GRPOTrainer(
        model(), lambda completions, **_: [0.0] * len(completions), arguments,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 4}), processing_class=_tokenizer(),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    learner = trainer.model.train()

    def forward_backward() -> None:
        for start in range(0, len(rows), at_once):
            loss = trainer._compute_loss(learner, _inputs(rows[start : start + at_once]))
            loss.backward()

    return learner, forward_backward


def _tokenizer() -> PreTrainedTokenizerBase:
    return tiny_tokenizer(["a b"])


def _inputs(rows: list[Row]) -> dict[str, Any]:
    """Rows of the same length as TRL has them: the first observation is the prompt, and later ones are masked."""
    ids = torch.tensor([row.ids for row in rows])
    return {
        "prompt_ids": ids[:, :SHOWN],
        "prompt_mask": torch.ones_like(ids[:, :SHOWN]),
        "completion_ids": ids[:, SHOWN:],
        "completion_mask": torch.ones_like(ids[:, SHOWN:]),
        "tool_mask": torch.tensor([row.counts for row in rows])[:, SHOWN:],
        "advantages": torch.tensor([row.advantages for row in rows])[:, SHOWN:],
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One variant, in this process; its gradient is written to a file."""
    batch = episodes(arguments.episodes, arguments.turns)
    if arguments.variant == "trl":
        learner, forward_backward = trls(batch, arguments.micro_batch_tokens, arguments.trl)
    else:
        learner, forward_backward = ours(batch, arguments.micro_batch_tokens, arguments.variant == "merged")
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-6, fused=True)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    base, times = pages * resource.getpagesize(), []
    for index in range(arguments.rounds):
        optimizer.zero_grad()
        begun = time.process_time()
        forward_backward()
        if index == 0:
            gradient = torch.cat([p.grad.flatten() for p in learner.parameters() if p.grad is not None])
            torch.save(gradient, arguments.gradient)
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        times.append(time.process_time() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sampled = arguments.episodes * arguments.turns * SAMPLED
    return {"tokens_per_second": round(sampled / min(times)), "memory": round((peak - base) / (1 << 20))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="", metavar="FOLDER")
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro-batch-tokens", type=int, default=2048)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--gradient", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.variant:
        print(json.dumps(measure(arguments)))
        return
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant in VARIANTS if arguments.trl else VARIANTS[:-1]:
            command = [sys.executable, *sys.argv, "--variant", variant, "--gradient", f"{folder}/{variant}"]
            done = subprocess.run(
                command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True
            )
            found[variant] = json.loads(done.stdout.splitlines()[-1])
            unit, other = (
                torch.nn.functional.normalize(torch.load(f"{folder}/{v}"), dim=0) for v in ("merged", variant)
            )
            found[variant]["gradient_difference"] = float((unit - other).norm())
    ratios = {v: round(found["merged"]["tokens_per_second"] / found[v]["tokens_per_second"], 2) for v in found}
    print(json.dumps({"benchmark": "learner_speed", "turns": arguments.turns, **found, "merged_is_faster_by": ratios}))


if __name__ == "__main__":
    main()
