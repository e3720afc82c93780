"""A policy that learns: a model with its optimizer, who answers for it, and its earlier versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.errors import ConfigError
from marl_gem.trainers.backends.base import Backend, Weights
from marl_gem.trainers.backends.frozen import FrozenModel
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.config import TrainConfig
from marl_gem.trainers.opponent_pool import OpponentPool, Snapshot
from marl_gem.trainers.samplers.base import Sampler
from marl_gem.trainers.samplers.in_process import InProcessSampler


@dataclass
class Learner:
    """The three parts of a policy that learns; they know nothing of one another."""

    backend: Backend
    sampler: Sampler
    pool: OpponentPool


def make_learner(
    name: str,
    config: TrainConfig,
    model: PreTrainedModel,
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
    )
    backend.version, backend.reference = version, reference
    sampler = InProcessSampler(name, model, tokenizer, config.policy, frozen)
    sampler.sync(backend)
    return Learner(backend, sampler, OpponentPool(config.training.pool_size, config.training.snapshot_every, snapshots))


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
