"""Policies that are adapters over one pretrained model: the model from its folder, adapters from a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from marl_gem.errors import CheckpointError, ConfigError
from marl_gem.llm.pretrained import load_pretrained, not_finite
from marl_gem.trainers.backends.adapters import ADAPTER, AdapterModel, SharedBase
from marl_gem.trainers.sections import PolicyConfig

BaseKey: TypeAlias = tuple[str, tuple[str, ...]]
"""What policies agree on that are adapters over one model: its folder, and the layers that are adapted."""

Base: TypeAlias = tuple[SharedBase, PreTrainedTokenizerBase]


def base_key(policy: PolicyConfig) -> BaseKey:
    """The model over which a policy is an adapter."""
    return policy.start_from, policy.lora_targets


def load_bases(policies: Iterable[PolicyConfig], *, half: bool) -> dict[BaseKey, Base]:
    """The models that policies share of which they are adapters, each once; see `load_base`."""
    distinct = {base_key(policy): policy for policy in policies if policy.lora_rank}
    return {key: load_base(policy, half=half) for key, policy in distinct.items()}


def load_base(policy: PolicyConfig, *, half: bool) -> tuple[SharedBase, PreTrainedTokenizerBase]:
    """The model that a configuration's adapters share, and its tokenizer.

    Args:
        policy: names the model's folder, and the size of the adapters.
        half: whether the model's weights, which do not learn, are bfloat16.

    Raises:
        CheckpointError: the folder holds no complete model.
        ConfigError: the model cannot be adapted so.
    """
    model, tokenizer = load_pretrained(policy.start_from, torch.bfloat16 if half else torch.float32)
    model.config.name_or_path = policy.start_from
    return SharedBase(model, rank=policy.lora_rank, alpha=policy.lora_alpha, targets=policy.lora_targets), tokenizer


def load_adapter(shared: SharedBase, name: str, folder: Path, policy: PolicyConfig) -> AdapterModel:
    """The adapter of a policy from its folder in a checkpoint.

    Raises:
        CheckpointError: it is damaged, or of another model.
    """
    adapter = shared.adapter(name, seed=0, rank=policy.lora_rank, alpha=policy.lora_alpha)
    try:
        weights = {key.removeprefix("base_model.model."): value for key, value in load_file(folder / ADAPTER).items()}
        if broken := not_finite(weights):
            raise ValueError(f"{broken} holds numbers that are not finite")
        adapter.load_state_dict(weights)
    except (OSError, SafetensorError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{folder / ADAPTER} cannot be used: {error}") from error
    return adapter


def fingerprints(policies: Iterable[PolicyConfig]) -> str:
    """What tells the models apart over which policies are adapters, see `fingerprint`; empty if none is."""
    folders = dict.fromkeys(policy.start_from for policy in policies if policy.lora_rank)
    return "+".join(map(fingerprint, folders))


def fingerprint(folder: str) -> str:
    """What tells a model's folder from another: a hash of its configuration, and of the names, sizes and headers of its
    weights' files. It reads no weights.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for file in sorted(Path(folder).glob("*.safetensors")):
            with file.open("rb") as stream:
                digest.update(f"{file.name} {file.stat().st_size}".encode() + stream.read(1 << 16))
        digest.update((Path(folder) / "config.json").read_bytes())
    except OSError as error:
        raise CheckpointError(
            f"the model {folder!r}, over which the adapters were trained, cannot be read: {error}. Put it back in its "
            "place, as seen from the working directory"
        ) from error
    return digest.hexdigest()
