"""Learning rates over a phase, and how fast an update is."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from marl_gem.errors import TrainingError
from marl_gem.trainers.algorithms import TokenBatch, policy_gradient
from marl_gem.trainers.backends.adapters import SharedBase
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.backends.utilization import peak_flops, update_flops
from marl_gem.trainers.rows import merge
from marl_gem.trainers.schedule import cosine, learning_rate
from marl_gem.trainers.sections import TrainingConfig
from tests.trainers.support import babble, warmed_up
from tests.trainers.test_backend import conversation, tiny, tokenizer
from tests.trainers.test_memory import qwen


class TestLearningRate:
    def test_by_default_it_falls_along_a_cosine(self) -> None:
        config = TrainingConfig(learning_rate=0.3)
        assert [learning_rate(config, done, 10) for done in range(10)] == [cosine(0.3, done, 10) for done in range(10)]

    @pytest.mark.parametrize(
        ("schedule", "expected"), [("linear", [1.0, 0.775, 0.55, 0.325]), ("constant", [1.0, 1.0, 1.0, 1.0])]
    )
    def test_or_along_a_line_or_not(self, schedule: str, expected: list[float]) -> None:
        config = TrainingConfig(learning_rate=1.0, learning_rate_schedule=schedule)  # type: ignore[arg-type]
        assert [learning_rate(config, done, 4) for done in range(4)] == pytest.approx(expected)

    def test_it_grows_first(self) -> None:
        config = TrainingConfig(learning_rate=1.0, learning_rate_schedule="constant", warmup_updates=3)
        assert [learning_rate(config, done, 6) for done in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]

    @pytest.mark.usefixtures("babble_games")
    def test_each_update_takes_its_own(self, steps: list[dict[str, float]]) -> None:
        options = ("training.learning_rate_schedule=linear", "training.warmup_updates=1", "training.learning_rate=0.01")
        loop, _ = warmed_up(babble("Babble", dict.fromkeys("abc", "policy"), *options))
        steps.clear()
        for _ in range(3):
            loop.update()
        assert [step["learning_rate"] for step in steps] == pytest.approx([0.005, 0.007, 0.004])


class TestSpeed:
    @pytest.mark.usefixtures("babble_games")
    def test_tokens_are_counted_and_timed(self) -> None:
        loop, _ = warmed_up(babble("Babble", dict.fromkeys("abc", "policy")))
        metrics, episodes = loop.update()
        assert metrics["tokens"] == sum(len(turn.response.token_ids) for e in episodes for turn in e.turns)
        assert metrics["tokens_per_second"] > 0 and "mfu" not in metrics

    @pytest.mark.parametrize("adapters", [False, True])
    @pytest.mark.parametrize("model", [tiny(), qwen()], ids=["GPT-2", "Qwen3"])
    def test_the_operations_of_an_update_are_those_that_torch_counts(
        self, model: PreTrainedModel, adapters: bool
    ) -> None:
        """But for attention, which torch counts over all tokens and we over those before, and the adapters' own."""
        rows = merge([conversation(random.Random(1), 8)], fold=True)
        learner = SharedBase(model, rank=1, alpha=1).adapter("a", seed=0) if adapters else model
        backend = LocalBackend(learner, tokenizer(), memory=Memory(packing=True))
        expected = update_flops(learner, rows)
        with FlopCounterMode(display=False) as counter:
            backend.forward_backward(rows, policy_gradient, denominator=1)
        assert counter.get_total_flops() == pytest.approx(expected, rel=0.25)

    def test_a_peak_is_known_for_gpus_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert peak_flops(torch.device("cpu")) is None
        for name, peak in (("NVIDIA H100 80GB HBM3", 9.89e14), ("NVIDIA L40S", 3.62e14), ("Some other", None)):
            monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
            assert peak_flops(torch.device("cuda")) == peak


class TestOutOfMemory:
    def test_it_says_what_to_lower(self) -> None:
        """The allocation is larger than any machine's memory, so that it fails at once."""

        def greedy(tokens: TokenBatch) -> torch.Tensor:
            return policy_gradient(tokens) + torch.empty(1 << 60).sum()

        rows = merge([conversation(random.Random(1), 2)], fold=True)
        backend = LocalBackend(tiny(), tokenizer(), micro_batch_tokens=100)
        with pytest.raises(TrainingError, match=r"Lower training.micro_batch_tokens \(now 100\).*lora_rank.*packing"):
            backend.forward_backward(rows, greedy, denominator=1)

    def test_what_is_set_already_is_not_advised(self) -> None:
        def greedy(tokens: TokenBatch) -> torch.Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

        rows = merge([conversation(random.Random(1), 2)], fold=True)
        adapter = SharedBase(tiny(), rank=1, alpha=1).adapter("a", seed=0)
        backend = LocalBackend(adapter, tokenizer(), memory=Memory("bfloat16", True, True))
        with pytest.raises(TrainingError, match=r"20\.00 GiB.*stays the same\. The checkpoints"):
            backend.forward_backward(rows, greedy, denominator=1)
