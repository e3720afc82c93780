"""What an algorithm is: advantages of a batch, and a loss on tokens.

The loop plays episodes, asks the algorithm for the advantages of all transitions in the batch, merges them into rows,
and lets a backend compute the loss of each micro-batch and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from marl_gem.trainers.batch import Batch

if TYPE_CHECKING:
    import torch


class TokenBatch(NamedTuple):
    """One micro-batch, as the loss sees it. Tensors have the shape (rows, tokens) and are 0 where nothing was sampled.

    `logprobs` are those of the current policy at the temperature of sampling, with a graph. `proximal_logprobs` are
    those of the policy as it was before the update's first step, where the algorithm needs them, and otherwise
    `behaviour_logprobs`, those that the tokens were sampled with (their mean in a folded row). `advantages`,
    `positive`, `negative`, `counts` and `lengths` are as in `rows.Row`. `entropies` are those of the distribution at
    each token, in nats, with a graph only where `entropy_weight` is not 0. `kl` is the divergence from the reference
    at each token, in nats, as the configured estimator gives it, and `kl_weight` its weight; with `kl_per_token` it is
    averaged over tokens, otherwise summed over a turn's tokens. `denominator` and `token_count` are the numbers of
    transitions and of sampled tokens in the whole update.
    """

    logprobs: torch.Tensor
    proximal_logprobs: torch.Tensor
    behaviour_logprobs: torch.Tensor
    advantages: torch.Tensor
    positive: torch.Tensor
    negative: torch.Tensor
    counts: torch.Tensor
    lengths: torch.Tensor
    entropies: torch.Tensor
    kl: torch.Tensor
    kl_weight: float
    kl_per_token: bool
    entropy_weight: float
    denominator: int
    token_count: int


Loss: TypeAlias = "Callable[[TokenBatch], torch.Tensor]"
"""From a micro-batch to its share of the loss, a scalar; the shares of all micro-batches add up to the update's."""


class Needs(msgspec.Struct, frozen=True):
    """What an algorithm asks of the loop.

    `group_size`: so many episodes start from the same state, with the same learning seats; they share
    `Transition.group`. `epochs`: how many steps are taken on each batch; after the first one the policy is no longer
    the one that sampled it. `linear_loss`: the loss is linear in the advantages, so that rows with equal tokens may be
    folded into one; a loss with importance ratios or clipping is not. `separate_signs`: the loss is not linear, but
    reads `positive` and `negative` in place of `advantages`, so that rows may be folded whose tokens were also sampled
    with equal log-probabilities. `proximal`: the log-probabilities of the policy before the update's first step are
    computed. `critic`: every policy that learns has a critic, which gives `Transition.value` and is fitted to
    `Advantages.targets`. `off_policy`: the loss weighs or clips what an earlier version sampled by itself. With
    `training.staleness` above 0 a linear loss without it gets truncated importance weights, see `truncated`; a loss
    that is not linear is refused.
    """

    group_size: int = 1
    epochs: int = 1
    linear_loss: bool = False
    separate_signs: bool = False
    proximal: bool = False
    critic: bool = False
    off_policy: bool = False

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.epochs < 1:
            raise ValueError(f"group_size and epochs are numbers from 1 up, not {self.group_size} and {self.epochs}")


class Advantages(NamedTuple):
    """One advantage for each of `Batch.transitions`, and metrics of the batch, plain data by name.

    `targets` are what a critic is to be fitted to, one for each transition; without a critic there are none.
    """

    values: Sequence[float]
    metrics: Mapping[str, Any] = {}
    targets: Sequence[float] = ()


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


@runtime_checkable
class Stateful(Protocol):
    """An algorithm that remembers something from update to update. The state is plain JSON, kept in checkpoints."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


def policy_gradient(tokens: TokenBatch) -> torch.Tensor:
    """The REINFORCE loss with a pull to the reference: -sum(advantage * logprob - kl_weight * kl) / denominator.

    The denominator is the number of transitions in the whole update: it does not depend on how the update is cut into
    micro-batches or merged into rows, nor on how long the responses are. Source: GEM (arXiv 2510.01051), equation 4;
    with the divergence from a fixed reference it is a policy gradient form of magnetic mirror descent (Sokota et al.,
    arXiv 2206.05825), which in two-player zero-sum games settles where plain self-play circles.
    """
    return regularized((tokens.advantages * tokens.logprobs).sum(), tokens)


IMPORTANCE_CAP = 2.0
"""The greatest weight that `truncated` gives."""


def truncated(loss: Loss) -> Loss:
    """A loss that is linear in the advantages, for tokens that earlier versions sampled: each token's advantage is
    multiplied by min(r, `IMPORTANCE_CAP`), r its probability now divided by the one it was sampled with.

    Without the cap the weight of a token makes the gradient that of the present policy at this token, as PPO's ratio
    does; that the tokens before it were sampled by an earlier version stays uncorrected. The cap bounds the variance.
    Source: Ionides, "Truncated importance sampling" (2008); per token as in IMPALA (Espeholt et al., arXiv 1802.01561).
    """

    def weighted(tokens: TokenBatch) -> torch.Tensor:
        difference = (tokens.logprobs.detach() - tokens.behaviour_logprobs) * (tokens.counts > 0)
        weights = difference.exp().clamp(max=IMPORTANCE_CAP)
        columns = {name: getattr(tokens, name) * weights for name in ("advantages", "positive", "negative")}
        return loss(tokens._replace(**columns))

    return weighted


def regularized(objective: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
    """A loss from a sum over tokens that is to grow, with the pull to the reference and the bonus for entropy.

    The divergence is computed at each token, but its effect on later tokens is left out, as in most implementations:
    for responses of several tokens this is not the gradient of the divergence between sequences. Paid as a reward
    (`training.kl_in = "reward"`) nothing is left out.
    """
    divergence = tokens.kl_weight * (tokens.counts * tokens.kl).sum()
    if tokens.kl_per_token:
        loss = -objective / tokens.denominator + divergence / tokens.token_count
    else:
        loss = -(objective - divergence) / tokens.denominator
    if tokens.entropy_weight:
        loss = loss - tokens.entropy_weight * (tokens.counts * tokens.entropies).sum() / tokens.token_count
    return loss
