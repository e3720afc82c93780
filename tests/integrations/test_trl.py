"""TRL's GRPOTrainer, with a model of one layer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
pytest.importorskip("trl")

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from marl_gem.errors import ConfigError, MarlGemError
from marl_gem.integrations import SeatRunner, turn_advantages
from marl_gem.integrations.tool_environment import tool_environment
from marl_gem.integrations.trl import PerAgentGRPOTrainer, Rollout, starts
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from tests.docs.pages import ROOT, run
from tests.toys import NumberGame, always

pytestmark = pytest.mark.slow


def trainer_of(runner: SeatRunner, folder: Path, tokenizer: Any, cls: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "max_steps": 1,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 4,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    } | options
    rollout = Rollout(runner)
    model = tiny_model(tokenizer, width=16, layers=1, heads=1, context=256)
    return rollout, cls(
        model,
        rollout.reward,
        args=GRPOConfig(output_dir=str(folder), **settings),
        train_dataset=starts(range(8)),
        processing_class=tokenizer,
        rollout_func=rollout,
    )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    found = tiny_tokenizer(["You are a.", "You are b.", "1", "2", "3", *(f"step {step}" for step in range(5))] * 2)
    found.padding_side = "left"
    return found


class FirstDigit(NumberGame):
    """The first digit of an answer is its reward, so that a random model is rewarded now and then."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions({a: next((c for c in text if c in "123"), "0") for a, text in actions.items()})


def test_both_seats_are_trained_with_the_advantages_of_their_turns(tokenizer: Any, tmp_path: Path) -> None:
    runner = SeatRunner(FirstDigit, tokenizer=tokenizer)
    rollout, trainer = trainer_of(runner, tmp_path, tokenizer, PerAgentGRPOTrainer)
    outputs = []

    def keep(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        outputs.append(PerAgentGRPOTrainer._generate_and_score_completions(trainer, inputs))
        return outputs[-1]

    trainer._generate_and_score_completions = keep
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    assert len(rollout.episodes) == 4  # the episodes of one prompt give the rows of both seats
    assert len({episode.seed for episode in rollout.episodes}) == 1
    expected = turn_advantages(rollout.episodes)
    assert any(value for values in expected.values() for value in values)
    (output,) = outputs
    for row, (episode, seat) in enumerate((e, seat) for seat in runner.seats for e in rollout.episodes):
        found = []
        for turn, value in zip(episode.turns_of(seat), expected[episode.id, seat], strict=True):
            found += [value] * len(turn.response.token_ids)
        mask = (output["completion_mask"] * output["tool_mask"])[row].bool()
        assert output["advantages"][row][mask].tolist() == pytest.approx(found)
        assert output["advantages"][row][~mask].eq(0).all()
        shown = output["completion_ids"][row][output["completion_mask"][row].bool()].tolist()
        last = episode.turns_of(seat)[-1].response
        assert (*episode.turns_of(seat)[0].response.prompt_ids, *shown) == (*last.prompt_ids, *last.token_ids)


def test_batches_that_do_not_fit_and_episodes_that_fail_are_refused(tokenizer: Any, tmp_path: Path) -> None:
    _, trainer = trainer_of(
        SeatRunner(FirstDigit, tokenizer=tokenizer),
        tmp_path,
        tokenizer,
        PerAgentGRPOTrainer,
        per_device_train_batch_size=4,
    )
    with pytest.raises(ConfigError, match="4 prompts in this process are no multiple of 4 generations times 2 seats"):
        trainer.train()
    runner = SeatRunner(FirstDigit, others={"b": always("break")}, tokenizer=tokenizer)
    runner.spec = SeatRunner(NumberGame, others={"b": always("break")}).spec
    with pytest.raises(MarlGemError, match="every episode of NumberGame failed, in env"):
        trainer_of(runner, tmp_path, tokenizer, PerAgentGRPOTrainer)[1].train()


@pytest.mark.parametrize("scenario", ["ta:TicTacToe-v0", "tau:desk-v0"])
def test_the_example_trains(scenario: str, tmp_path: Path) -> None:
    output = run([str(ROOT / "examples" / "train_with_trl.py"), scenario], tmp_path)
    assert "step 2: mean return" in output


def test_a_tool_environment_is_played_by_trls_own_tool_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's answers are scripted: it takes two turns, and then says something without a call."""
    tokenizer: Any = tiny_tokenizer(["1", "2", "3"] * 2)
    tokenizer.padding_side = "left"
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})
    tokenizer.chat_template = qwen3_chat_template
    config = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=400,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    prompt = [{"role": "user", "content": "Play. "}]
    environment = tool_environment(SeatRunner(NumberGame, others={"b": always("1")}))
    trainer = GRPOTrainer(
        tiny_model(tokenizer, width=16, layers=1, heads=1, context=2048),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt, "start": str(seed)} for seed in range(4)]),
        processing_class=tokenizer,
        environment_factory=environment,
    )
    turns = iter(["act 3", "act 2", "done"])

    def scripted(prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        action = next(turns).partition(" ")[2]
        text = (
            f'<tool_call>\n{{"name": "act", "arguments": {{"action": "{action}"}}}}\n</tool_call>' if action else "done"
        )
        ids = [*tokenizer.encode(text), tokenizer.eos_token_id]
        return [list(ids) for _ in prompt_ids], None

    monkeypatch.setattr(trainer, "_generate_single_turn", scripted)
    trainer.train()
    assert trainer.state.log_history[0]["reward"] == 5.0
    assert trainer.state.log_history[0]["tools/failure_frequency"] == 0
