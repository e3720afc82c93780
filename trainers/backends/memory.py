"""How an update saves memory and time: precision, activation checkpointing, packing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from marl_gem.errors import ConfigError, TrainingError
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel


class Memory(NamedTuple):
    """How memory is saved; see the fields of the same names in `TrainingConfig`."""

    precision: Literal["float32", "bfloat16"] = "float32"
    activation_checkpointing: bool = False
    packing: bool = False


DEFAULT_MEMORY = Memory()


def autocast(model: CausalModel, memory: Memory) -> AbstractContextManager[object]:
    """Compute in bfloat16 where that loses little, if so configured; the weights stay what they are."""
    if memory.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(model.device.type, torch.bfloat16)


@contextlib.contextmanager
def out_of_memory_explained(model: CausalModel, memory: Memory, micro_batch_tokens: int) -> Iterator[None]:
    """Turn an allocation that failed into an error that says what takes less memory.

    Raises:
        TrainingError: there was not enough memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's own for a GPU is a RuntimeError, and on a CPU nothing more
        if not _is_out_of_memory(error):
            raise
        options = {
            "policy.lora_rank = 16": not isinstance(model, AdapterModel),
            "training.activation_checkpointing = true": not memory.activation_checkpointing,
            "training.packing = true": not memory.packing,
            'training.precision = "bfloat16"': memory.precision == "float32",
        }
        advice = ", ".join(option for option, helps in options.items() if helps)
        rest = f", or set {advice}" if advice else ""
        raise TrainingError(
            f"out of memory in an update ({str(error).splitlines()[0][:200]}). Lower training.micro_batch_tokens (now "
            f"{micro_batch_tokens}); the gradient stays the same{rest}. The checkpoints that were written are complete"
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(text in str(error) for text in ("not enough memory", "can't allocate memory", "out of memory"))


def enable_checkpointing(model: CausalModel) -> None:
    """Let the model keep the inputs of its layers alone, and compute the rest again for the gradient.

    Raises:
        ConfigError: its layers cannot do that.
    """
    network = _network(model)
    if not any(isinstance(part, GradientCheckpointingLayer) for part in network.modules()):
        raise ConfigError(f"training.activation_checkpointing: {type(network).__name__} has no layers that can do that")
    options = {"use_reentrant": False}
    if hasattr(network, "activation_checkpointing_enable"):
        network.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
    else:  # transformers before 5.20
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def prepare(model: CausalModel, memory: Memory) -> None:
    """Before gradients are computed.

    The model computes as it sampled, without dropout: that would make it another policy, and draw from torch's own
    generator. Layers that are checkpointed count as training, and their parts do not.
    """
    model.eval()
    if memory.activation_checkpointing:
        for part in _network(model).modules():
            if isinstance(part, GradientCheckpointingLayer):
                part.training = True


def check_packing(model: CausalModel) -> None:
    """Check that the model keeps rows apart that lie one after the other, told by their positions alone.

    Raises:
        ConfigError: it does not.
    """
    vocabulary = int(model.config.get_text_config().vocab_size)
    first, second = ([index % vocabulary for index in part] for part in ([5, 6, 7], [8, 9]))
    device = model.device

    def states(ids: list[int], positions: list[int]) -> torch.Tensor:
        found: torch.Tensor = model.base_model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
        ).last_hidden_state
        return found[0]

    model.eval()
    with torch.no_grad():
        together, alone = states(first + second, [0, 1, 2, 0, 1])[len(first) :], states(second, [0, 1])
    tolerance = 1e-4 if alone.dtype in (torch.float32, torch.float64) else 5e-2
    if not torch.allclose(together, alone, atol=tolerance * float(alone.abs().max()), rtol=0.0):
        raise ConfigError(
            f"training.packing: {type(_network(model)).__name__} mixes rows that lie one after the other; set it to "
            "false, so that rows are padded"
        )


def _network(model: CausalModel) -> PreTrainedModel:
    return model.shared.model if isinstance(model, AdapterModel) else model
