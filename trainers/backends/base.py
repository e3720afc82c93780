"""What computes gradients and takes steps: the protocol between the loop and a model on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch

from marl_gem.trainers.algorithms.base import Loss
from marl_gem.trainers.rows import Row

Weights: TypeAlias = dict[str, torch.Tensor]
"""A model's weights by name, on the CPU. Tensors that a model shares between names stand here once."""


class Backend(Protocol):
    """A model that learns, its optimizer's state, and the reference that it is pulled to."""

    version: int
    """How many updates the model has had."""

    reference: Weights | None
    """The weights of the reference, if one was set."""

    def forward_backward(
        self, rows: Sequence[Row], loss: Loss, *, denominator: int, kl_weight: float = 0.0
    ) -> dict[str, float]:
        """Add the gradient of the loss on these rows to what has been gathered since the last step.

        Args:
            rows: what is learned from.
            loss: of one micro-batch, see `algorithms.base.TokenBatch`.
            denominator: the number of transitions in the whole update.
            kl_weight: of the divergence from the reference; 0 leaves the reference out.

        Returns:
            `loss`, and as means over the sampled tokens `entropy`, `kl` and `logprob_diff`, in nats.
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
