"""What computes gradients and takes steps: the protocol between the loop and a model on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from marl_gem.trainers.algorithms.base import Loss
from marl_gem.trainers.backends.readout import Estimator
from marl_gem.trainers.rows import Row

Weights: TypeAlias = dict[str, torch.Tensor]
"""A model's weights by name, on the CPU. Tensors that a model shares between names stand here once."""


class Regularization(NamedTuple):
    """How the divergence from the reference enters the loss, see `Estimator`, and the weight of the entropy bonus.

    With `kl_per_token` the divergence is averaged over the sampled tokens of the update; otherwise it is summed over
    each turn and averaged over turns.
    """

    kl_estimator: Estimator = "exact"
    kl_per_token: bool = False
    entropy_weight: float = 0.0


NO_REGULARIZATION = Regularization()


class Backend(Protocol):
    """A model that learns, its optimizer's state, and the reference that it is pulled to."""

    version: int
    """How many updates the model has had."""

    reference: Weights | None
    """The weights of the reference, if one was set."""

    def forward_backward(
        self,
        rows: Sequence[Row],
        loss: Loss,
        *,
        denominator: int,
        kl_weight: float = 0.0,
        regularization: Regularization = NO_REGULARIZATION,
    ) -> dict[str, float]:
        """Add the gradient of the loss on these rows to what has been gathered since the last step.

        Args:
            rows: what is learned from: all rows of the update.
            loss: of one micro-batch, see `algorithms.base.TokenBatch`.
            denominator: the number of transitions in the whole update.
            kl_weight: of the divergence from the reference; 0 leaves the reference out.
            regularization: how that divergence is computed and averaged, and the weight of the entropy.

        Returns:
            `loss`, and over the sampled tokens, in nats: the means `entropy`, `kl`, `logprob_diff` and
            `logprob_diff_abs`, the greatest absolute difference `logprob_diff_max`, and `sampling_kl`.

        Raises:
            TrainingError: one of these is not finite, and nothing is gathered then; or there is too little memory.
        """
        ...

    def logprobs(self, rows: Sequence[Row], *, reference: bool = False) -> list[list[float]]:
        """The log-probability of every sampled token of every row, 0 for the others.

        Args:
            rows: tokens.
            reference: under the reference, not under the present policy.
        """
        ...

    def step(self, *, learning_rate: float, max_grad_norm: float) -> float:
        """Take one step of the optimizer on the gathered gradient, scaled down to `max_grad_norm` if it is longer.

        Returns:
            the gradient's norm before that.

        Raises:
            TrainingError: the gradient is not finite, and the weights are as they were; or the weights are not finite
                after the step.
        """
        ...

    def utilization(self, rows: Sequence[Row], seconds: float) -> float | None:
        """The share of the device's arithmetic that a gradient on these rows took; None where it is not known.

        Args:
            rows: what was learned from.
            seconds: the wall time of one forward and backward pass over them.
        """
        ...

    def set_reference(self) -> None:
        """Make the present weights the reference."""
        ...

    def weights(self) -> Weights:
        """A copy of the present weights, on the CPU."""
        ...

    def optimizer_state(self) -> Weights:
        """A copy of the optimizer's state as named tensors, on the CPU."""
        ...

    def load_optimizer_state(self, state: Weights) -> None:
        """Put back what `optimizer_state` gave."""
        ...

    def save_model(self, folder: Any) -> None:
        """Write weights and tokenizer into a folder, in the layout of transformers."""
        ...
