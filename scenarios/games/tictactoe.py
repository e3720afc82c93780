"""Tic-tac-toe: three in a row, column or diagonal of a board of nine squares wins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.types import Metadata, Role

PLAYERS = ("player_0", "player_1")
MARKS = dict(zip(PLAYERS, "XO", strict=True))
OPPONENT = dict(zip(PLAYERS, reversed(PLAYERS), strict=True))

SQUARES = "123456789"
LINES = ("123", "456", "789", "147", "258", "369", "159", "357")
BIT = {square: 1 << index for index, square in enumerate(SQUARES)}
MOVE = {square: f"[{square}]" for square in SQUARES}
WON = frozenset(
    squares
    for squares in range(1 << len(SQUARES))
    if any(all(squares & BIT[square] for square in line) for line in LINES)
)
"""Every set of squares, as bits, that holds a line."""

_MOVE_IN_TEXT = re.compile(r"\[\s*(\d+)\s*\]")


class TicTacToe(MultiAgentEnv):
    """Player 0 marks X and begins. A move is the number of an empty square in brackets, such as `[5]`.

    The first number in brackets counts. Rewards: 1 to the winner and -1 to the loser, 0 each for a draw. A text without
    a legal move loses, and the mover's info has `illegal`.
    """

    possible_agents = PLAYERS
    selector = SequentialSelector()
    metadata = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-1.0, 1.0))
    possible_actions = tuple(MOVE.values())

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.board = list(SQUARES)
        self.open = MOVE.copy()
        self.marked = dict.fromkeys(PLAYERS, 0)

    def role(self, agent: str) -> Role:
        return Role(
            f"You play tic-tac-toe and mark {MARKS[agent]}; X begins. Whoever first marks three squares in a row, "
            "column or diagonal wins. The board shows the number of each empty square: answer with one of them in "
            "brackets, such as [5]."
        )

    def observe(self, agent: str) -> str:
        a, b, c, d, e, f, g, h, i = self.board
        return f"{a} {b} {c}\n{d} {e} {f}\n{g} {h} {i}"

    def render(self) -> str:
        rows = (" | ".join(self.board[start : start + 3]) for start in (0, 3, 6))
        state = f"{MARKS[self.acting[0]]} is next" if self.acting else self._outcome()
        return "\n".join(["\n--+---+--\n".join(rows), state])

    def legal_actions(self, agent: str) -> list[str]:
        return list(self.open.values())

    def _process_action(self, agent: str, action: str) -> None:
        match = _MOVE_IN_TEXT.search(action)
        square = match[1] if match else ""
        if square not in self.open:
            self.infos[agent]["illegal"] = f"{action[:80]!r} holds none of {self.legal_actions(agent)}"
            self._end(winner=OPPONENT[agent])
            return
        del self.open[square]
        self.board[int(square) - 1] = MARKS[agent]
        self.marked[agent] |= BIT[square]
        if self.marked[agent] in WON:
            self._end(winner=agent)
        elif not self.open:
            self._end(winner=None)

    def _outcome(self) -> str:
        winner = next((mark for player, mark in MARKS.items() if self.returns[player] > 0), "")
        return f"{winner} wins" if winner else "a draw"

    def _end(self, winner: str | None) -> None:
        if winner:
            self.rewards = {winner: 1.0, OPPONENT[winner]: -1.0}
        self.terminations = dict.fromkeys(PLAYERS, True)
