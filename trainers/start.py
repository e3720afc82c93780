"""The beginning of a run: its models, from a folder or made on the spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.llm.pretrained import load_pretrained
from marl_gem.seeding import derive_seed
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel, SharedBase
from marl_gem.trainers.check import imitates
from marl_gem.trainers.demonstrations import collect_demonstrations, demonstration_texts
from marl_gem.trainers.episode_plan import seed_part
from marl_gem.trainers.learner import Learner, make_learner
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.schedule import learner_seats, training_phases
from marl_gem.trainers.sections import PolicyConfig, TrainConfig
from marl_gem.trainers.shared_base import load_adapter, load_base, load_merged
from marl_gem.trainers.starting_point import shared_model, starting_point
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from marl_gem.types import Episode


def start(config: TrainConfig) -> tuple[TrainingLoop, list[list[Episode]]]:
    """A new run's loop, with untrained or pretrained policies, and the demonstrations for its warm start.

    The demonstrations are those of each scenario; none if nothing is to be imitated.
    """
    set_threads(config)
    names = learner_seats(training_phases(config, [s.spec.inspect().agents for s in config.scenarios]))
    demonstrations = collect_demonstrations(config) if imitates(config, names) else [[] for _ in config.scenarios]
    return TrainingLoop(config, _learners(config, list(names), demonstrations)), demonstrations


def set_threads(config: TrainConfig) -> None:
    """Let torch use as many CPU threads as the configuration says."""
    if config.threads:
        torch.set_num_threads(config.threads)


def record_name(name: str, config: TrainConfig) -> str:
    """What a policy is called in records: the name it has in the seats, or what is trained if it holds them all."""
    return config.title if config.is_self_play else name


def _learners(
    config: TrainConfig, names: Sequence[str], demonstrations: Sequence[Sequence[Episode]]
) -> dict[str, Learner]:
    """A learner for each policy: an adapter, a pretrained model, or a tiny one with random weights."""
    configs = {name: for_policy(config, name) for name in names}
    adapted = [name for name, mine in configs.items() if mine.policy.lora_rank]
    shared = _shared(config, configs, adapted) if adapted else None
    tokenizers: dict[str, PreTrainedTokenizerBase] = {}  # of tiny models
    learners = {}
    for name, mine in configs.items():
        model: CausalModel
        if shared and name in adapted:
            base, tokenizer = shared
            model = _adapter(mine, name, base)
        elif mine.policy.start_from:
            model, tokenizer = _own_model(config, name)
        else:
            split = mine.policy.tokens
            if split not in tokenizers:
                tokenizers[split] = _tokenizer(demonstrations, split)
            tokenizer = tokenizers[split]
            model = _tiny(mine.policy, tokenizer, derive_seed(config.seed, "weights", *seed_part(name)))
        learners[name] = make_learner(record_name(name, config), mine, model, tokenizer)
    return learners


def _shared(
    config: TrainConfig, configs: Mapping[str, TrainConfig], adapted: Sequence[str]
) -> tuple[SharedBase, PreTrainedTokenizerBase]:
    """The model over which some policies are adapters."""
    half = config.training.precision == "bfloat16"
    return load_base(configs[adapted[0]].policy, shared_model(config, adapted), half=half)


def _adapter(config: TrainConfig, name: str, shared: SharedBase) -> AdapterModel:
    """A new adapter, or the one of another run."""
    policy = config.policy
    if trained := starting_point(config, name).adapter:
        return load_adapter(shared, name, trained, policy)
    seed = derive_seed(config.seed, "adapter", *seed_part(name))
    return shared.adapter(name, seed=seed, rank=policy.lora_rank, alpha=policy.lora_alpha)


def _own_model(config: TrainConfig, name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model from its folder; one that was trained as an adapter is merged with its base."""
    point = starting_point(config, name)
    if point.adapter and point.policy:
        return load_merged(point.policy, point.model, point.adapter)
    return load_pretrained(point.model)


def _tokenizer(
    demonstrations: Sequence[Sequence[Episode]], split: Literal["lines", "words"]
) -> PreTrainedTokenizerBase:
    """A tokenizer made for what is said in the demonstrations."""
    episodes = [episode for of_scenario in demonstrations for episode in of_scenario]
    has_tools = any(role.tools for episode in episodes for role in episode.roles.values())
    return tiny_tokenizer(demonstration_texts(episodes), split=split, tools=has_tools)


def _tiny(size: PolicyConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    return tiny_model(
        tokenizer, width=size.width, layers=size.layers, heads=size.heads, context=size.context, seed=seed
    )
