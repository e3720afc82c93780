"""A model in this process, on one device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from marl_gem.errors import TrainingError
from marl_gem.llm.pretrained import not_finite
from marl_gem.trainers.algorithms.base import Loss, TokenBatch
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel
from marl_gem.trainers.backends.base import NO_REGULARIZATION, Regularization, Weights
from marl_gem.trainers.backends.frozen import FrozenModel, copy_weights
from marl_gem.trainers.backends.layout import Layout, packed, packs, padded
from marl_gem.trainers.backends.memory import (
    DEFAULT_MEMORY,
    Memory,
    autocast,
    check_packing,
    enable_checkpointing,
    out_of_memory_explained,
    prepare,
)
from marl_gem.trainers.backends.readout import LOGITS_AT_ONCE, Readout, TokenStatistics
from marl_gem.trainers.backends.utilization import peak_flops, update_flops
from marl_gem.trainers.rows import Row, micro_batches

NO_STEP = (
    "so no step was taken and the weights are as they were. Look for rewards or advantages that are too large, or "
    "lower training.learning_rate"
)


class LocalBackend:
    """Adam on a causal language model of transformers, or on an adapter over one.

    Args:
        model: learns; it stays on the device it is on.
        tokenizer: is saved with it, and gives the token that fills short rows.
        frozen: holds the reference while it is read.
        temperature: the one that responses are sampled at, above 0.
        micro_batch_tokens: the greatest number of tokens, padding included, in one forward and backward pass.
        logits_at_once: the greatest number of logits that are held at once, see `readout`.
        memory: how memory is saved, and in what precision is computed.
        momentum: Adam's beta_1.
    """

    def __init__(
        self,
        model: CausalModel,
        tokenizer: PreTrainedTokenizerBase,
        frozen: FrozenModel | None = None,
        *,
        temperature: float = 1.0,
        micro_batch_tokens: int = 16_384,
        logits_at_once: int = LOGITS_AT_ONCE,
        memory: Memory = DEFAULT_MEMORY,
        momentum: float = 0.9,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.version = 0
        self.reference: Weights | None = None
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(momentum, 0.95), fused=True)
        self._frozen = frozen or FrozenModel(model)
        self._readout = Readout(model, temperature, logits_at_once)
        self._micro_batch_tokens = micro_batch_tokens
        self._memory = memory
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        if memory.activation_checkpointing:
            enable_checkpointing(model)
        if memory.packing:
            check_packing(model)

    def forward_backward(
        self,
        rows: Sequence[Row],
        loss: Loss,
        *,
        denominator: int,
        kl_weight: float = 0.0,
        regularization: Regularization = NO_REGULARIZATION,
    ) -> dict[str, float]:
        prepare(self.model, self._memory)
        token_count = sum(sum(row.counts) for row in rows)
        metrics = TokenMetrics()
        with self._out_of_memory_explained():
            reference = self._frozen.load(self.reference) if kl_weight and self.reference is not None else None
            for layout, factor in self._shares(rows):
                with autocast(self.model, self._memory):
                    tokens = self._tokens(layout, reference, regularization)
                value = loss(tokens._replace(kl_weight=kl_weight, denominator=denominator, token_count=token_count))
                (value * factor).backward()  # type: ignore[no-untyped-call]
                if factor:
                    metrics.add(value, tokens)
        means = self._over_processes(metrics).means()
        if broken := next((name for name, mean in means.items() if not math.isfinite(mean)), ""):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainingError(f"the update's {broken} is {means[broken]}, {NO_STEP}")
        return means

    def logprobs(self, rows: Sequence[Row], *, reference: bool = False) -> list[list[float]]:
        self.model.eval()
        if reference and self.reference is None:
            raise TrainingError("there is no reference to give log-probabilities; set training.kl above 0")
        found: dict[int, list[float]] = {}
        with self._out_of_memory_explained():
            model = self._frozen.load(self.reference) if reference and self.reference is not None else self.model
            for layout in self._layouts(rows):
                with torch.no_grad(), autocast(self.model, self._memory):
                    values = self._readout(model, None, layout).logprobs
                found |= zip(map(id, layout.rows), layout.per_row(values), strict=True)
        return [found[id(row)] for row in rows]

    def step(self, *, learning_rate: float, max_grad_norm: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        with self._out_of_memory_explained():
            return finite_step(
                self.optimizer, dict(self.model.named_parameters()), learning_rate=learning_rate,
                max_grad_norm=max_grad_norm,
            )  # fmt: skip

    def utilization(self, rows: Sequence[Row], seconds: float) -> float | None:
        peak = peak_flops(self.model.device)
        return update_flops(self.model, rows) / seconds / peak if peak else None

    def set_reference(self) -> None:
        weights = self.weights()
        if self._memory.precision == "bfloat16" and isinstance(self.model, AdapterModel):
            weights = {name: value.bfloat16() for name, value in weights.items()}  # what autocast would make of them
        self.reference = weights

    def weights(self) -> Weights:
        return copy_weights(self.model)

    def optimizer_state(self) -> Weights:
        return optimizer_tensors(self.optimizer)

    def load_optimizer_state(self, state: Weights) -> None:
        load_optimizer_tensors(self.optimizer, state)

    def save_model(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def _out_of_memory_explained(self) -> AbstractContextManager[None]:
        return out_of_memory_explained(self.model, self._memory, self._micro_batch_tokens)

    def _shares(self, rows: Sequence[Row]) -> Iterator[tuple[Layout, float]]:
        """The micro-batches that this process computes, and factors for their losses."""
        return ((layout, 1.0) for layout in self._layouts(rows))

    def _over_processes(self, metrics: TokenMetrics) -> TokenMetrics:
        """The metrics of all processes."""
        return metrics

    def _layouts(self, rows: Sequence[Row]) -> Iterator[Layout]:
        """The micro-batches of an update."""
        device = self.model.device
        if self._memory.packing:
            return (packed(group, device) for group in self._groups(rows))
        return (padded(group, self._pad, device) for group in self._groups(rows))

    def _groups(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """The rows of each micro-batch."""
        return (packs if self._memory.packing else micro_batches)(rows, self._micro_batch_tokens)

    def _read(self, reference: CausalModel | None, layout: Layout, **options: Any) -> TokenStatistics:
        """What the model says of a micro-batch; see `Readout`."""
        return self._readout(self.model, reference, layout, **options)

    def _tokens(self, layout: Layout, reference: CausalModel | None, regularization: Regularization) -> TokenBatch:
        """A micro-batch, read by the model."""
        estimator, kl_per_token, entropy_weight = regularization
        read = self._read(reference, layout, estimator=estimator, entropy_graph=bool(entropy_weight))
        columns = {
            name: layout.column(name, read.logprobs.dtype)
            for name in ("counts", "logprobs", "advantages", "positive", "negative", "lengths")
        }
        counts = columns["counts"]
        chosen, entropies, kl = (torch.where(counts > 0, values, 0.0) for values in read)
        behaviour = columns.pop("logprobs") / counts.clamp(min=1)
        has_proximal = bool(layout.rows[0].proximal)
        return TokenBatch(
            logprobs=chosen,
            proximal_logprobs=layout.column("proximal", chosen.dtype) if has_proximal else behaviour,
            behaviour_logprobs=behaviour,
            **columns,
            entropies=entropies,
            kl=kl,
            kl_weight=0.0,
            kl_per_token=kl_per_token,
            entropy_weight=entropy_weight,
            denominator=1,
            token_count=1,
        )


def finite_step(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.nn.Parameter],
    *,
    learning_rate: float,
    max_grad_norm: float,
) -> float:
    """Take a step on the parameters' gradients, scaled down to a norm of `max_grad_norm`, and drop the gradients.

    Returns:
        the gradient's norm before it was scaled down.

    Raises:
        TrainingError: see `Backend.step`.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    total = torch.nn.utils.clip_grad_norm_(parameters.values(), max_grad_norm)
    norm = float(total.full_tensor() if hasattr(total, "full_tensor") else total)  # of parameters that are sharded
    if math.isfinite(norm):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if not math.isfinite(norm):
        raise TrainingError(f"the gradient's norm is {norm}, {NO_STEP}")
    here = {name: p.to_local() if hasattr(p, "to_local") else p for name, p in parameters.items()}
    if broken := not_finite(here):
        raise TrainingError(
            f"after this step {broken} holds numbers that are not finite: the training has diverged. What was saved "
            "before is unchanged; start a new run with a lower training.learning_rate"
        )
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer, *, copy: bool = True) -> Weights:
    """An optimizer's state as named tensors; a copy of it is on the CPU."""
    return {
        f"{index}/{name}": value.detach().to("cpu", copy=True) if copy else value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, state: Weights) -> None:
    """Put back what `optimizer_tensors` gave."""
    by_parameter: dict[int, Weights] = {}
    for key, value in state.items():
        index, _, name = key.partition("/")
        by_parameter.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": by_parameter})


class TokenMetrics:
    """Sums over the sampled tokens of an update, and the metrics that are made of them."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(
            ("loss", "entropy", "kl", "logprob_diff", "logprob_diff_abs", "sampling_kl", "tokens"), 0.0
        )
        self._max = 0.0

    def add(self, loss: torch.Tensor, tokens: TokenBatch) -> None:
        """Add a micro-batch."""
        counts, logprobs = tokens.counts, tokens.logprobs.detach()
        difference = torch.where(counts > 0, logprobs - tokens.behaviour_logprobs, 0.0)
        parts = {
            "loss": loss,
            "entropy": (counts * tokens.entropies).sum(),
            "kl": (counts * tokens.kl).sum(),
            "logprob_diff": (counts * difference).sum(),
            "logprob_diff_abs": (counts * difference.abs()).sum(),
            "sampling_kl": (counts * (difference.exp() - 1 - difference)).sum(),
            "tokens": counts.sum(),
        }
        for name, part in parts.items():
            self._sums[name] += part.item()
        self._max = max(self._max, difference.abs().max().item())

    def plus(self, other: TokenMetrics) -> TokenMetrics:
        """Those of both."""
        found = TokenMetrics()
        found._sums = {name: value + other._sums[name] for name, value in self._sums.items()}
        found._max = max(self._max, other._max)
        return found

    def means(self) -> dict[str, float]:
        """The loss, means over tokens, and the greatest difference."""
        sums = dict(self._sums)
        tokens, loss = max(sums.pop("tokens"), 1.0), sums.pop("loss")
        return {"loss": loss, **{name: total / tokens for name, total in sums.items()}, "logprob_diff_max": self._max}
