"""Text as arrays of a fixed size, for learners that take numbers."""

from __future__ import annotations

import re
import zlib

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from marl_gem.errors import InvalidOption
from marl_gem.types import Observation
from marl_gem.views import as_text

_TOKEN = re.compile(r"\w+|[^\w\s]")


class HashedWords:
    """Which words and signs stand where: 1 in the bin of each word, 0 elsewhere.

    A word's bin is a hash (CRC-32) of its line, its index within the line and the word itself. Different words
    may share a bin, the fewer the larger `size` is. Fits observations of one layout, such as a board or "Your
    card: J. Moves so far: check.". Feature hashing: Weinberger et al., 2009 (arXiv 0902.2206).

    Args:
        size: the number of bins.
    """

    def __init__(self, size: int = 256) -> None:
        self.space = spaces.Box(0.0, 1.0, (_checked(size, "size"),), np.float32)

    def __call__(self, agent: str, observation: Observation) -> NDArray[np.float32]:
        """The array for an observation, of shape (size,)."""
        array = np.zeros(self.space.shape, np.float32)
        for row, line in enumerate(as_text(observation).splitlines()):
            for column, word in enumerate(_TOKEN.findall(line)):
                array[zlib.crc32(f"{row} {column} {word}".encode("utf-8", "replace")) % len(array)] = 1.0
        return array


class TextBytes:
    """The bytes of the text in UTF-8, each divided by 255; shorter texts are filled up with 0.

    Of a longer text the end is kept, where the latest news stands.

    Args:
        length: the number of bytes.
    """

    def __init__(self, length: int = 512) -> None:
        self.space = spaces.Box(0.0, 1.0, (_checked(length, "length"),), np.float32)

    def __call__(self, agent: str, observation: Observation) -> NDArray[np.float32]:
        """The array for an observation, of shape (length,)."""
        array = np.zeros(self.space.shape, np.float32)
        text = as_text(observation).encode("utf-8", "replace")[-len(array) :]
        array[: len(text)] = np.frombuffer(text, np.uint8) / np.float32(255)
        return array


def _checked(size: int, name: str) -> int:
    if not isinstance(size, int) or size < 1:
        raise InvalidOption(f"{name} is an integer from 1 up, not {size!r}")
    return size
