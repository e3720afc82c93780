"""A critic of turns: what discounted return an agent may expect, from what it is shown before a turn."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from marl_gem.prefixes import prefix_groups
from marl_gem.trainers.backends.adapters import AdapterModel, CausalModel
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.backends.local import finite_step, load_optimizer_tensors, optimizer_tensors
from marl_gem.trainers.backends.memory import DEFAULT_MEMORY, Memory, autocast, out_of_memory_explained, prepare
from marl_gem.trainers.batch import Trajectory
from marl_gem.trainers.rows import micro_batches


class _Row(NamedTuple):
    """Tokens that are read at once, and for which values: (trajectory, turn, position of the prompt's last token)."""

    ids: tuple[int, ...]
    reads: list[tuple[int, int, int]]


class AdapterTrunk(torch.nn.Module):
    """An adapter over a shared base as a module, without a head; its parameters and state are the adapter's alone."""

    def __init__(self, adapter: AdapterModel) -> None:
        super().__init__()
        self.adapter = adapter
        for index, parameter in enumerate(adapter.parameters()):
            self.register_parameter(f"weight_{index}", parameter)

    def forward(self, **inputs: Any) -> Any:
        return self.adapter.base_model(**inputs)


class TurnCritic(torch.nn.Module):
    """A language model without its head, with a linear head that gives a value at a prompt's last token.

    The value head starts at 0, so that a fresh critic expects nothing. Prompts that extend one another are read in one
    pass. The model is a copy of the policy's, or a further adapter over the same base; it learns, too, and shares no
    weight that learns with the policy.

    Args:
        model: is copied; the copy is on the same device.
        micro_batch_tokens: the greatest number of tokens, padding included, in one pass.
        memory: how memory is saved, and in what precision is computed; rows are always padded.
    """

    def __init__(
        self, model: CausalModel, *, micro_batch_tokens: int = 16_384, memory: Memory = DEFAULT_MEMORY
    ) -> None:
        super().__init__()
        self.trunk: AdapterTrunk | PreTrainedModel = (
            AdapterTrunk(model.sibling()) if isinstance(model, AdapterModel) else copy.deepcopy(model.base_model)
        )
        width = int(model.config.get_text_config().hidden_size)
        dtype = torch.promote_types(model.dtype, torch.float32)
        self.head = torch.nn.Linear(width, 1, device=model.device, dtype=dtype)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.optimizer = torch.optim.Adam(self.parameters(), betas=(0.9, 0.95), fused=True)
        self._micro_batch_tokens = micro_batch_tokens
        self._memory = memory

    def values(self, trajectories: Sequence[Trajectory]) -> list[tuple[list[float], float]]:
        """For each trajectory the values of its turns, and the value after its last turn, 0 where there is none."""
        found: dict[tuple[int, int], float] = {}
        for batch in micro_batches(_rows(trajectories), self._micro_batch_tokens):
            with torch.no_grad(), self._explained():
                values = self._read(batch).tolist()
            keys = [(trajectory, turn) for row in batch for trajectory, turn, _ in row.reads]
            found |= dict(zip(keys, values, strict=True))
        return [
            ([found[index, turn] for turn in range(len(trajectory))], found.get((index, len(trajectory)), 0.0))
            for index, trajectory in enumerate(trajectories)
        ]

    def fit(
        self,
        trajectories: Sequence[Trajectory],
        targets: Sequence[Sequence[float]],
        *,
        epochs: int,
        learning_rate: float,
        max_grad_norm: float,
    ) -> dict[str, float]:
        """Take steps on the mean squared error between values and targets.

        Args:
            trajectories: whose turns are learned from.
            targets: a target for each turn of each trajectory.
            epochs: how many steps are taken.
            learning_rate, max_grad_norm: of the steps.

        Returns:
            `critic_loss`, half the mean squared error in the last step.

        Raises:
            TrainingError: the gradient or the weights after a step are not finite, or there is too little memory.
        """
        rows = [
            _Row(row.ids, [read for read in row.reads if read[1] < len(trajectories[read[0]])])
            for row in _rows(trajectories)
        ]
        rows = [row for row in rows if row.reads]
        total = 0.0
        for _ in range(epochs):
            with self._explained():
                total = self._backward(rows, targets)
                finite_step(
                    self.optimizer, dict(self.named_parameters()), learning_rate=learning_rate,
                    max_grad_norm=max_grad_norm,
                )  # fmt: skip
        return {"critic_loss": total}

    def _backward(self, rows: Sequence[_Row], targets: Sequence[Sequence[float]]) -> float:
        """Gather the gradient of the loss, and return the loss."""
        count, total = sum(map(len, targets)), 0.0
        for batch in micro_batches(rows, self._micro_batch_tokens):
            values = self._read(batch)
            wanted = values.new_tensor([targets[index][turn] for row in batch for index, turn, _ in row.reads])
            loss = (values - wanted).square().sum() / (2 * count)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    @property
    def _model(self) -> CausalModel:
        return self.trunk.adapter if isinstance(self.trunk, AdapterTrunk) else self.trunk

    def _explained(self) -> AbstractContextManager[None]:
        return out_of_memory_explained(self._model, self._memory, self._micro_batch_tokens)

    def state(self) -> Weights:
        """A copy of weights and optimizer, as named tensors on the CPU."""
        weights = {f"weights/{name}": value.detach().to("cpu", copy=True) for name, value in self.state_dict().items()}
        return weights | {f"optimizer/{name}": value for name, value in optimizer_tensors(self.optimizer).items()}

    def restore(self, state: Weights) -> None:
        """Put back what `state` gave.

        Raises:
            RuntimeError: it is of another model.
        """
        parts: dict[str, Weights] = {"weights": {}, "optimizer": {}}
        for key, value in state.items():
            part, _, name = key.partition("/")
            parts[part][name] = value
        self.load_state_dict(parts["weights"])
        load_optimizer_tensors(self.optimizer, parts["optimizer"])

    def _read(self, rows: Sequence[_Row]) -> torch.Tensor:
        """The values that these rows are read for, in their order."""
        prepare(self._model, self._memory)
        device = self.head.weight.device
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([row.ids + (0,) * (width - len(row.ids)) for row in rows], device=device)
        mask = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows], device=device)
        with autocast(self._model, self._memory):
            states = self.trunk(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        entries = [(index, position) for index, row in enumerate(rows) for _, _, position in row.reads]
        indices, positions = (torch.tensor(column, device=device) for column in zip(*entries, strict=True))
        values: torch.Tensor = self.head(states[indices, positions].to(self.head.weight.dtype)).squeeze(-1)
        return values


def _rows(trajectories: Sequence[Trajectory]) -> list[_Row]:
    """As few rows as hold every prompt, also that of what was seen last."""
    rows = []
    for index, trajectory in enumerate(trajectories):
        tokens = [(turn.prompt_ids, turn.action_ids) for turn in trajectory]
        if trajectory[-1].next_prompt_ids:
            tokens.append((trajectory[-1].next_prompt_ids, ()))
        for group in prefix_groups(tokens):
            prompt, _ = tokens[group[-1]]  # the last answer of a row is read by nobody
            rows.append(_Row(tuple(prompt), [(index, turn, len(tokens[turn][0]) - 1) for turn in group]))
    return rows
