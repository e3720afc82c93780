"""Language-model back ends behind one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from marl_gem import bounds
from marl_gem.types import Message, Response, ToolSpec

_RANGES = {
    "max_tokens": bounds.ANSWER_TOKENS,
    "temperature": bounds.TEMPERATURE,
    "top_p": bounds.PROBABILITY,
}


class Sampling(msgspec.Struct, frozen=True):
    """How an answer is sampled.

    Raises:
        ConfigError: a number is out of range, see `marl_gem.bounds`.
    """

    # The greatest number of tokens of an answer, reasoning included; at least 1. None leaves it to the back end.
    max_tokens: int | None = 64
    # Divides the logits; 0 takes the most likely token.
    temperature: float = 1.0
    # Tokens are drawn from the most likely ones that together have this probability; above 0, at most 1.
    top_p: float = 1.0
    # Texts that end the answer; they are not part of it.
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds.check_all("", self, _RANGES)


class LLM(Protocol):
    """What every back end implements."""

    @property
    def name(self) -> str:
        """The name that goes into records."""
        ...

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, seed: int, tools: Sequence[ToolSpec] = ()
    ) -> Response:
        """Answer a list of messages. Equal arguments give equal answers where the back end supports it.

        Args:
            messages: the prompt, oldest first.
            sampling: how the answer is sampled.
            seed: the seed of the sampling.
            tools: the tools that the model may call.

        Raises:
            TransientLLMError: a retry may succeed.
            ContextTooLong: the prompt does not fit.
            LLMError: the model cannot answer; the message says why and what to do next.
        """
        ...
