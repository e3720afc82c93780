"""What is minimized."""

from __future__ import annotations

import torch


def reinforce(
    logprobs: torch.Tensor,
    weights: torch.Tensor,
    divergences: torch.Tensor,
    counts: torch.Tensor,
    *,
    denominator: int,
    kl: float,
) -> torch.Tensor:
    """REINFORCE held near a reference: minus (sum of weight * logprob - kl * divergence) / denominator.

    The denominator is the number of transitions in the whole update: it does not depend on how the update
    is cut into micro-batches or merged into rows, nor on how long the answers are, so that the gradients of
    all micro-batches add up to the update's. Source: GEM (arXiv 2510.01051), equation 4; with the
    divergence from a fixed reference it is a policy gradient form of magnetic mirror descent (Sokota et
    al., arXiv 2206.05825), which in two-player zero-sum games settles where plain self-play circles.

    Args:
        logprobs: log-probability of each token under the current policy, shape (rows, tokens).
        weights: summed advantage of each sampled token, 0 elsewhere, same shape.
        divergences: KL(policy || reference) of the distribution at each token, in nats, same shape.
        counts: how often each token was sampled, 0 elsewhere, same shape.
        denominator: the number of transitions in the update.
        kl: the weight of the divergence.
    """
    objective = (weights * logprobs).sum() - kl * (counts * divergences).sum()
    return -objective / denominator
