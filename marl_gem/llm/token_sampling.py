"""Draw tokens from logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from marl_gem.llm import Sampling

EXACT_VOCABULARY = 1 << 16
"""Up to this size of a vocabulary probabilities are computed in float64, as in earlier releases; above it in float32,
which is several times as fast."""


def sample_tokens(
    logits: torch.Tensor, samplings: Sequence[Sampling], draws: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Sample one token per row by inverse transform sampling, so that a row's token depends on its draw alone.

    Args:
        logits: a tensor of the shape (rows, vocabulary).
        samplings: one per row.
        draws: one per row, uniform in [0, 1).

    Returns:
        The tokens and the log-probabilities, in nats, that they were drawn with. At temperature 0 the most likely
        token is certain and its log-probability is 0. With `top_p` below 1 the distribution is renormalized over the
        remaining tokens.
    """
    exact = logits.shape[-1] <= EXACT_VOCABULARY and logits.device.type != "mps"  # which has no float64
    dtype = torch.float64 if exact else torch.float32
    scale = torch.tensor([s.temperature for s in samplings], dtype=dtype, device=logits.device).unsqueeze(1)
    greedy = scale == 0
    logprobs = torch.log_softmax(logits.to(dtype) / scale.masked_fill(greedy, 1.0), dim=-1)
    if any(sampling.top_p < 1 for sampling in samplings):
        logprobs = _nucleus(logprobs, [sampling.top_p for sampling in samplings])
    cumulative = logprobs.exp().cumsum(-1)
    total = cumulative[:, -1:]
    drawn = torch.tensor(draws, dtype=dtype, device=logits.device).unsqueeze(1) * total
    drawn = drawn.minimum(torch.nextafter(total, torch.zeros_like(total)))  # a draw next to 1 may have been rounded up
    tokens = torch.searchsorted(cumulative, drawn, right=True).clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1, keepdim=True), tokens)
    chosen = logprobs.gather(1, tokens).masked_fill(greedy, 0.0)
    return tokens.squeeze(1).tolist(), chosen.squeeze(1).tolist()


def _nucleus(logprobs: torch.Tensor, top_p: Sequence[float]) -> torch.Tensor:
    """Keep the most likely tokens that together have the probability `top_p`, including the one that reaches it.

    Source: Holtzman et al. (arXiv 1904.09751).
    """
    threshold = torch.tensor(top_p, dtype=logprobs.dtype, device=logprobs.device).unsqueeze(1)
    ordered, tokens = logprobs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    out = (before >= threshold) & (threshold < 1)
    out[:, 0] = False
    remaining = logprobs.masked_fill(torch.zeros_like(out).scatter(1, tokens, out), -torch.inf)
    return torch.log_softmax(remaining, dim=-1)
