"""What an algorithm is: advantages of a batch, and a loss on tokens.

The loop plays episodes, asks the algorithm for the advantages of all transitions in the batch, merges them into rows,
and lets a backend compute the loss of each micro-batch and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import msgspec

from marl_gem.trainers.batch import Batch

if TYPE_CHECKING:
    import torch


class TokenBatch(NamedTuple):
    """One micro-batch, as the loss sees it. Tensors have the shape (rows, tokens) and are 0 where nothing was sampled.

    `logprobs` are those of the current policy at the temperature of sampling, with a graph. `advantages`, `counts` and
    `behaviour_logprobs` are as in `rows.Row`. `kl` is KL(policy || reference) of the distribution at each token, in
    nats, and `kl_weight` its weight. `denominator` is the number of transitions in the whole update.
    """

    logprobs: torch.Tensor
    advantages: torch.Tensor
    counts: torch.Tensor
    behaviour_logprobs: torch.Tensor
    kl: torch.Tensor
    kl_weight: float
    denominator: int


Loss: TypeAlias = "Callable[[TokenBatch], torch.Tensor]"
"""From a micro-batch to its share of the loss, a scalar; the shares of all micro-batches add up to the update's."""


class Needs(msgspec.Struct, frozen=True):
    """What an algorithm asks of the loop.

    `group_size`: so many episodes start from the same state, with the same learning seats; they share
    `Transition.group`. `epochs`: how many steps are taken on each batch; after the first one the policy is no longer
    the one that sampled it. `linear_loss`: the loss is linear in the advantages, so that equal rows may be folded
    into one; a loss with importance ratios or clipping is not.
    """

    group_size: int = 1
    epochs: int = 1
    linear_loss: bool = False

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.epochs < 1:
            raise ValueError(f"group_size and epochs are numbers from 1 up, not {self.group_size} and {self.epochs}")


class Advantages(NamedTuple):
    """One advantage for each of `Batch.transitions`, and metrics of the batch, plain data by name."""

    values: Sequence[float]
    metrics: Mapping[str, Any] = {}


class Algorithm(Protocol):
    """A training algorithm. It is made with its `Options`, filled from the configuration's `algorithm.options`."""

    Options: ClassVar[type[msgspec.Struct]]
    """A frozen struct; a comment above each field gives meaning, unit and range."""

    METRICS: ClassVar[Mapping[str, str]]
    """What `advantages` adds to the metrics: the formula of each name, up to a slash in it."""

    def __init__(self, options: Any) -> None: ...

    @property
    def needs(self) -> Needs: ...

    def advantages(self, batch: Batch) -> Advantages:
        """The advantages of all transitions of the update, before any subsampling."""
        ...

    def loss(self, tokens: TokenBatch) -> torch.Tensor:
        """This micro-batch's share of the loss."""
        ...


def policy_gradient(tokens: TokenBatch) -> torch.Tensor:
    """The REINFORCE loss with a pull to the reference: -sum(advantage * logprob - kl_weight * kl) / denominator.

    The denominator is the number of transitions in the whole update: it does not depend on how the update is cut into
    micro-batches or merged into rows, nor on how long the responses are. Source: GEM (arXiv 2510.01051), equation 4;
    with the divergence from a fixed reference it is a policy gradient form of magnetic mirror descent (Sokota et al.,
    arXiv 2206.05825), which in two-player zero-sum games settles where plain self-play circles.

    The divergence is exact at each token, but its effect on later tokens is left out, as in most implementations: for
    responses of several tokens this is not the gradient of the divergence between sequences.
    """
    objective = (tokens.advantages * tokens.logprobs).sum() - tokens.kl_weight * (tokens.counts * tokens.kl).sum()
    return -objective / tokens.denominator
