"""Policies that are adapters over one pretrained model: the model from its folder, adapters from a checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.errors import CheckpointError, ConfigError
from marl_gem.llm.pretrained import load_pretrained, not_finite
from marl_gem.trainers.backends.adapters import ADAPTER, AdapterModel, SharedBase
from marl_gem.trainers.sections import PolicyConfig


def load_base(policy: PolicyConfig, folder: str | Path, *, half: bool) -> tuple[SharedBase, PreTrainedTokenizerBase]:
    """The model that a configuration's adapters share, and its tokenizer.

    Args:
        policy: says how large the adapters are.
        folder: the model's.
        half: whether the model's weights, which do not learn, are bfloat16.

    Raises:
        CheckpointError: the folder holds no complete model.
        ConfigError: the model cannot be adapted so.
    """
    model, tokenizer = load_pretrained(folder, torch.bfloat16 if half else torch.float32)
    model.config.name_or_path = str(folder)
    return SharedBase(model, rank=policy.lora_rank, alpha=policy.lora_alpha, targets=policy.lora_targets), tokenizer


def load_adapter(shared: SharedBase, name: str, folder: Path, policy: PolicyConfig) -> AdapterModel:
    """The adapter of a policy from its folder in a checkpoint.

    Args:
        shared: the model over which it is one.
        name: of the policy.
        folder: the adapter's.
        policy: says how large the adapter is.

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


def load_merged(
    policy: PolicyConfig, folder: str | Path, adapter: Path
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model of its own that answers as a model with an adapter does, and its tokenizer.

    Args:
        policy: the configuration that the adapter was trained under.
        folder: the model's.
        adapter: the adapter's folder.

    Raises:
        CheckpointError, ConfigError: see `load_base` and `load_adapter`.
    """
    shared, _ = load_base(policy, folder, half=False)
    weights = shared.merged_weights(load_adapter(shared, "merged", adapter, policy).name)
    model, tokenizer = load_pretrained(folder)
    model.load_state_dict(weights)
    return model, tokenizer


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
