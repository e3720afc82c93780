"""How rows lie in the tensors that a model reads: side by side and filled up, or one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from marl_gem.trainers.rows import Row


@dataclass(frozen=True)
class Layout:
    """A micro-batch of rows as tensors.

    Args:
        rows: what is read.
        ids: token ids, shape (rows, width), or (1, width) if they are packed.
        mask: the attention mask, same shape; None if the rows are packed, where `position_ids` alone keep them apart.
        position_ids: the position of each token in its row, same shape.
        states: which hidden states are read out, shape (n + 1,): those before each of `targets`, and one more.
        targets: the tokens whose log-probabilities are computed, shape (rows, n) or (1, n).
    """

    rows: Sequence[Row]
    ids: torch.Tensor
    mask: torch.Tensor | None
    position_ids: torch.Tensor
    states: torch.Tensor | slice
    targets: torch.Tensor

    def column(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """A field of the rows, shaped like `targets`."""
        if self.mask is None:
            parts = [_sampled(row, getattr(row, name)) for row in self.rows]
            values = [[value for part in parts for value in part]]
        else:
            values = [_last(getattr(row, name), self.targets.shape[1]) for row in self.rows]
        return torch.tensor(values, dtype=dtype, device=self.ids.device)

    def per_row(self, values: torch.Tensor) -> list[list[float]]:
        """From a tensor shaped like `targets` to a number for each token of each row, 0 where nothing was sampled."""
        if self.mask is None:
            following = iter(values[0].tolist())
            return [[next(following) if count else 0.0 for count in row.counts] for row in self.rows]
        keep = self.targets.shape[1]
        found = []
        for row, last in zip(self.rows, values.tolist(), strict=True):
            everything = [0.0] * (len(row.ids) - keep) + last[max(0, keep - len(row.ids)) :]
            found.append([value if count else 0.0 for value, count in zip(everything, row.counts, strict=True)])
        return found


def padded(rows: Sequence[Row], pad: int, device: torch.device) -> Layout:
    """Rows side by side, short ones filled on the left; read out from the first sampled token of any row on."""
    width = max(len(row.ids) for row in rows)
    keep = max(len(row.ids) - _first_sampled(row) for row in rows)
    ids = torch.tensor([(pad,) * (width - len(row.ids)) + row.ids for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row.ids)) + [1] * len(row.ids) for row in rows], device=device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return Layout(rows, ids, mask, positions, slice(-keep - 1, None), ids[:, -keep:])


def packed(rows: Sequence[Row], device: torch.device) -> Layout:
    """Rows one after the other, each with positions from 0 on; read out only where tokens were sampled."""
    ids = [token for row in rows for token in row.ids]
    positions = [position for row in rows for position in range(len(row.ids))]
    states, start = [], 0
    for row in rows:
        states += [start + index - 1 for index, count in enumerate(row.counts) if count]
        start += len(row.ids)
    targets = [token for row in rows for token in _sampled(row, row.ids)]
    return Layout(
        rows,
        torch.tensor([ids], device=device),
        None,
        torch.tensor([positions], device=device),
        torch.tensor([*states, states[-1]], device=device),
        torch.tensor([targets], device=device),
    )


def packs(rows: Iterable[Row], tokens: int) -> Iterator[list[Row]]:
    """Rows in groups of at most `tokens` tokens together, as few as the first-fit decreasing rule finds."""
    groups: list[tuple[int, list[Row]]] = []
    for row in sorted(rows, key=lambda row: len(row.ids), reverse=True):
        size = len(row.ids)
        for index, (used, group) in enumerate(groups):
            if used + size <= tokens:
                group.append(row)
                groups[index] = (used + size, group)
                break
        else:
            groups.append((size, [row]))
    return (group for _, group in groups)


def _sampled(row: Row, values: Sequence[float]) -> list[float]:
    """The values at the tokens that were sampled."""
    return [value for value, count in zip(values, row.counts, strict=True) if count]


def _first_sampled(row: Row) -> int:
    return next(index for index, count in enumerate(row.counts) if count)


def _last(values: Sequence[float], length: int) -> list[float]:
    """The last `length` values, after zeros where there are fewer."""
    return [0.0] * (length - len(values)) + list(values[-length:])
