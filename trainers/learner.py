"""A model and its optimizer: one policy that is being trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel

from marl_gem.trainers.loss import reinforce
from marl_gem.trainers.transitions import Row


class Learner:
    """Updates a model on rows.

    Args:
        model: any causal language model of transformers.
        pad_token: fills short rows; any token will do.
        temperature: the one the actions were sampled at, above 0.
        clip: the greatest norm of an update's gradient.
        micro_batch: the greatest number of tokens, padding included, in one forward and backward pass.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_token: int,
        temperature: float = 1.0,
        clip: float = 1.0,
        micro_batch: int = 16_384,
    ) -> None:
        self.model = model
        self.pad_token = pad_token
        self.temperature = temperature
        self.clip = clip
        self.micro_batch = micro_batch
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.95), fused=True)

    def update(
        self,
        rows: Sequence[Row],
        *,
        learning_rate: float,
        denominator: int,
        reference: PreTrainedModel | None = None,
        kl: float = 0.0,
    ) -> dict[str, float]:
        """Take one step of the optimizer on all rows together.

        Args:
            rows: what to learn from.
            learning_rate: of this step.
            denominator: the number of transitions in the rows, duplicates counted.
            reference: what the policy is held near, with the weight `kl`.

        Returns:
            `loss`; `gradient_norm` before clipping; in nats a sampled token the `entropy` of the policy, its
            `divergence` from the reference, and the `drift`: the log-probability now minus the one it was
            drawn with, which is 0 on-policy up to rounding.
        """
        self.model.eval()  # as it sampled: dropout would make it another policy, and draw from torch's own generator
        sums = dict.fromkeys(("loss", "entropy", "divergence", "drift", "tokens"), 0.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        for batch in self._micro_batches(rows):
            loss, parts = self._loss(batch, denominator, reference if kl else None, kl)
            loss.backward()  # type: ignore[no-untyped-call]
            sums["loss"] += loss.item()
            for name, value in parts.items():
                sums[name] += value
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        tokens = max(sums.pop("tokens"), 1.0)
        return {
            "loss": sums["loss"],
            "gradient_norm": float(norm),
            **{name: sums[name] / tokens for name in ("entropy", "divergence", "drift")},
        }

    def _loss(
        self, batch: Sequence[Row], denominator: int, reference: PreTrainedModel | None, kl: float
    ) -> tuple[torch.Tensor, dict[str, float]]:
        device = self.model.device
        width = max(len(row.ids) for row in batch)
        keep = max(len(row.ids) - _first_sampled(row) for row in batch)
        ids = torch.tensor([(self.pad_token,) * (width - len(row.ids)) + row.ids for row in batch], device=device)
        mask = torch.tensor([[0] * (width - len(row.ids)) + [1] * len(row.ids) for row in batch], device=device)
        logprobs = self._logprobs(self.model, ids, mask, keep)
        chosen = logprobs.gather(2, ids[:, -keep:].unsqueeze(2)).squeeze(2)
        entropies = -(logprobs.exp() * logprobs).sum(-1)
        divergences = torch.zeros_like(entropies)
        if reference is not None:
            with torch.no_grad():
                expected = self._logprobs(reference, ids, mask, keep)
            divergences = (logprobs.exp() * (logprobs - expected)).sum(-1)
        weights, counts, drawn = (
            torch.tensor([_last(getattr(row, name), keep) for row in batch], dtype=torch.float32, device=device)
            for name in ("weights", "counts", "logprobs")
        )
        loss = reinforce(chosen, weights, divergences, counts, denominator=denominator, kl=kl)
        parts = {
            "entropy": (counts * entropies).sum().item(),
            "divergence": (counts * divergences).sum().item(),
            "drift": (counts * chosen - drawn).sum().item(),
            "tokens": counts.sum().item(),
        }
        return loss, parts

    def _logprobs(self, model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> torch.Tensor:
        """Log-probabilities of every token at the last `keep` places, shape (rows, keep, vocabulary)."""
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            logits_to_keep=keep + 1,
            use_cache=False,
        ).logits[:, :-1]
        return torch.log_softmax(logits.float() / self.temperature, dim=-1)

    def _micro_batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Rows of similar length together, so that little is padding."""
        batch: list[Row] = []
        for row in sorted(rows, key=lambda row: len(row.ids)):
            if batch and len(row.ids) * (len(batch) + 1) > self.micro_batch:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def _first_sampled(row: Row) -> int:
    return next(place for place, count in enumerate(row.counts) if count)


def _last(values: Sequence[float], length: int) -> list[float]:
    """The last `length` values, zeros put in front where there are fewer."""
    return [0.0] * (length - len(values)) + list(values[-length:])
