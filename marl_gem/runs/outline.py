"""The lines of a file of episodes: read completely, or in outline, which is ten times as fast."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeAlias

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.checksum import verify
from marl_gem.types import Ending, Episode, EpisodeError, Response, from_json


class ResponseOutline(msgspec.Struct, gc=False):
    """What a response took, under the names of `Response`."""

    usage: dict[str, int] = {}
    seconds: float = 0.0
    cost: float | None = None
    retries: int = 0
    cached: bool = False
    cut: int = 0
    unsent: tuple[str, ...] = ()
    sampled: msgspec.Raw = msgspec.field(name="token_ids", default=msgspec.Raw(b"[]"))

    @property
    def token_ids(self) -> bool:
        """Whether there are any."""
        return len(self.sampled) > 2


class TurnOutline(msgspec.Struct, gc=False):
    """A turn without its texts. The values of `info` are JSON."""

    agent: str
    response: ResponseOutline
    info: dict[str, msgspec.Raw] = {}


class EpisodeOutline(msgspec.Struct, gc=False):
    """The fields of an episode that its outcome and a summary need. The decoder skips all others."""

    id: str
    scenario: str
    seed: int
    turns: list[TurnOutline]
    returns: dict[str, float]
    ending: Ending
    error: EpisodeError | None = None
    models: dict[str, str] = {}
    usage: dict[str, int] = {}
    limit: str = ""
    repeat: int = 0
    final_infos: dict[str, dict[str, Any]] = {}
    zero_sum: bool | None = None
    tags: dict[str, dict[str, str]] = {}
    seconds: float = 0.0
    options: dict[str, msgspec.Raw] = {}


Outlined: TypeAlias = Episode | EpisodeOutline
"""An episode, complete or in outline."""

decode_outline = msgspec.json.Decoder(EpisodeOutline).decode
"""Refuses lone surrogates, and floats that are not finite."""


def read_episode(line: bytes) -> Episode:
    """The episode in a line.

    Raises:
        RecordError: the line is no episode, or does not fit its checksum; the message says why.
    """
    try:
        verify(line)
        return from_json(line.decode("utf-8"), Episode)
    except ValueError as error:
        raise RecordError(f"not an Episode: {error}") from error


def read_outline(line: bytes) -> Outlined:
    """The episode in a line, in outline, or complete where it holds lone surrogates.

    Raises:
        RecordError: the line is no episode, or does not fit its checksum, or one of these numbers is not finite: a
            return, a cost, a time. The message says why.
    """
    try:
        verify(line)
        return decode_outline(line)
    except (msgspec.DecodeError, RecursionError):
        episode = read_episode(line)  # or says what is wrong
    except ValueError as error:
        raise RecordError(f"not an Episode: {error}") from error
    responses = [turn.response for turn in episode.turns]
    numbers = [number for response in responses for number in (response.seconds, response.cost or 0.0)]
    if not all(map(isfinite, (*episode.returns.values(), episode.seconds, *numbers))):
        raise RecordError("not an Episode: a return, the cost or the time is not finite")
    return episode


def cost_of(response: Response | ResponseOutline) -> float | None:
    """US dollars that a response cost: 0 for a script's or a cache's, None if a model's price is unknown."""
    by_model = response.usage or response.token_ids or response.seconds
    return 0.0 if response.cached or not by_model else response.cost
