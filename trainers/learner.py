"""A policy that learns: a model with its optimizer, who answers for it, and its earlier versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.errors import ConfigError
from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.backends.adapters import CausalModel
from marl_gem.trainers.backends.base import Backend, Weights
from marl_gem.trainers.backends.frozen import FrozenModel
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.config import TrainConfig
from marl_gem.trainers.critic import TurnCritic
from marl_gem.trainers.opponent_pool import OpponentPool, Snapshot
from marl_gem.trainers.samplers.base import Sampler
from marl_gem.trainers.samplers.in_process import InProcessSampler


@dataclass
class Learner:
    """The parts of a policy that learns, which know nothing of one another; a critic if the algorithm needs one."""

    backend: Backend
    sampler: Sampler
    pool: OpponentPool
    critic: TurnCritic | None = None


def make_learner(
    name: str,
    config: TrainConfig,
    model: CausalModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    version: int = 0,
    reference: Weights | None = None,
    snapshots: Sequence[Snapshot] = (),
) -> Learner:
    """A learner in this process, on the configuration's device.

    Args:
        name: goes into records.
        config: the run's.
        model, tokenizer: what learns.
        version: how many updates the model has had.
        reference: what it is pulled to.
        snapshots: its earlier versions.
    """
    model = model.to(device(config.device))
    frozen = FrozenModel(model)
    backend = LocalBackend(
        model,
        tokenizer,
        frozen,
        temperature=config.policy.temperature,
        micro_batch_tokens=config.training.micro_batch_tokens,
        memory=Memory(config.training.precision, config.training.activation_checkpointing, config.training.packing),
    )
    backend.version, backend.reference = version, reference
    sampler = InProcessSampler(name, model, tokenizer, config.policy, frozen)
    sampler.sync(backend)
    pool = OpponentPool(config.training.pool_size, config.training.snapshot_every, snapshots)
    needs = make_algorithm(config.algorithm.name, config.algorithm.options).needs
    critic = TurnCritic(model, micro_batch_tokens=config.training.micro_batch_tokens) if needs.critic else None
    return Learner(backend, sampler, pool, critic)


def device(name: str) -> torch.device:
    """The device with this name; "auto" is a GPU if there is one.

    Raises:
        ConfigError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device: {name!r} cannot be used here: {str(error).splitlines()[0]}. Choose cpu, or auto for a GPU if "
            "there is one"
        ) from error
    if found.type == "meta":
        raise ConfigError("device: 'meta' holds no numbers; choose cpu, cuda, mps or auto")
    return found


def load_pretrained(folder: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model and its tokenizer from a folder, in the layout of transformers; nothing is downloaded.

    The weights are float32 whatever the folder holds: in bfloat16 most steps of a small learning rate round to nothing.

    Raises:
        ConfigError: the folder holds none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        return model, tokenizer
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder!r} holds no transformers model with a tokenizer: {error}") from error


def check_pretrained(folder: str) -> None:
    """Read of a model in a folder what is read quickly: its configuration and its tokenizer.

    Raises:
        ConfigError: the folder holds none, or a tokenizer without what a conversation needs.
    """
    try:
        AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder!r} holds no transformers model with a tokenizer: {error}") from error
    if tokenizer.chat_template is None or tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer in {folder!r} needs a chat template and an end-of-sequence token")
