"""A policy that learns: a model with its optimizer, who answers for it, and its earlier versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from marl_gem.errors import ConfigError
from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.backends import ranks
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel
from marl_gem.trainers.backends.base import Backend, Weights
from marl_gem.trainers.backends.frozen import FrozenModel
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.backends.memory import Memory
from marl_gem.trainers.critic import TurnCritic
from marl_gem.trainers.opponent_pool import OpponentPool, Snapshot
from marl_gem.trainers.samplers.base import Sampler
from marl_gem.trainers.samplers.in_process import InProcessSampler
from marl_gem.trainers.sections import TrainConfig


@dataclass
class Learner:
    """The parts of a policy that learns, which know nothing of one another; a critic if the algorithm needs one.

    `base` is the folder of the model over which the policy is an adapter; empty if it is a model of its own.
    """

    backend: Backend
    sampler: Sampler
    pool: OpponentPool
    critic: TurnCritic | None = None
    base: str = ""


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
    training = config.training
    memory = Memory(training.precision, training.activation_checkpointing, training.packing)
    options: dict[str, Any] = {
        "temperature": config.policy.temperature,
        "micro_batch_tokens": training.micro_batch_tokens,
        "memory": memory,
        "momentum": training.momentum,
    }
    frozen = FrozenModel(model)
    backend: LocalBackend
    if ranks.count() > 1:
        from marl_gem.trainers.backends.sharded import make_sharded  # which takes long to import

        backend, model, frozen = make_sharded(model, tokenizer, options)
    else:
        backend = LocalBackend(model, tokenizer, frozen, **options)
    backend.version, backend.reference = version, reference
    sampler = InProcessSampler(name, model, tokenizer, config.policy, frozen)
    sampler.sync(backend)
    pool = OpponentPool(config.training.pool_size, config.training.snapshot_every, snapshots)
    sampler.llm.autocast = config.training.precision == "bfloat16"
    critic = None
    if make_algorithm(config.algorithm.name, config.algorithm.options).needs.critic:
        critic = TurnCritic(model, micro_batch_tokens=config.training.micro_batch_tokens, memory=memory)
    base = model.config.name_or_path if isinstance(model, AdapterModel) else ""
    return Learner(backend, sampler, pool, critic, base)


def device(name: str) -> torch.device:
    """The device with this name; "auto" is a GPU if there is one.

    Raises:
        ConfigError: there is no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
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
