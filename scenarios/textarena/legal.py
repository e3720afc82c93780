"""The legal actions of games whose state gives them directly.

Each function takes TextArena's game and returns every move of the player to move that the game accepts, each written in
one way. A test plays them over many seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def _free_cells(game: Any) -> list[str]:
    board = game.state.game_state["board"]
    return [f"[{cell}]" for cell, (row, column) in game.cell_mapping.items() if board[row][column] == ""]


def _wild_tic_tac_toe(game: Any) -> list[str]:
    return [f"[{mark} {cell[1:]}" for cell in _free_cells(game) for mark in "XO"]


def _ultimate_tic_tac_toe(game: Any) -> list[str]:
    state = game.state.game_state
    forced = state["next_micro_board"]
    return [
        f"[{macro} {3 * row + column}]"
        for macro in (range(9) if forced is None else [forced])
        if state["macro_board"][macro // 3][macro % 3] == " "
        for row, column in ((i // 3, i % 3) for i in range(9))
        if state["board"][macro][row][column] == " "
    ]


def _connect_four(game: Any) -> list[str]:
    top = game.state.game_state["board"][0]
    return [f"[col {column}]" for column, cell in enumerate(top) if cell == "."]


def _othello(game: Any) -> list[str]:
    moves = game._valid_moves("B" if game.state.current_player_id == 0 else "W")
    return [f"[{row}, {column}]" for row, column in moves] or ["[skip]"]


def _breakthrough(game: Any) -> list[str]:
    mover, size = game.state.current_player_id, game.board_size
    ahead = 1 if mover == 0 else -1
    return [
        f"[{chr(97 + column)}{row + 1}{chr(97 + to)}{row + ahead + 1}]"
        for row in range(size)
        for column in range(size)
        for to in range(max(column - 1, 0), min(column + 2, size))
        if 0 <= row + ahead < size and game._is_valid_move(mover, row, column, row + ahead, to)
    ]


def _chess(game: Any) -> list[str]:
    return [f"[{move.uci()}]" for move in game.state.game_state["board"].legal_moves]


def _kuhn_poker(game: Any) -> list[str]:
    return [f"[{move}]" for move in game.state.game_state["current_legal_action_tree"]]


def _nim(game: Any) -> list[str]:
    piles = game.state.game_state["piles"]
    return [f"[{pile} {taken}]" for pile, size in enumerate(piles) for taken in range(1, size + 1)]


def _chopsticks(game: Any) -> list[str]:
    mover = game.state.current_player_id
    mine, theirs = game.state.game_state["hands"][mover], game.state.game_state["hands"][1 - mover]
    attacks = [f"[attack {i} {j}]" for i in (0, 1) for j in (0, 1) if mine[i] and theirs[j]]
    total = sum(mine)
    return attacks + [f"[split {left} {total - left}]" for left in range(total + 1) if left != mine[0]]


def _cards_in_hand(game: Any) -> list[str]:
    hand = game.state.game_state["player_hands"][game.state.current_player_id]
    return [f"[{game._val_to_face(card)}]" for card in hand]


def _money_cards(game: Any) -> list[str]:
    return [f"[{card}]" for card in game.state.game_state["player_money"][game.state.current_player_id]]


def _always(*actions: str) -> Callable[[Any], list[str]]:
    return lambda game: list(actions)


def _frozen_lake(game: Any) -> list[str]:
    row, column = game.state.game_state["player_pos"]
    inside = range(game.size)
    return [f"[{name}]" for name, (down, right) in _STEPS.items() if row + down in inside and column + right in inside]


def _fifteen_puzzle(game: Any) -> list[str]:
    """A tile moves into the gap, so the gap moves in the opposite direction."""
    row, column = game._get_empty_position()
    return [
        f"[{name}]" for name, (down, right) in _STEPS.items() if row - down in range(4) and column - right in range(4)
    ]


def _lights_out(game: Any) -> list[str]:
    return [f"[{row} {column}]" for row in range(game.size) for column in range(game.size)]


def _game_2048(game: Any) -> list[str]:
    rows = game.state.game_state["board"]
    columns = list(zip(*rows, strict=True))
    directions = {"Up": columns, "Down": _reversed(columns), "Left": rows, "Right": _reversed(rows)}
    return [f"[{name}]" for name, lines in directions.items() if any(_slides(line) for line in lines)]


def _reversed(lines: Any) -> Iterator[Any]:
    return (line[::-1] for line in lines)


def _slides(line: Any) -> bool:
    """Whether pushing the tiles to the front of the line changes anything."""
    return any(tile and (before in (0, tile)) for before, tile in itertools.pairwise(line))


LEGAL: dict[str, Callable[[Any], list[str]]] = {
    "BreakthroughEnv": _breakthrough,
    "ChessEnv": _chess,
    "ChopsticksEnv": _chopsticks,
    "ConnectFourEnv": _connect_four,
    "FifteenPuzzleEnv": _fifteen_puzzle,
    "FrozenLakeEnv": _frozen_lake,
    "Game2048Env": _game_2048,
    "GameOfPureStrategyEnv": _cards_in_hand,
    "HighSocietyEnv": _money_cards,
    "IteratedMatchingPenniesEnv": _always("[heads]", "[tails]"),
    "IteratedRockPaperScissorsEnv": _always("[rock]", "[paper]", "[scissors]"),
    "KuhnPokerEnv": _kuhn_poker,
    "LightsOutEnv": _lights_out,
    "NimEnv": _nim,
    "OthelloEnv": _othello,
    "PigDiceEnv": _always("[roll]", "[hold]"),
    "ThreePlayerGOPSEnv": _cards_in_hand,
    "ThreePlayerTicTacToeEnv": _free_cells,
    "TicTacToeEnv": _free_cells,
    "UltimateTicTacToeEnv": _ultimate_tic_tac_toe,
    "WildTicTacToeEnv": _wild_tic_tac_toe,
}
