"""Spaces of text, for the action and observation spaces of converted envs.

`gymnasium.spaces.Text` bounds the length and names every character; what a language model reads and writes
has no such bounds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gymnasium


class FreeText(gymnasium.Space[str]):
    """Any text at all, the empty one and lone surrogates included.

    Args:
        legal: what `sample` draws from, if given. A converted env keeps it up to date for the agent whose
            action space it is, so that `action_space.sample()` plays legal moves where they can be listed.
        seed: for `sample`.
    """

    def __init__(self, legal: Collection[str] = (), seed: int | None = None) -> None:
        self.legal = tuple(legal)
        super().__init__(dtype=str, seed=seed)

    def sample(self, mask: Collection[str] | None = None, probability: None = None) -> str:
        """Draw a text: one of `mask` if it is given, else one of `legal`, else any.

        A text drawn from all is of 20 characters on average, mostly ASCII, some from all over Unicode, without
        surrogates, so that it can be written to a file.

        Args:
            mask: the texts to choose from.
            probability: must be None; texts have no probabilities here.

        Raises:
            ValueError: there is nothing to choose from, or `mask` is no collection of texts.
        """
        if probability is not None:
            raise ValueError(f"{self} has no probabilities; choose from some texts with mask=[...]")
        if mask is not None and (isinstance(mask, str) or not all(isinstance(text, str) for text in mask)):
            raise ValueError(f"a mask of {self} holds the texts to choose from, not {mask!r}")
        if mask is not None and len(mask) == 0:
            raise ValueError(f"the mask of {self} is empty: it leaves nothing to choose from")
        texts = self.legal if mask is None else tuple(mask)
        return texts[self.np_random.integers(len(texts))] if texts else self._any_text()

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _any_text(self) -> str:
        dice = self.np_random
        length = dice.geometric(1 / 21) - 1
        usual, strange = dice.integers(32, 127, length), dice.integers(0x110000 - 0x800, size=length)
        points = [int(u if roll < 0.8 else s) for u, s, roll in zip(usual, strange, dice.random(length), strict=True)]
        return "".join(chr(point if point < 0xD800 else point + 0x800) for point in points)


class Content(FreeText):
    """What an agent may be shown: any text, or a list of content parts as chat APIs have them."""

    def contains(self, x: Any) -> bool:
        if not isinstance(x, list):
            return super().contains(x)
        return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in x)
