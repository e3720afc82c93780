"""Reads invalid moves and eliminations from the state of TextArena's games.

`mend()` replaces a few methods of TextArena's state classes; outside envs the originals run. The replacements store the
error of an invalid move in `state.illegal`, and correct how some games of TextArena 0.7.4 call them. Without them the
winning move of the fifteen puzzle, of Tak and of checkers raises, four puzzles give text as reward, ranks count players
twice who were eliminated twice, eliminated players keep the turn, and a game without players never returns.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from marl_gem.scenarios.textarena.library import textarena
from marl_gem.scenarios.textarena.randomness import hosting

Method = Callable[..., Any]


def _set_invalid_move(original: Method, state: Any, *arguments: Any, **named: Any) -> Any:
    if len(arguments) == 2 and isinstance(arguments[1], str):
        arguments = arguments[::-1]  # some games swap reason and reward
    state.illegal = str(named["reason"] if "reason" in named else arguments[0])
    result = original(state, *arguments, **named)
    if order := getattr(state, "elimination_order", None):
        order[:] = dict.fromkeys(order)
    return result


def _set_winners(_: Method, state: Any, player_ids: Any = (), reason: str = "", player_id: Any = None) -> None:
    winners = {player_id} if player_id is not None else set(player_ids)
    _end(state, {seat: 1 if seat in winners else -1 for seat in range(state.num_players)}, reason)


def _set_winner(_: Method, state: Any, player_id: Any = None, reason: str = "", player_ids: Any = None) -> None:
    _set_winners(_, state, [player_ids if player_id is None else player_id], reason)


def _set_draw(_: Method, state: Any, reason: str = "", reson: str = "") -> None:
    _end(state, dict.fromkeys(range(state.num_players), 0), reason or reson)


def _step(original: Method, state: Any, rotate_player: bool = True) -> Any:
    out = state.elimination_order
    if not state.done and len(out) >= state.num_players:
        _end(state, dict.fromkeys(range(state.num_players), -1), "Everybody has been eliminated.")
    elif rotate_player and state.current_player_id in out:
        state.made_invalid_move = False  # otherwise an eliminated player keeps the turn
    return original(state, rotate_player)


def _end(state: Any, rewards: dict[int, int], reason: str) -> None:
    for info in state.game_info.values():
        info["reason"] = reason
    state.rewards, state.done = rewards, True


def _mended(original: Method, ours: Method) -> Method:
    @functools.wraps(original)
    def method(state: Any, *arguments: Any, **named: Any) -> Any:
        if hosting():
            return ours(original, state, *arguments, **named)
        return original(state, *arguments, **named)

    return method


def _missing(*_: Any, **__: Any) -> Any:
    raise AttributeError("TextArena's state has no such method")


@functools.cache
def mend() -> None:
    """Replace the methods of TextArena's state classes, once."""
    for kind in vars(textarena.state).values():
        if isinstance(kind, type) and hasattr(kind, "set_invalid_move"):
            kind.set_invalid_move = _mended(kind.set_invalid_move, _set_invalid_move)
    single, two, many = textarena.SinglePlayerState, textarena.TwoPlayerState, textarena.FFAMultiPlayerState
    single.set_winners = _mended(_missing, _set_winners)
    two.set_winners = _mended(two.set_winners, _set_winners)
    two.set_winner = _mended(two.set_winner, _set_winner)
    two.set_draw = _mended(two.set_draw, _set_draw)
    many.step = _mended(many.step, _step)


_searching = threading.Lock()


def starting(game: Any) -> AbstractContextManager[Any]:
    """A context for a game's reset: Sokoban's uses variables of its module, so only one thread may run it."""
    return _searching if type(game).__name__ == "SokobanEnv" else nullcontext()


_ELIMINATED_PLAYERS_ACT = {"PokerEnv"}


def eliminated(game: Any) -> set[int]:
    """The players whom the game has eliminated for good; games store that in different fields.

    None for poker, which gives the turn to players after it has eliminated them: they end with the game.
    """
    state = game.state
    if type(game).__name__ in _ELIMINATED_PLAYERS_ACT:
        return set()
    out = set(getattr(state, "elimination_order", ()))
    fields = state.game_state if isinstance(state.game_state, dict) else {}
    if "alive_players" in fields:
        out |= set(range(state.num_players)) - set(fields["alive_players"])
    pieces = fields.get("snakes") or fields.get("players")
    if isinstance(pieces, dict):
        out |= {seat for seat, piece in pieces.items() if getattr(piece, "alive", True) is False}
    return out


def tags(game: Any, seat: int) -> dict[str, str]:
    """The role that a game has dealt a player, and the role's team; empty for games that deal none."""
    dealt, described = getattr(game, "player_roles", None), getattr(game, "roles", None)
    role = dealt.get(seat) if isinstance(dealt, dict) else None
    if not isinstance(role, str):
        return {}
    kind = described.get(role, described.get(seat)) if isinstance(described, dict) else None
    team = kind.get("team") if isinstance(kind, dict) else getattr(kind, "team", None)
    return {"role": role, **({"team": team} if isinstance(team, str) else {})}
