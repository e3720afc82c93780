"""How memory is saved: packing, activation checkpointing, bfloat16, adapters. None of it changes what is learned."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from marl_gem.errors import ConfigError
from marl_gem.trainers.algorithms import policy_gradient
from marl_gem.trainers.backends.adapters import CausalModel, SharedBase
from marl_gem.trainers.backends.base import Regularization
from marl_gem.trainers.backends.frozen import copy_weights
from marl_gem.trainers.backends.layout import packs
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.rows import Row, merge
from tests.trainers.test_backend import conversation, tiny, tokenizer, unmerged


def qwen(seed: int = 1) -> PreTrainedModel:
    config = Qwen3Config(
        vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=128,
    )  # fmt: skip
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(config).eval()


MODELS = {"GPT-2": (tiny, 1e-12), "Qwen3": (qwen, 1e-6)}
"""Models, and how near gradients in float64 must be; Qwen's normalization computes in float32 always."""


def rows_of(seed: int) -> tuple[list[Row], list[Row]]:
    """Merged rows, and a row for each transition."""
    rng = random.Random(seed)
    batch = [conversation(rng, rng.randint(1, 5)) for _ in range(9)]
    return merge(batch, fold=True), unmerged(batch)


def gradient(
    model: CausalModel, reference: CausalModel, rows: list[Row], count: int, memory: Memory, **options: Any
) -> tuple[torch.Tensor, dict[str, float]]:
    backend = LocalBackend(model, tokenizer(), memory=memory, **options)
    backend.reference = copy_weights(reference)
    metrics = backend.forward_backward(
        rows, policy_gradient, denominator=count, kl_weight=0.3, regularization=Regularization(entropy_weight=0.1)
    )
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), metrics


class TestGradients:
    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize(
        "memory",
        [Memory(packing=True), Memory(activation_checkpointing=True), Memory("float32", True, True)],
        ids=["packed", "checkpointed", "both"],
    )
    @pytest.mark.parametrize("options", [{}, {"micro_batch_tokens": 60, "logits_at_once": 900}], ids=str)
    def test_they_are_those_of_a_row_for_each_transition(
        self, name: str, memory: Memory, options: dict[str, int]
    ) -> None:
        merged, apart = rows_of(3)
        make, tolerance = MODELS[name]
        expected, naive = gradient(make(1).double(), make(2).double(), apart, len(apart), Memory())
        found, metrics = gradient(make(1).double(), make(2).double(), merged, len(apart), memory, **options)
        assert found.dtype == torch.float64 and expected.norm() > 1e-2
        assert (found - expected).norm() / expected.norm() < tolerance
        assert metrics == pytest.approx(naive, rel=max(tolerance, 1e-9))

    def test_bfloat16_is_near(self) -> None:
        merged, _ = rows_of(4)
        expected, _ = gradient(qwen(1), qwen(2), merged, len(merged), Memory())
        found, _ = gradient(qwen(1), qwen(2), merged, len(merged), Memory("bfloat16", True, True))
        assert found.dtype == torch.float32  # the weights and their gradients stay what they are
        assert 0 < (found - expected).norm() / expected.norm() < 0.1

    def test_log_probabilities_do_not_depend_on_the_layout(self) -> None:
        merged, _ = rows_of(5)
        side_by_side, one_after_another = (
            LocalBackend(qwen().double(), tokenizer(), memory=memory).logprobs(merged)
            for memory in (Memory(), Memory(packing=True))
        )
        for first, second in zip(side_by_side, one_after_another, strict=True):
            assert first == pytest.approx(second, abs=1e-12)

    def test_a_model_that_mixes_packed_rows_is_refused(self) -> None:
        class Mixing(Qwen3ForCausalLM):  # type: ignore[misc]  # transformers' classes have no types
            @property
            def base_model(self) -> object:
                inner = super().base_model

                def forward(position_ids: object = None, **rest: object) -> object:
                    return inner(**rest)

                return forward

        model = Mixing(qwen().config).eval()
        with pytest.raises(ConfigError, match=r"training.packing: Mixing mixes rows"):
            LocalBackend(model, tokenizer(), memory=Memory(packing=True))

    def test_packs_hold_what_fits(self) -> None:
        rows, _ = rows_of(6)
        limit = max(len(row.ids) for row in rows) + 10
        groups = list(packs(rows, limit))
        assert sorted(map(id, (row for group in groups for row in group))) == sorted(map(id, rows))
        assert all(sum(len(row.ids) for row in group) <= limit for group in groups)
        assert len(groups) < len(rows)


class TestAdapters:
    def test_a_fresh_adapter_changes_nothing(self) -> None:
        ids = torch.tensor([[7, 8, 9]])
        expected = qwen()(ids).logits
        adapter = SharedBase(qwen(), rank=4, alpha=8).adapter("a", seed=1)
        assert torch.equal(adapter(ids).logits, expected)

    def test_each_learns_on_its_own_and_the_base_not_at_all(self) -> None:
        merged, _ = rows_of(7)
        base = SharedBase(qwen(), rank=4, alpha=8)
        user, assistant = (base.adapter(name, seed=seed) for name, seed in (("user", 1), ("assistant", 2)))
        learner = LocalBackend(user, tokenizer())
        learner.set_reference()
        for _ in range(3):
            metrics = learner.forward_backward(merged, policy_gradient, denominator=len(merged), kl_weight=0.1)
            assert learner.step(learning_rate=1e-2, max_grad_norm=1.0) > 0
        assert metrics["kl"] > 0
        ids = torch.tensor([[7, 8, 9]])
        expected = qwen()(ids).logits
        assert not torch.allclose(user(ids).logits, expected, atol=1e-3)
        assert torch.equal(assistant(ids).logits, expected)
        fresh = {name: value for name, value in base.model.state_dict().items() if "lora" not in name}
        original = {name.replace(".base_layer", ""): value for name, value in fresh.items()}
        assert all(torch.equal(value, original[name]) for name, value in qwen().state_dict().items())

    @pytest.mark.parametrize("memory", [Memory(), Memory(activation_checkpointing=True), Memory(packing=True)])
    def test_the_gradient_is_that_of_the_adapted_model_alone(self, memory: Memory) -> None:
        """With other adapters beside it, one of them the reference."""
        merged, apart = rows_of(8)

        def adapter(others: int) -> CausalModel:
            base = SharedBase(qwen().double(), rank=4, alpha=8)
            for index in range(others):
                base.adapter(f"other{index}", seed=10 + index)
            found = base.adapter("a", seed=1)
            weights = {name: value.double() for name, value in found.state_dict().items()}
            generator = torch.Generator().manual_seed(0)
            noise = {n: v + torch.randn(v.shape, generator=generator, dtype=v.dtype) * 0.1 for n, v in weights.items()}
            found.load_state_dict(noise)
            return found

        plain = peft.get_peft_model(
            qwen().double(), peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", lora_dropout=0.0)
        )
        peft.set_peft_model_state_dict(plain, {f"base_model.model.{n}": v for n, v in adapter(0).state_dict().items()})
        reference = adapter(0)
        reference.load_state_dict({name: value * 0 for name, value in reference.state_dict().items()})
        expected, _ = gradient(adapter(0), reference, apart, len(apart), Memory())
        found, _ = gradient(adapter(2), reference, merged, len(apart), memory)
        assert (found - expected).norm() / expected.norm() < 1e-6
        ids = torch.tensor([[7, 8, 9]])
        assert torch.allclose(plain(ids).logits, adapter(2)(ids).logits, atol=1e-5)

    def test_over_a_bfloat16_model_they_learn_in_float32(self) -> None:
        adapter = SharedBase(qwen().bfloat16(), rank=4, alpha=8).adapter("a", seed=1)
        learner, (merged, _) = LocalBackend(adapter, tokenizer(), memory=Memory("bfloat16")), rows_of(9)
        for weight in (1e-3, 1e-9):  # the first step makes all weights other than 0
            before = copy_weights(adapter)
            learner.forward_backward(merged, policy_gradient, denominator=len(merged))
            learner.step(learning_rate=weight, max_grad_norm=1.0)
        assert {value.dtype for value in before.values()} == {torch.float32}
        changed = [not torch.equal(value, before[name]) for name, value in copy_weights(adapter).items()]
        assert any(changed)

    def test_peft_reads_what_was_saved(self, tmp_path: Path) -> None:
        merged, _ = rows_of(9)
        adapter = SharedBase(qwen(), rank=4, alpha=8).adapter("a", seed=1)
        learner = LocalBackend(adapter, tokenizer())
        learner.forward_backward(merged, policy_gradient, denominator=len(merged))
        learner.step(learning_rate=1e-1, max_grad_norm=1.0)
        adapter.save_pretrained(tmp_path)
        ids = torch.tensor([[7, 8, 9]])
        restored = peft.PeftModel.from_pretrained(qwen(), str(tmp_path))
        assert torch.allclose(restored(ids).logits, adapter(ids).logits, atol=1e-6)
        assert not torch.allclose(restored(ids).logits, qwen()(ids).logits, atol=1e-3)

    def test_weights_of_another_rank_are_refused(self) -> None:
        first, second = (SharedBase(qwen(), rank=rank, alpha=8).adapter("a", seed=1) for rank in (4, 2))
        with pytest.raises(ConfigError, match="the adapter does not fit the model"):
            first.load_state_dict(second.state_dict())

    @pytest.mark.parametrize("targets", [("nowhere",), ("lm_head",)])
    def test_layers_that_cannot_be_adapted_are_refused(self, targets: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError, match=r"policy\.lora_targets"):
            SharedBase(qwen(), rank=4, alpha=8, targets=targets).adapter("a", seed=1)
