"""A cache of keys and values whose rows come and go: what is there is never copied for a new token or a new row.

All rows end at the same column; a row that is shorter than others begins further to the right. The tensors have room
for more rows and columns, and are replaced by larger ones when it is used up.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class SlotCache(Cache):  # type: ignore[misc]
    """Rows of keys and values, and the attention mask that says which of their columns count.

    Args:
        cache: the first rows, as a model has filled it.
        mask: their attention mask, shape (rows, columns).
    """

    def __init__(self, cache: Any, mask: torch.Tensor) -> None:
        self.rows, self.start, self.end = mask.shape[0], 0, mask.shape[1]
        self._mask = mask
        super().__init__(layers=[_SlotLayer(self, layer.keys, layer.values) for layer in cache.layers])

    @property
    def mask(self) -> torch.Tensor:
        """The attention mask of the columns in use, shape (rows, columns)."""
        return self._mask[: self.rows, self.start : self.end]

    def add_column(self) -> None:
        """Make room for the next token of every row; the next forward pass writes it."""
        self._reserve(self.rows, 0, 1)
        self.end += 1
        self._mask[: self.rows, self.end - 1] = 1

    def add_rows(self, cache: Any, mask: torch.Tensor) -> None:
        """Add rows that a model has filled, which end where the others do."""
        count, width = mask.shape
        self._reserve(self.rows + count, width - (self.end - self.start), 0)
        new = slice(self.rows, self.rows + count)
        self.start = min(self.start, self.end - width)
        self._mask[new] = 0
        self._mask[new, self.end - width : self.end] = mask
        for layer, added in zip(self.layers, cache.layers, strict=True):
            layer.keys[new, :, self.end - width : self.end] = added.keys
            layer.values[new, :, self.end - width : self.end] = added.values
        self.rows += count

    def remove_row(self, row: int) -> None:
        """Put the last row into the place of this one."""
        self.rows -= 1
        if row != self.rows:
            columns = slice(self.start, self.end)
            self._mask[row] = self._mask[self.rows]
            for layer in self.layers:
                layer.keys[row, :, columns] = layer.keys[self.rows, :, columns]
                layer.values[row, :, columns] = layer.values[self.rows, :, columns]

    def narrow(self, width: int) -> None:
        """Leave out the columns on the left that no row needs any more, of which the longest has `width`."""
        self.start = self.end - width

    def _reserve(self, rows: int, left: int, right: int) -> None:
        """Have room for so many rows, and for so many columns more on both sides."""
        capacity = self._mask.shape
        if rows <= capacity[0] and left <= self.start and self.end + right <= capacity[1]:
            return
        width = self.end - self.start
        left, more = max(left, 0), width // 2 + 64  # so that this happens once in many tokens
        shape = max(rows, capacity[0] + capacity[0] // 2 if rows > capacity[0] else capacity[0]), left + width + more
        old, new = slice(self.start, self.end), slice(left, left + width)
        mask = self._mask.new_zeros(shape)
        mask[: self.rows, new] = self._mask[: self.rows, old]
        self._mask = mask
        for layer in self.layers:
            for name in ("keys", "values"):
                before = getattr(layer, name)
                larger = before.new_zeros(shape[0], before.shape[1], shape[1], before.shape[3])  # masked, but finite
                larger[: self.rows, :, new] = before[: self.rows, :, old]
                setattr(layer, name, larger)
        self.start, self.end = left, left + width


class _SlotLayer(DynamicLayer):  # type: ignore[misc]
    """One layer of a `SlotCache`."""

    def __init__(self, cache: SlotCache, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._cache = keys, values, cache
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the column that `add_column` made room for, and return all columns in use."""
        rows, start, end = self._cache.rows, self._cache.start, self._cache.end
        self.keys[:rows, :, end - 1 : end] = key_states
        self.values[:rows, :, end - 1 : end] = value_states
        return self.keys[:rows, :, start:end], self.values[:rows, :, start:end]

    def get_seq_length(self) -> int:
        """How many columns there were before `add_column`."""
        return self._cache.end - 1 - self._cache.start
