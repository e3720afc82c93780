"""A player's queued messages as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from marl_gem.scenarios.textarena.library import Kind

ACTION, PROMPT, BOARD, ADMIN = Kind.PLAYER_ACTION, Kind.PROMPT, Kind.GAME_BOARD, Kind.GAME_ADMIN

Message: TypeAlias = tuple[int, str, Any]
"""TextArena's record: the sender (-1 is the game), the text, and its kind."""


def of_kind(messages: Iterable[Message], kind: Any) -> list[Message]:
    """The messages of one of TextArena's kinds."""
    return [message for message in messages if message[2] is kind]


def as_lines(messages: Sequence[Message], reader: int, names: Mapping[int, str], alone: bool) -> str:
    """Every message as `[sender] text`, without the reader's own.

    Args:
        messages: in their order.
        reader: the player who reads them.
        names: the senders' names, from TextArena's `role_mapping`.
        alone: whether it is a game for one player; some of these send the player's action back as a message.

    Some games send one text twice in a row as two kinds of message; it is written once.
    """
    lines: list[str] = []
    line, previous = "", None
    for sender, text, kind in messages:
        if kind is ACTION and (sender == reader or alone):
            continue
        previous_line, line = line, f"[{names.get(sender) or f'Player {sender}'}] {text}"
        if line != previous_line or kind is previous:
            lines.append(line)
        previous = kind
    return "\n".join(lines)
