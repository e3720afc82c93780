"""From tokens to log-probabilities, entropies and divergences, without holding the logits of all positions at once."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch.utils.checkpoint import checkpoint

from marl_gem.trainers.backends.adapters import CausalModel
from marl_gem.trainers.backends.layout import Layout

LOGITS_AT_ONCE = 1 << 25
"""How many logits are computed at once by default: 128 MiB of float32."""

Estimator: TypeAlias = Literal["exact", "k1", "k2", "k3"]
"""How the divergence from the reference is computed at a token: over the vocabulary, or from the sampled token alone.

With x = ln p(token) - ln p_ref(token): k1 = x, k2 = x^2 / 2, k3 = exp(-x) - 1 + x (Schulman, "Approximating KL
divergence", 2020). As a value k1 and k3 are unbiased; as a loss only k2 has the gradient of the divergence on average,
while the mean gradient of k1 is 0 and that of k3 is another divergence's, KL(reference || policy).
"""


class TokenStatistics(NamedTuple):
    """What the model says of each token, in nats; tensors of the shape (rows, tokens)."""

    logprobs: torch.Tensor
    entropies: torch.Tensor
    kl: torch.Tensor


class Readout:
    """Reads tokens with a model and its head.

    The logits take most of an update's memory where the vocabulary is large. Where there are more of them than
    `logits_at_once`, they are computed for some positions at a time, and once more for the gradient.

    Args:
        model: whose head it is; a reference has the same architecture.
        temperature: divides the logits, above 0.
        logits_at_once: the greatest number of logits that are held at once.
    """

    def __init__(self, model: CausalModel, temperature: float, logits_at_once: int = LOGITS_AT_ONCE) -> None:
        self._temperature = temperature
        self._logits_at_once = logits_at_once
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._head_is_plain = _head_is_plain(model)

    def __call__(
        self,
        model: CausalModel,
        reference: CausalModel | None,
        layout: Layout,
        *,
        estimator: Estimator = "exact",
        entropy_graph: bool = False,
    ) -> TokenStatistics:
        """Statistics of the layout's targets.

        Args:
            model: gives log-probabilities and divergences with a graph, entropies without.
            reference: what the divergence is from; without one it is 0.
            layout: what is read.
            estimator: of the divergence.
            entropy_graph: whether the entropies have a graph, too.
        """
        with torch.no_grad():  # before the model, since an adapter must be active while its gradient is computed
            others = None if reference is None else self._states(reference, layout)
        states = self._states(model, layout)
        chosen = layout.targets
        keep = chosen.shape[1]

        def read(start: int, end: int, some: torch.Tensor) -> TokenStatistics:
            """Of some positions. `some` holds one state more: with it, sums over positions round as in one piece."""
            logprobs = self._logprobs(model, some)[:, :-1]
            picked = logprobs.gather(2, chosen[:, start:end].unsqueeze(2)).squeeze(2)
            with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_graph):
                entropies = -(logprobs.exp() * logprobs).sum(-1)
            if reference is None or others is None:
                return TokenStatistics(picked, entropies, torch.zeros_like(entropies))
            with torch.no_grad():
                expected = self._logprobs(reference, others[:, start : end + 1])[:, :-1]
            if estimator == "exact":
                return TokenStatistics(picked, entropies, (logprobs.exp() * (logprobs - expected)).sum(-1))
            difference = picked - expected.gather(2, chosen[:, start:end].unsqueeze(2)).squeeze(2)
            return TokenStatistics(picked, entropies, estimate(difference, estimator))

        chunk = max(1, self._logits_at_once // (chosen.shape[0] * self._vocabulary))
        if chunk >= keep:
            return read(0, keep, states)
        bounds = [(start, min(start + chunk, keep)) for start in range(0, keep, chunk)]
        parts = [checkpoint(read, start, end, states[:, start : end + 1], use_reentrant=False) for start, end in bounds]
        return TokenStatistics(*(torch.cat(pieces, 1) for pieces in zip(*parts, strict=True)))

    def _states(self, model: CausalModel, layout: Layout) -> torch.Tensor:
        """The hidden states that are read out, or logits where the head is not plain."""
        inputs = {"input_ids": layout.ids, "position_ids": layout.position_ids, "use_cache": False}
        if layout.mask is not None:
            inputs["attention_mask"] = layout.mask
        if not self._head_is_plain:
            kept = -layout.states.start if isinstance(layout.states, slice) else layout.states
            logits: torch.Tensor = model(**inputs, logits_to_keep=kept).logits
            return logits
        states: torch.Tensor = model.base_model(**inputs).last_hidden_state
        return states[:, layout.states]

    def _logprobs(self, model: CausalModel, states: torch.Tensor) -> torch.Tensor:
        """Log-probabilities over the vocabulary, in float32 at least, shape (rows, positions, vocabulary)."""
        logits = model.get_output_embeddings()(states) if self._head_is_plain else states
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.log_softmax(logits / self._temperature, dim=-1)


def estimate(difference: torch.Tensor, estimator: Estimator) -> torch.Tensor:
    """The divergence at sampled tokens, from ln p(token) - ln p_ref(token); see `Estimator`."""
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    return torch.exp(-difference) - 1 + difference


def _head_is_plain(model: CausalModel) -> bool:
    """Whether the logits are the output embedding of the last hidden states, and nothing is done to them besides."""
    head = model.get_output_embeddings()
    if head is None:
        return False
    ids = torch.tensor([[1, 2, 3]], device=model.device)  # not 0 alone, whose embedding is 0 where it fills rows
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    with torch.no_grad():
        states = model.base_model(**inputs).last_hidden_state
        return torch.equal(head(states), model(**inputs).logits)
