"""What a run needs of memory, before it starts."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from marl_gem.errors import ConfigError
from marl_gem.trainers import memory_plan
from marl_gem.trainers.backends.adapters import SharedBase
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory, enable_checkpointing, prepare
from marl_gem.trainers.memory_plan import GIB, MemoryPlan, Part, architecture, check_memory, plan_memory
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.sections import PolicyConfig, TrainConfig, TrainingConfig, TrainingScenario, VLLMConfig
from tests.trainers.support import kuhn
from tests.trainers.test_backend import tokenizer


def qwen3(hidden: int, inner: int, layers: int, heads: int, vocabulary: int = 151_936) -> PreTrainedModel:
    """A Qwen3 of these sizes without numbers."""
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=128, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("meta"):
        return Qwen3ForCausalLM(config)


def config(policy: PolicyConfig | None = None, **training: object) -> TrainConfig:
    return TrainConfig(
        scenarios=(TrainingScenario(id="game:KuhnPoker-v0"),),
        device="cpu",
        policy=policy or PolicyConfig(),
        training=TrainingConfig(**training),  # type: ignore[arg-type]
    )


def both(network: PreTrainedModel) -> dict[str, PreTrainedModel]:
    """Two policies with models of the same kind."""
    return {"user": network, "assistant": network}


def size(parts: tuple[Part, ...], word: str) -> float:
    """In GiB, of the parts whose names hold a word."""
    return sum(part.total for part in parts if word in part.name) / GIB


TOKENS = 128
GPT2 = GPT2Config(vocab_size=300, n_embd=64, n_layer=6, n_head=2, n_positions=TOKENS, bos_token_id=0, eos_token_id=0)
QWEN3 = Qwen3Config(
    vocab_size=300, hidden_size=64, intermediate_size=192, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16,
)  # fmt: skip


class TestArithmetic:
    def test_two_adapters_over_a_model_of_1_7_billion_parameters(self) -> None:
        network = qwen3(2048, 6144, 28, 16)
        adapters = PolicyConfig(start_from="x", lora_rank=32)
        found = plan_memory(config(adapters, precision="bfloat16", pool_size=8), both(network))
        assert network.num_parameters() == pytest.approx(1.72e9, rel=0.01)
        assert architecture(network, config(adapters)).adapter == pytest.approx(34.9e6, rel=0.01)
        everything = found.static_bytes + sum(part.total for part in found.host)
        assert everything < 12 * GIB
        assert found.checkpoint < 2 * GIB
        full = plan_memory(config(pool_size=8), both(network))
        assert full.static_bytes + sum(part.total for part in full.host) > 150 * GIB

    def test_an_adapter_has_as_many_numbers_as_peft_gives_it(self) -> None:
        model = qwen3(64, 96, 2, 2, 300).to_empty(device="cpu")
        adapter = SharedBase(model, rank=4, alpha=4).adapter("a", seed=0)
        with torch.device("meta"):
            bare = Qwen3ForCausalLM(model.config)
        expected = sum(value.numel() for value in adapter.parameters())
        assert architecture(bare, config(PolicyConfig(start_from="x", lora_rank=4))).adapter == expected

    @pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "computed again"])
    @pytest.mark.parametrize("kind", ["GPT-2", "Qwen3"])
    def test_activations_are_those_that_torch_keeps(self, kind: str, checkpointing: bool) -> None:
        """Of four layers, counted on small models: within a factor of 1.2, and 1.1 below that."""
        (small, few), (large, many) = (kept_and_planned(kind, layers, checkpointing) for layers in (2, 6))
        assert (many - few) / 1.2 < large - small <= 1.1 * (many - few)
        assert large < 1.1 * many


def kept_and_planned(kind: str, layers: int, checkpointing: bool) -> tuple[float, float]:
    """The bytes that torch keeps of one row for the gradient, and those that are planned for it."""
    config_of = copy.deepcopy(QWEN3 if kind == "Qwen3" else GPT2)
    config_of.num_hidden_layers = layers
    model = Qwen3ForCausalLM(config_of) if kind == "Qwen3" else GPT2LMHeadModel(config_of)
    if checkpointing:
        enable_checkpointing(model)
    prepare(model, Memory(activation_checkpointing=checkpointing))
    weights = {value.data_ptr() for value in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.base_model(input_ids=torch.arange(TOKENS)[None], use_cache=False)
    settings = config(micro_batch_tokens=TOKENS, activation_checkpointing=checkpointing)
    return sum(kept.values()), size(plan_memory(settings, {"policy": model}).update, "activations") * GIB


class TestPolicies:
    def test_each_counts_with_its_own_model_and_settings(self) -> None:
        large, small = qwen3(1024, 3072, 8, 16), qwen3(64, 96, 2, 2, 300)
        settings = msgspec.structs.replace(
            config(pool_size=8),
            policies={
                "user": {"kl": 0.0, "kl_final": 0.0, "pool_size": 2},
                "assistant": {"algorithm": {"name": "ppo"}},
            },
        )
        found = plan_memory(settings, {"user": small, "assistant": large})
        assert size(found.static, "user's weights") == 4 * small.num_parameters() / GIB
        assert size(found.static, "assistant's optimizer") == 8 * large.num_parameters() / GIB
        assert size(found.static, "critic") == 12 * large.num_parameters() / GIB
        assert size(found.host, "user's reference") == 0 < size(found.host, "assistant's reference")
        assert size(found.host, "user's earlier") == 8 * small.num_parameters() / GIB
        assert size(found.update, "gradients") == 4 * large.num_parameters() / GIB

    def test_a_model_of_several_processes_is_shared_out_and_an_adapter_is_not(self) -> None:
        network = qwen3(1024, 3072, 8, 16)
        alone, four = (plan_memory(config(), both(network), processes) for processes in (1, 4))
        for what in ("weights", "optimizer"):
            assert size(four.static, f"policy's {what}") == pytest.approx(size(alone.static, f"policy's {what}") / 4)
        assert size(four.update, "gradients") == pytest.approx(size(alone.update, "gradients") / 4)
        assert size(alone.static, "to play with") == 0
        assert size(four.static, "to play with") == pytest.approx(size(alone.static, "policy's weights"))
        assert four.device_bytes == alone.device_bytes // 4  # on a CPU all use the same memory
        adapters = config(PolicyConfig(start_from="x", lora_rank=8))
        assert plan_memory(adapters, both(network), 4).static == plan_memory(adapters, both(network)).static

    def test_a_vllm_server_on_the_same_gpu_takes_its_share_and_plays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * GIB, 80 * GIB))
        settings = msgspec.structs.replace(config(), device="cuda", sampler="vllm")
        network = both(qwen3(64, 96, 2, 2, 300))
        assert size(plan_memory(settings, network).static, "vLLM") == pytest.approx(0.4 * 80)
        assert size(plan_memory(settings, network).rollouts, "cache") == 0
        elsewhere = msgspec.structs.replace(settings, vllm=VLLMConfig(gpus="1"))
        assert size(plan_memory(elsewhere, network).static, "vLLM") == 0


class TestRefusal:
    def test_what_cannot_fit_is_refused_with_what_helps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory_plan, "machine_memory", lambda: 30 * GIB)
        network = qwen3(2048, 6144, 28, 16)
        with pytest.raises(ConfigError) as caught:
            check_memory(config(PolicyConfig(start_from="x")), both(network))
        message = str(caught.value)
        assert "but there are 30.00 GiB on cpu" in message
        for change in ("training.micro_batch_tokens=4096", "activation_checkpointing=true", "policy.lora_rank=16"):
            assert f"{change} saves " in message
        cheaper = config(
            PolicyConfig(start_from="x", lora_rank=16), precision="bfloat16", activation_checkpointing=True
        )
        assert check_memory(cheaper, both(network)).fits

    def test_nothing_is_written_then(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory_plan, "machine_memory", lambda: 1 << 20)
        with pytest.raises(ConfigError, match=r"training\.micro_batch_tokens=4096 saves"):
            TrainingRun.start(tmp_path / "run", kuhn())
        assert not (tmp_path / "run").exists()


class TestLines:
    def test_a_small_run_has_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory_plan, "machine_memory", lambda: 16 * GIB)
        run = TrainingRun.start(tmp_path / "run", kuhn())
        assert run.memory is not None
        (line,) = run.memory.lines()
        assert line.startswith("memory: about 1.") and line.endswith(" of 16.00 GiB on cpu")

    def test_a_large_run_lists_what_is_needed(self) -> None:
        part = Part("each policy's weights", 3 * GIB, 2)
        plan = MemoryPlan(
            "cuda", (part,), (Part("logits", GIB),), (Part("cache", 9 * GIB),), (), GIB, 10 * GIB, 99 * GIB
        )
        assert plan.fits and plan.peak_bytes == 15 * GIB and plan.update_bytes == 7 * GIB
        text = "\n".join(plan.lines())
        assert "memory: about 15.00 GiB of 10.00 GiB on cuda" in text
        assert "all the time: each policy's weights 6.00 GiB (2 x 3.00 GiB)" in text
        assert "may not fit" in text


def test_the_reference_of_an_adapter_is_kept_in_the_precision_that_is_computed_in() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    backend = LocalBackend(
        SharedBase(model, rank=2, alpha=2).adapter("a", seed=0), tokenizer(), memory=Memory("bfloat16")
    )
    backend.set_reference()
    assert backend.reference is not None
    assert {value.dtype for value in backend.reference.values()} == {torch.bfloat16}
