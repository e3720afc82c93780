"""A model in this process, on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from marl_gem.trainers.algorithms.base import Loss, TokenBatch
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.backends.frozen import FrozenModel, copy_weights
from marl_gem.trainers.rows import Row

LOGITS_AT_ONCE = 1 << 25
"""How many logits are computed at once, 128 MiB in float32. Larger micro-batches are read out in chunks."""


class LocalBackend:
    """Adam on a causal language model of transformers.

    Args:
        model: learns; it stays on the device it is on.
        tokenizer: is saved with it, and gives the token that fills short rows.
        frozen: holds the reference while it is read.
        temperature: the one that responses are sampled at, above 0.
        micro_batch_tokens: the greatest number of tokens, padding included, in one forward and backward pass.
        logits_at_once: the greatest number of logits that are held at once.
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
        self._temperature = temperature
        self._micro_batch_tokens = micro_batch_tokens
        self._logits_at_once = logits_at_once
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self._head_is_plain = _head_is_plain(model)

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
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def set_reference(self) -> None:
        self.reference = self.weights()

    def weights(self) -> Weights:
        return copy_weights(self.model)

    def optimizer_state(self) -> Weights:
        state = self.optimizer.state_dict()["state"]
        return {f"{index}/{name}": value.clone() for index, values in state.items() for name, value in values.items()}

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
        hidden = self._hidden(self.model, ids, mask, keep)
        with torch.no_grad():
            expected = None if reference is None else self._hidden(reference, ids, mask, keep)
        chosen, entropies, kl = self._read_out(hidden, ids[:, -keep:], expected, reference)
        advantages, counts, behaviour = (
            torch.tensor([_last(getattr(row, name), keep) for row in rows], dtype=chosen.dtype, device=device)
            for name in ("advantages", "counts", "logprobs")
        )
        tokens = TokenBatch(chosen, advantages, counts, behaviour, kl, kl_weight, denominator)
        parts = {
            "entropy": (counts * entropies).sum().item(),
            "kl": (counts * kl).sum().item(),
            "logprob_diff": (counts * chosen - behaviour).sum().item(),
            "tokens": counts.sum().item(),
        }
        return loss(tokens), parts

    def _read_out(
        self,
        hidden: torch.Tensor,
        ids: torch.Tensor,
        expected: torch.Tensor | None,
        reference: PreTrainedModel | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log-probability of each token, entropy, and KL to the reference; each of the shape of `ids`.

        The logits of all positions would take most of an update's memory. Where there are many, they are computed chunk
        by chunk, and once more for the gradient.
        """

        def read(start: int, end: int, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
            logprobs = self._logprobs(self.model, states)
            chosen = logprobs.gather(2, ids[:, start:end].unsqueeze(2)).squeeze(2)
            with torch.no_grad():
                entropies = -(logprobs.exp() * logprobs).sum(-1)
                if reference is not None and expected is not None:
                    others = self._logprobs(reference, expected[:, start:end])
            if reference is None:
                return chosen, entropies, torch.zeros_like(entropies)
            return chosen, entropies, (logprobs.exp() * (logprobs - others)).sum(-1)

        positions = ids.shape[1]
        chunk = max(1, self._logits_at_once // (ids.shape[0] * self.model.config.vocab_size))
        if chunk >= positions:
            chosen, entropies, kl = read(0, positions, hidden)
            return chosen, entropies, kl
        parts = [
            checkpoint(read, start, min(start + chunk, positions), hidden[:, start : start + chunk], use_reentrant=False)
            for start in range(0, positions, chunk)
        ]
        chosen, entropies, kl = (torch.cat(pieces, 1) for pieces in zip(*parts, strict=True))
        return chosen, entropies, kl

    def _hidden(self, model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> torch.Tensor:
        """What the last `keep` tokens are predicted from: hidden states, or logits where the head is not plain."""
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
            "use_cache": False,
        }
        if not self._head_is_plain:
            logits: torch.Tensor = model(**inputs, logits_to_keep=keep + 1).logits
            return logits[:, :-1]
        states: torch.Tensor = model.base_model(**inputs).last_hidden_state
        return states[:, -keep - 1 : -1]

    def _logprobs(self, model: PreTrainedModel, states: torch.Tensor) -> torch.Tensor:
        """Log-probabilities over the vocabulary, in float32 at least, shape (rows, positions, vocabulary)."""
        logits = model.get_output_embeddings()(states) if self._head_is_plain else states
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.log_softmax(logits / self._temperature, dim=-1)

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


def _head_is_plain(model: PreTrainedModel) -> bool:
    """Whether the logits are the output embedding of the last hidden states, and nothing is done to them besides."""
    head = model.get_output_embeddings()
    if head is None:
        return False
    ids = torch.zeros((1, 2), dtype=torch.long, device=model.device)
    with torch.no_grad():
        states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return torch.allclose(head(states), model(input_ids=ids, use_cache=False).logits, rtol=1e-3, atol=1e-3)


def _first_sampled(row: Row) -> int:
    return next(index for index, count in enumerate(row.counts) if count)


def _last(values: Sequence[float], length: int) -> list[float]:
    """The last `length` values, after zeros where there are fewer."""
    return [0.0] * (length - len(values)) + list(values[-length:])
