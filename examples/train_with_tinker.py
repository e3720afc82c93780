"""A group of episodes as the Tinker cookbook rolls it out, with per-agent advantages; the model is a stand-in.

    pip install torch==2.13.0 && pip install 'marl-gem[tinker]'
    python examples/train_with_tinker.py

With a key, `TinkerTokenCompleter(sampling_client, max_tokens=...)` takes the part of `RandomCompleter`, and
`tinker_cookbook.rl.train` trains on `SeatGroupBuilder`s from a data set.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollouts import do_group_rollout

from marl_gem.integrations import SeatRunner, Start
from marl_gem.integrations.tinker import SeatGroupBuilder
from marl_gem.trainers.tiny import tiny_tokenizer


class RandomCompleter(TokenCompleter):  # type: ignore[misc]
    """Answers "[bet]" or "[check]", each as often as the other."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.random = tokenizer, random.Random(0)

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> TokensWithLogprobs:
        tokens = [*self.tokenizer.encode(self.random.choice(["[bet]", "[check]"])), stop[0]]
        return TokensWithLogprobs(tokens, [-0.7] * len(tokens))


def main() -> None:
    tokenizer = tiny_tokenizer(["[bet]", "[check]", "[call]", "[fold]"] * 2)
    runner = SeatRunner("game:KuhnPoker-v0", tokenizer=tokenizer)
    group = asyncio.run(do_group_rollout(SeatGroupBuilder(runner, Start(0), episodes=6), RandomCompleter(tokenizer)))
    (advantages,) = compute_advantages([group])
    data, _ = assemble_training_data([group], [advantages])
    print(f"{len(group.trajectories_G)} trajectories of {', '.join(runner.seats)}, {len(data)} sequences to train on")
    for trajectory, metrics, advantage in zip(group.trajectories_G, group.metrics_G, advantages.tolist(), strict=True):
        print(f"{len(trajectory.transitions)} turns, {metrics}, advantage {advantage:+.2f}")


if __name__ == "__main__":
    main()
