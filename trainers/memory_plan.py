"""What a run needs of memory, computed before it starts: on the device, in the machine's RAM, and on disk.

Weights, gradients, the optimizer's state and checkpoints follow from the numbers of parameters. Activations and logits
are estimated from the model's sizes for a micro-batch of `training.micro_batch_tokens` tokens; two measured peaks of
updates are 0.67 and 0.73 times the estimate (`benchmarks/learner_memory.py`), which is meant as a bound. Of several
processes the first is planned, which needs most. What other programs take is not known here, but for the share of a GPU
that a vLLM server is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from marl_gem.errors import ConfigError
from marl_gem.trainers.algorithms import make_algorithm
from marl_gem.trainers.backends import ranks
from marl_gem.trainers.backends.readout import LOGITS_AT_ONCE
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.sections import TrainConfig

GIB = 1 << 30
ANSWERS = 8
"""A conversation in a rollout is taken to be as long as so many of the longest answers, prompts included."""
KEPT_CHECKPOINTS = 3
"""The newest two, and the one that is being written."""


class Architecture(NamedTuple):
    """The sizes of a model: numbers of parameters of the model and of one adapter, widths, layers, vocabulary."""

    parameters: int
    adapter: int
    hidden: int
    inner: int
    queries: int
    keys: int
    layers: int
    vocabulary: int
    context: int


class Part(NamedTuple):
    """Something that takes memory: so many bytes, `copies` times."""

    name: str
    size: int
    copies: int = 1

    @property
    def total(self) -> int:
        return self.size * self.copies


class MemoryPlan(NamedTuple):
    """What a run needs, and the bytes that its device and the machine have.

    `static` is on the device all the time, `update` while one policy's gradient is computed, `rollouts` while episodes
    are played, `host` in the machine's RAM. On a CPU all of that is the same memory.
    """

    device: str
    static: tuple[Part, ...]
    update: tuple[Part, ...]
    rollouts: tuple[Part, ...]
    host: tuple[Part, ...]
    checkpoint: int
    device_bytes: int
    host_bytes: int

    @property
    def static_bytes(self) -> int:
        return _total(self.static)

    @property
    def update_bytes(self) -> int:
        """On the device while a gradient is computed."""
        return self.static_bytes + _total(self.update) + self._shared_host

    @property
    def peak_bytes(self) -> int:
        """On the device at the most."""
        return self.static_bytes + max(_total(self.update), _total(self.rollouts)) + self._shared_host

    @property
    def _shared_host(self) -> int:
        return _total(self.host) if self.device == "cpu" else 0

    @property
    def fits(self) -> bool:
        return self.update_bytes <= self.device_bytes and _total(self.host) <= self.host_bytes

    def lines(self) -> list[str]:
        """For people: one line if the run needs less than a quarter of what there is."""
        summary = f"memory: about {_gib(self.peak_bytes)} of {_gib(self.device_bytes)} on {self.device}"
        if self.peak_bytes < self.device_bytes / 4 and _total(self.host) < self.host_bytes / 4:
            return [summary]
        lines = [summary]
        where = {"all the time": self.static, "in an update": self.update, "in rollouts": self.rollouts}
        for title, parts in {**where, "in the machine's memory": self.host}.items():
            lines += [f"  {title}: {_described(part)}" for part in parts if part.total]
        lines.append(f"  on disk: a checkpoint {_gib(self.checkpoint)}, at most {KEPT_CHECKPOINTS} at a time")
        if self.peak_bytes > self.device_bytes:
            lines.append(
                "  the cache of rollouts may not fit: lower training.episodes or policy.max_tokens if it does not"
            )
        return lines


class PolicyNeeds(NamedTuple):
    """What one policy takes, in bytes: on the device all the time, while its gradient is computed, and elsewhere."""

    weights: int
    optimizer: int
    playing: int
    """A complete copy to play with, where the weights that learn are shared out among processes."""
    frozen: int
    critic: int
    gradients: int
    half_weights: int
    activations: int
    logits: int
    cache: int
    reference: int
    pool: int
    copies: int
    checkpoint: int

    @property
    def update(self) -> tuple[Part, ...]:
        return (
            Part("gradients", self.gradients),
            Part("weights in bfloat16", self.half_weights),
            Part("activations of a micro-batch", self.activations),
            Part("logits", self.logits),
        )


def plan_memory(config: TrainConfig, networks: Mapping[str, PreTrainedModel], processes: int = 1) -> MemoryPlan:
    """What a run needs.

    Args:
        config: the run's.
        networks: the model that each policy that learns is or adapts, by the policy's name; torch's meta device is
            enough. Policies with adapters share one.
        processes: how many compute gradients together, see `backends.sharded`.
    """
    needs = {name: _needs(for_policy(config, name), network, processes) for name, network in networks.items()}
    alike: dict[PolicyNeeds, list[str]] = {}
    for name, need in needs.items():
        alike.setdefault(need, []).append(name)

    def parts(what: str, field: str) -> list[Part]:
        return [
            Part(
                f"{'each policy' if len(alike) == 1 else ' and '.join(names)}'s {what}",
                getattr(need, field),
                len(names),
            )
            for need, names in alike.items()
        ]

    device, machine = _device(config.device), machine_memory()
    there = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else machine // processes
    width = 2 if config.training.precision == "bfloat16" else 4
    adapted = [network for name, network in networks.items() if for_policy(config, name).policy.lora_rank]
    served = config.sampler == "vllm" and device.type == "cuda" and not config.vllm.gpus
    return MemoryPlan(
        device.type,
        (
            Part("the model that all policies share", width * adapted[0].num_parameters() if adapted else 0),
            *parts("weights", "weights"),
            *parts("optimizer", "optimizer"),
            *parts("complete weights, to play with", "playing"),
            *parts("reference or opponent", "frozen"),
            *parts("critic with its optimizer", "critic"),
            Part("the vLLM server's share", int(config.vllm.gpu_memory * there) if served else 0),
        ),
        max((need.update for need in needs.values()), key=_total),
        (Part("cache of the episodes' tokens", max(need.cache for need in needs.values())),),
        (
            *parts("earlier versions", "pool"),
            *parts("reference", "reference"),
            Part("copies while a checkpoint is written", max(need.copies for need in needs.values())),
        ),
        sum(need.checkpoint for need in needs.values()),
        there,
        machine // processes,
    )


def _needs(config: TrainConfig, network: PreTrainedModel, processes: int) -> PolicyNeeds:
    """Those of a policy with this configuration."""
    sizes, training = architecture(network, config), config.training
    half = training.precision == "bfloat16"
    learned = sizes.adapter or sizes.parameters
    weights = 4 * learned
    share = 1 if sizes.adapter else processes  # every process has all of an adapter
    pulled = bool(training.kl or training.kl_final)
    has_critic = make_algorithm(config.algorithm.name, config.algorithm.options).needs.critic
    critic = 12 * learned if has_critic else 0
    reference = (2 if half and sizes.adapter else 4) * learned if pulled else 0
    pool = (2 if half else 4) * learned * training.pool_size if training.opponent_pool_fraction else 0
    return PolicyNeeds(
        weights=weights // share,
        optimizer=2 * weights // share,
        playing=weights if share > 1 else 0,
        frozen=weights if pulled or training.opponent_pool_fraction else 0,
        critic=critic,
        gradients=weights // share,
        half_weights=2 * sizes.parameters if half and not sizes.adapter else 0,
        activations=_activations(sizes, config),
        logits=_logits(sizes, config),
        cache=_cache(sizes, config) if config.sampler == "in_process" else 0,
        reference=reference,
        pool=pool,
        copies=3 * weights,
        checkpoint=3 * weights + reference + pool + critic,
    )


def check_memory(config: TrainConfig, networks: Mapping[str, PreTrainedModel]) -> MemoryPlan:
    """The plan of a run that fits, on as many processes as there are.

    Raises:
        ConfigError: it does not fit; the message says what would help, and by how much.
    """
    plan = plan_memory(config, networks, ranks.count())
    if plan.fits:
        return plan
    savings = []
    for assignment, changed in _changes(config):
        other = plan_memory(changed, networks, ranks.count())
        saved = (
            plan.update_bytes - other.update_bytes + (plan.device != "cpu") * (_total(plan.host) - _total(other.host))
        )
        if saved > plan.update_bytes / 100:
            savings.append((saved, f"{assignment} saves {_gib(saved)}{', and then it fits' if other.fits else ''}"))
    needed, there = plan.update_bytes, plan.device_bytes
    if needed <= there:
        needed, there = _total(plan.host), plan.host_bytes
    parts = sorted((*plan.static, *plan.update, *plan.host), key=lambda part: part.total, reverse=True)
    advice = "; ".join(text for _, text in sorted(savings, reverse=True)) or "take a smaller model"
    raise ConfigError(
        f"the run needs about {_gib(needed)}, but there are {_gib(there)} on {plan.device}. Most of it is "
        f"{', '.join(map(_described, parts[:3]))}. What helps: {advice}"
    )


def architecture(network: PreTrainedModel, config: TrainConfig) -> Architecture:
    """A model's sizes; those of an adapter as the configuration says."""
    sizes = network.config.get_text_config()
    hidden = int(sizes.hidden_size)
    heads = int(sizes.num_attention_heads)
    head = int(getattr(sizes, "head_dim", None) or hidden // heads)
    keys = head * int(getattr(sizes, "num_key_value_heads", None) or heads)
    inner = int(getattr(sizes, "intermediate_size", None) or getattr(sizes, "n_inner", None) or 4 * hidden)
    return Architecture(
        parameters=network.num_parameters(),
        adapter=_adapter_parameters(network, config.policy.lora_rank, config.policy.lora_targets),
        hidden=hidden,
        inner=inner,
        queries=head * heads,
        keys=keys,
        layers=int(sizes.num_hidden_layers),
        vocabulary=int(sizes.vocab_size),
        context=int(getattr(sizes, "max_position_embeddings", 1 << 30)),
    )


def machine_memory() -> int:
    """The bytes of RAM that this process may use: the machine's, or what its control group (a container) is given."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total


def _device(name: str) -> torch.device:
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _adapter_parameters(network: PreTrainedModel, rank: int, targets: Sequence[str]) -> int:
    total = 0
    for name, part in network.named_modules():
        if not isinstance(part, torch.nn.Linear | Conv1D) or part is network.get_output_embeddings():
            continue
        if not targets or name.rpartition(".")[2] in targets:
            total += rank * sum(part.weight.shape)
    return total


def _activations(sizes: Architecture, config: TrainConfig) -> int:
    """What is kept for the gradient of one micro-batch, and one layer more, whose gradient is computed.

    The numbers for each token and layer are those that torch keeps of Qwen3; GPT-2 keeps a little less.
    """
    layer = 6 * sizes.hidden + 4 * sizes.inner + 4 * (sizes.queries + sizes.keys)
    kept = sizes.hidden if config.training.activation_checkpointing else layer
    outputs = 4 * sizes.hidden
    width = 2.5 if config.training.precision == "bfloat16" else 4  # some of it stays float32
    return int(config.training.micro_batch_tokens * width * (sizes.layers * kept + layer + outputs))


def _logits(sizes: Architecture, config: TrainConfig) -> int:
    """What is kept of one chunk of logits, with the gradient of the head that it adds."""
    at_once = min(LOGITS_AT_ONCE, config.training.micro_batch_tokens * sizes.vocabulary)
    copies = 8 if (config.training.kl or config.training.kl_final) and config.training.kl_in == "loss" else 5
    head = 0 if sizes.adapter else 4 * sizes.vocabulary * sizes.hidden
    return copies * 4 * at_once + head


def _cache(sizes: Architecture, config: TrainConfig) -> int:
    """Keys and values of all conversations that are played at a time, in the precision that is computed in."""
    tokens = min(sizes.context, ANSWERS * config.policy.max_tokens)
    width = 2 if config.training.precision == "bfloat16" else 4
    return config.training.episodes * tokens * 2 * sizes.keys * sizes.layers * width


def _changes(config: TrainConfig) -> Iterator[tuple[str, TrainConfig]]:
    """Other settings that take less memory."""
    training, replace = config.training, msgspec.structs.replace
    fewer = max(512, training.micro_batch_tokens // 4)
    changes: list[tuple[str, dict[str, object]]] = [
        (f"training.micro_batch_tokens={fewer}", {"micro_batch_tokens": fewer}),
        ("training.activation_checkpointing=true", {"activation_checkpointing": True}),
        ("training.precision=bfloat16", {"precision": "bfloat16"}),
        (f"training.pool_size={max(1, training.pool_size // 2)}", {"pool_size": max(1, training.pool_size // 2)}),
    ]
    for text, change in changes:
        yield text, replace(config, training=replace(training, **change))
    if config.policy.start_from:
        rank = config.policy.lora_rank // 2 or 16
        yield f"policy.lora_rank={rank}", replace(config, policy=replace(config.policy, lora_rank=rank))


def _total(parts: Sequence[Part]) -> int:
    return sum(part.total for part in parts)


def _described(part: Part) -> str:
    times = f" ({part.copies} x {_gib(part.size)})" if part.copies > 1 else ""
    return f"{part.name} {_gib(part.total)}{times}"


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
