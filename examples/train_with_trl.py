"""TRL's GRPOTrainer trains the seats of a scenario, on a CPU, with a tiny model made on the spot.

    pip install torch==2.13.0 && pip install 'marl-gem[trl,textarena]'
    python examples/train_with_trl.py                  # TextArena's tic-tac-toe, both seats
    python examples/train_with_trl.py tau:desk-v0      # a help desk; the user is frozen

For a model of your own, replace `tiny` by a name or a folder, and let GRPOConfig use vLLM.
"""

from __future__ import annotations

import sys
import tempfile

from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig

import marl_gem
from marl_gem.integrations import SeatRunner
from marl_gem.integrations.trl import PerAgentGRPOTrainer, Rollout, starts
from marl_gem.rollout import Job, collect
from marl_gem.specs import load_policy
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer

OTHERS = {"tau:desk-v0": {"user": "scripted:expert"}}
"""Who holds the seats that are not trained; none in the other scenarios."""


def main(scenario: str = "ta:TicTacToe-v0", steps: int = 2) -> None:
    others = OTHERS.get(scenario, {})
    tokenizer = tokenizer_for(scenario)
    model = tiny_model(tokenizer, width=32, layers=1, heads=2, context=2048)
    runner = SeatRunner(scenario, others=others, tokenizer=tokenizer)
    print(f"{scenario}: {', '.join(runner.seats)} learn, against {others or 'each other'}")
    rollout = Rollout(runner)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            num_generations=4,  # episodes from the same start
            max_completion_length=12,  # tokens of one turn
            learning_rate=1e-3,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        )
        trainer = PerAgentGRPOTrainer(
            model,
            rollout.reward,
            args=config,
            train_dataset=starts(range(16)),
            processing_class=tokenizer,
            rollout_func=rollout,
        )
        trainer.train()
    for entry in trainer.state.log_history[:steps]:
        print(f"step {entry['step']}: mean return {entry['reward']:+.2f}, gradient {entry['grad_norm']:.3f}")


def tokenizer_for(scenario: str) -> PreTrainedTokenizerFast:
    """A tokenizer made of what random play shows in a few episodes."""
    played = collect(lambda: marl_gem.make(scenario), [Job(seed, load_policy("random", scenario)) for seed in range(8)])
    texts = [str(turn.observation) for episode in played for turn in episode.turns]
    texts += [role.instructions for episode in played for role in episode.roles.values()]
    texts += [turn.response.text for episode in played for turn in episode.turns]
    tokenizer = tiny_tokenizer(texts)
    tokenizer.padding_side = "left"
    return tokenizer


if __name__ == "__main__":
    main(*sys.argv[1:2])
