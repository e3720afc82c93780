"""Language-model back ends behind one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from marl_gem.types import Message, Response


class Sampling(msgspec.Struct, frozen=True):
    """How to draw an answer: at most `max_tokens` tokens, at `temperature` (0 takes the most likely)."""

    max_tokens: int = 64
    temperature: float = 1.0


class LLM(Protocol):
    """What answers messages."""

    @property
    def name(self) -> str:
        """Goes into records."""
        ...

    async def complete(self, messages: Sequence[Message], sampling: Sampling, seed: int) -> Response:
        """Answer. The same messages, sampling and seed give the same answer where the back end can.

        Raises:
            LLMError: the model cannot answer; the message says why and what to do.
        """
        ...
