"""The clipped surrogate objective, with importance weights for tokens that another policy sampled.

Three policies are kept apart (Hilton et al., "Batch size-invariance for policy optimization", arXiv 2110.00641): the
behaviour policy, which sampled the tokens; the proximal policy, from which clipping measures the distance; and the
current one. Without an importance weight the proximal policy is the behaviour policy, as in PPO.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import torch
from msgspec import Meta

from marl_gem.trainers.algorithms.base import Needs, TokenBatch, regularized


class SurrogateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the algorithms with this loss have in common."""

    # How many steps are taken on each batch.
    epochs: Annotated[int, Meta(ge=1)] = 1
    # The ratio of current to proximal probability counts down to 1 - clip_low where the advantage is negative, ...
    clip_low: Annotated[float, Meta(ge=0, le=1)] = 0.2
    # ... and up to 1 + clip_high where it is positive. Source: PPO (arXiv 1707.06347), equation 7; apart: DAPO
    # (arXiv 2503.14476), section 3.1.
    clip_high: Annotated[float, Meta(ge=0)] = 0.2
    # The weight of a token whose probability under the proximal policy is r times that under the behaviour policy:
    # "none" 1, "truncated" min(r, importance_high), "masked" r from importance_low to importance_high and 0 outside.
    importance: Literal["none", "truncated", "masked"] = "none"
    # See `importance`.
    importance_low: Annotated[float, Meta(ge=0)] = 0.5
    # See `importance`.
    importance_high: Annotated[float, Meta(gt=0)] = 2.0
    # What the objective is a mean over: "turn" sums over a turn's tokens and divides by the number of turns; "answer"
    # takes the mean over each turn's tokens first, so that tokens of long answers count less (GRPO's length term);
    # "token" divides by the number of sampled tokens in the update.
    average: Literal["turn", "answer", "token"] = "turn"


class Surrogate:
    """The loss -sum(weight * min(ratio * A, clip(ratio) * A)), with the pull to the reference.

    For folded rows it is exact: min(r, 1 + clip_high) goes with the sum of the positive advantages, max(r, 1 -
    clip_low) with that of the negative ones.
    """

    def __init__(self, options: SurrogateOptions) -> None:
        self._options = options

    def needs(self, *, group_size: int = 1, critic: bool = False) -> Needs:
        """What the loop must serve for this loss."""
        return Needs(
            group_size=group_size,
            epochs=self._options.epochs,
            separate_signs=True,
            proximal=self._options.importance != "none",
            critic=critic,
            off_policy=True,
        )

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        options = self._options
        sampled = tokens.counts > 0
        ratio = torch.exp(torch.where(sampled, tokens.logprobs - tokens.proximal_logprobs, 0.0))
        gain = ratio.clamp(max=1 + options.clip_high) * tokens.positive
        gain = gain + ratio.clamp(min=1 - options.clip_low) * tokens.negative
        gain = gain * self._importance(tokens, sampled)
        if options.average == "answer":
            gain = gain / tokens.lengths.clamp(min=1)
        elif options.average == "token":
            gain = gain * (tokens.denominator / tokens.token_count)
        return regularized(torch.where(sampled, gain, 0.0).sum(), tokens)

    def _importance(self, tokens: TokenBatch, sampled: torch.Tensor) -> torch.Tensor | float:
        """The weight of each token, without a graph."""
        options = self._options
        if options.importance == "none":
            return 1.0
        difference = torch.where(sampled, tokens.proximal_logprobs - tokens.behaviour_logprobs, 0.0)
        weight = torch.exp(difference)
        if options.importance == "truncated":
            return weight.clamp(max=options.importance_high)
        inside = (weight >= options.importance_low) & (weight <= options.importance_high)
        return torch.where(inside, weight, 0.0)
