"""A critic of turns: what discounted return an agent may expect, from what it is shown before a turn."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from marl_gem.prefixes import prefix_groups
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.backends.local import finite_step, load_optimizer_tensors, optimizer_tensors
from marl_gem.trainers.batch import Trajectory
from marl_gem.trainers.rows import micro_batches


class _Row(NamedTuple):
    """Tokens that are read at once, and for which values: (trajectory, turn, position of the prompt's last token)."""

    ids: tuple[int, ...]
    reads: list[tuple[int, int, int]]


class TurnCritic(torch.nn.Module):
    """A copy of a language model without its head, with a linear head that gives a value at a prompt's last token.

    The value head starts at 0, so that a fresh critic expects nothing. Prompts that extend one another are read in one
    pass. The copy's trunk learns, too: it shares nothing with the policy.

    Args:
        model: is copied; the copy is on the same device.
        micro_batch_tokens: the greatest number of tokens, padding included, in one pass.
    """

    def __init__(self, model: PreTrainedModel, *, micro_batch_tokens: int = 16_384) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(model.base_model)
        width = int(model.config.get_text_config().hidden_size)
        self.head = torch.nn.Linear(width, 1, device=model.device, dtype=model.dtype)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.optimizer = torch.optim.Adam(self.parameters(), betas=(0.9, 0.95), fused=True)
        self._micro_batch_tokens = micro_batch_tokens

    def values(self, trajectories: Sequence[Trajectory]) -> list[tuple[list[float], float]]:
        """For each trajectory the values of its turns, and the value after its last turn, 0 where there is none."""
        found: dict[tuple[int, int], float] = {}
        for batch in micro_batches(_rows(trajectories), self._micro_batch_tokens):
            with torch.no_grad():
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
            TrainingError: the gradient or the weights after a step are not finite.
        """
        rows = [
            _Row(row.ids, [read for read in row.reads if read[1] < len(trajectories[read[0]])])
            for row in _rows(trajectories)
        ]
        rows = [row for row in rows if row.reads]
        count = sum(map(len, targets))
        total = 0.0
        for _ in range(epochs):
            total = 0.0
            for batch in micro_batches(rows, self._micro_batch_tokens):
                values = self._read(batch)
                wanted = values.new_tensor([targets[index][turn] for row in batch for index, turn, _ in row.reads])
                loss = (values - wanted).square().sum() / (2 * count)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
            finite_step(
                self.optimizer, dict(self.named_parameters()), learning_rate=learning_rate, max_grad_norm=max_grad_norm
            )
        return {"critic_loss": total}

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
        self.trunk.eval()
        device = self.head.weight.device
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([row.ids + (0,) * (width - len(row.ids)) for row in rows], device=device)
        mask = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows], device=device)
        states = self.trunk(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        entries = [(index, position) for index, row in enumerate(rows) for _, _, position in row.reads]
        indices, positions = (torch.tensor(column, device=device) for column in zip(*entries, strict=True))
        values: torch.Tensor = self.head(states[indices, positions]).squeeze(-1)
        return values.to(torch.promote_types(values.dtype, torch.float32))


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
