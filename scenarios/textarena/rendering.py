"""What a player is shown: the messages that were queued for it, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from marl_gem.scenarios.textarena.library import Kind

ACTION, PROMPT, BOARD, ADMIN = Kind.PLAYER_ACTION, Kind.PROMPT, Kind.GAME_BOARD, Kind.GAME_ADMIN

Message: TypeAlias = tuple[int, str, Any]
"""TextArena's record: who says it (-1 is the game), the text, and its kind."""


def of_kind(messages: Iterable[Message], kind: Any) -> list[Message]:
    """The messages of one of TextArena's kinds."""
    return [message for message in messages if message[2] is kind]


def as_lines(messages: Sequence[Message], reader: int, names: Mapping[int, str], alone: bool) -> str:
    """Every message as `[who] text`, less what the reader said itself.

    In games for one, some echo the player's action as if the game had said it. Some games send one text
    twice in a row, as two kinds of message; it is told once.
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
