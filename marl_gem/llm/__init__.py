"""Language-model back ends behind one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from marl_gem.types import Message, Response, ToolSpec


class Sampling(msgspec.Struct, frozen=True):
    """How to draw an answer.

    At most `max_tokens` tokens, at `temperature` (0 takes the most likely), from the most likely tokens that
    together have the probability `top_p`; the answer ends before any of `stop`.
    """

    max_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()


class LLM(Protocol):
    """What answers messages."""

    @property
    def name(self) -> str:
        """Goes into records."""
        ...

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer. The same messages, tools, sampling and seed give the same answer where the back end can.

        Raises:
            TransientLLMError: it may go well when asked again.
            ContextTooLong: the prompt does not fit.
            LLMError: the model cannot answer; the message says why and what to do.
        """
        ...
