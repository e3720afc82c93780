"""A model in this process, on one device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.errors import TrainingError
from marl_gem.llm.pretrained import not_finite
from marl_gem.trainers.algorithms.base import Loss, TokenBatch
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.backends.frozen import FrozenModel, copy_weights
from marl_gem.trainers.backends.readout import LOGITS_AT_ONCE, Readout
from marl_gem.trainers.rows import Row


class LocalBackend:
    """Adam on a causal language model of transformers.

    Args:
        model: learns; it stays on the device it is on.
        tokenizer: is saved with it, and gives the token that fills short rows.
        frozen: holds the reference while it is read.
        temperature: the one that responses are sampled at, above 0.
        micro_batch_tokens: the greatest number of tokens, padding included, in one forward and backward pass.
        logits_at_once: the greatest number of logits that are held at once, see `readout`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        frozen: FrozenModel | None = None,
        *,
        temperature: float = 1.0,
        micro_batch_tokens: int = 16_384,
        logits_at_once: int = LOGITS_AT_ONCE,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.version = 0
        self.reference: Weights | None = None
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.95), fused=True)
        self._frozen = frozen or FrozenModel(model)
        self._readout = Readout(model, temperature, logits_at_once)
        self._micro_batch_tokens = micro_batch_tokens
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id

    def forward_backward(
        self, rows: Sequence[Row], loss: Loss, *, denominator: int, kl_weight: float = 0.0
    ) -> dict[str, float]:
        self.model.eval()  # as it sampled: dropout would make it another policy, and draw from torch's own generator
        reference = self._frozen.load(self.reference) if kl_weight and self.reference is not None else None
        sums = dict.fromkeys(("loss", "entropy", "kl", "logprob_diff", "tokens"), 0.0)
        for batch in self._micro_batches(rows):
            value, parts = self._loss(batch, loss, denominator, reference, kl_weight)
            value.backward()  # type: ignore[no-untyped-call]
            sums["loss"] += value.item()
            for name, part in parts.items():
                sums[name] += part
        tokens = max(sums.pop("tokens"), 1.0)
        return {"loss": sums.pop("loss"), **{name: total / tokens for name, total in sums.items()}}

    def step(self, *, learning_rate: float, max_grad_norm: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm))
        if math.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not math.isfinite(norm):
            raise TrainingError(
                f"the gradient's norm is {norm}, so no step was taken and the weights are as they were. Look for "
                "rewards or advantages that are too large, or lower training.learning_rate"
            )
        if broken := not_finite(dict(self.model.named_parameters())):
            raise TrainingError(
                f"after this step {broken} holds numbers that are not finite: the training has diverged. What was "
                "saved before is unchanged; start a new run with a lower training.learning_rate"
            )
        return norm

    def set_reference(self) -> None:
        self.reference = self.weights()

    def weights(self) -> Weights:
        return copy_weights(self.model)

    def optimizer_state(self) -> Weights:
        state = self.optimizer.state_dict()["state"]
        return {
            f"{index}/{name}": value.detach().to("cpu", copy=True)
            for index, values in state.items()
            for name, value in values.items()
        }

    def load_optimizer_state(self, state: Weights) -> None:
        by_parameter: dict[int, Weights] = {}
        for key, value in state.items():
            index, _, name = key.partition("/")
            by_parameter.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": by_parameter})

    def save_model(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def _loss(
        self, rows: Sequence[Row], loss: Loss, denominator: int, reference: PreTrainedModel | None, kl_weight: float
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss of a micro-batch, and the sums over its tokens that the metrics are made of."""
        device = self.model.device
        width = max(len(row.ids) for row in rows)
        keep = max(len(row.ids) - _first_sampled(row) for row in rows)
        ids = torch.tensor([(self._pad,) * (width - len(row.ids)) + row.ids for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row.ids)) + [1] * len(row.ids) for row in rows], device=device)
        read = self._readout(self.model, reference, ids, mask, keep)
        advantages, counts, behaviour = (
            torch.tensor([_last(getattr(row, name), keep) for row in rows], dtype=read.logprobs.dtype, device=device)
            for name in ("advantages", "counts", "logprobs")
        )
        chosen, entropies, kl = (torch.where(counts > 0, values, 0.0) for values in read)
        tokens = TokenBatch(chosen, advantages, counts, behaviour, kl, kl_weight, denominator)
        parts = {
            "entropy": (counts * entropies).sum().item(),
            "kl": (counts * kl).sum().item(),
            "logprob_diff": (counts * chosen - behaviour).sum().item(),
            "tokens": counts.sum().item(),
        }
        return loss(tokens), parts

    def _micro_batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Rows of similar length together, so that little is padding."""
        batch: list[Row] = []
        for row in sorted(rows, key=lambda row: len(row.ids)):
            if batch and len(row.ids) * (len(batch) + 1) > self._micro_batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def _first_sampled(row: Row) -> int:
    return next(index for index, count in enumerate(row.counts) if count)


def _last(values: Sequence[float], length: int) -> list[float]:
    """The last `length` values, after zeros where there are fewer."""
    return [0.0] * (length - len(values)) + list(values[-length:])
