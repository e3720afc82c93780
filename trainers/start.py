"""The beginning of a run: its models, from a folder or made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from transformers import PreTrainedTokenizerBase

from marl_gem.llm.pretrained import load_pretrained
from marl_gem.seeding import derive_seed
from marl_gem.trainers.backends.adapters import CausalModel
from marl_gem.trainers.check import imitates
from marl_gem.trainers.demonstrations import collect_demonstrations, demonstration_texts
from marl_gem.trainers.episode_plan import seed_part
from marl_gem.trainers.learner import Learner, make_learner
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.schedule import learner_seats, training_phases
from marl_gem.trainers.sections import PolicyConfig, TrainConfig
from marl_gem.trainers.shared_base import base_key, load_bases
from marl_gem.trainers.tiny import tiny_model, tiny_tokenizer
from marl_gem.types import Episode


def start(config: TrainConfig) -> tuple[TrainingLoop, list[list[Episode]]]:
    """A new run's loop, with untrained or pretrained policies, and the demonstrations for its warm start.

    The demonstrations are those of each scenario; none if nothing is to be imitated.
    """
    set_threads(config)
    names = learner_seats(training_phases(config, [s.spec.inspect().agents for s in config.scenarios]))
    demonstrations = collect_demonstrations(config) if imitates(config) else [[] for _ in config.scenarios]
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
    bases = load_bases([own.policy for own in configs.values()], half=config.training.precision == "bfloat16")
    tokenizers: dict[str, PreTrainedTokenizerBase] = {}  # of tiny models
    learners = {}
    for name, own in configs.items():
        model: CausalModel
        if own.policy.lora_rank:
            base, tokenizer = bases[base_key(own.policy)]
            seed = derive_seed(config.seed, "adapter", *seed_part(name))
            model = base.adapter(name, seed=seed, rank=own.policy.lora_rank, alpha=own.policy.lora_alpha)
        elif own.policy.start_from:
            model, tokenizer = load_pretrained(own.policy.start_from)
        else:
            split = own.policy.tokens
            if split not in tokenizers:
                tokenizers[split] = _tokenizer(demonstrations, split)
            tokenizer = tokenizers[split]
            model = _tiny(own.policy, tokenizer, derive_seed(config.seed, "weights", *seed_part(name)))
        learners[name] = make_learner(record_name(name, config), own, model, tokenizer)
    return learners


def _tokenizer(
    demonstrations: Sequence[Sequence[Episode]], split: Literal["lines", "words"]
) -> PreTrainedTokenizerBase:
    """A tokenizer made for what is said in the demonstrations."""
    episodes = [episode for of_scenario in demonstrations for episode in of_scenario]
    has_tools = any(role.tools for episode in episodes for role in episode.roles.values())
    return tiny_tokenizer(demonstration_texts(episodes), split=split, tools=has_tools)


def _tiny(size: PolicyConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> CausalModel:
    return tiny_model(
        tokenizer, width=size.width, layers=size.layers, heads=size.heads, context=size.context, seed=seed
    )
