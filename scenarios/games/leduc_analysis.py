"""Exact analysis of Leduc poker, and a player by rule. `analyse` is the registered analysis of `game:LeducPoker-v0`.

The game tree is small: 120 deals with 36 points of decision each. In an equilibrium the first player wins -0.0856 chips
a hand (by CFR+ of OpenSpiel 2.0.2); uniform play has an exploitability of 2.3736.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping
from typing import Any

from marl_gem import analysis
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.policies import Info
from marl_gem.scenarios.games.leduc_poker import (
    CARDS,
    RANKS,
    Deal,
    History,
    LeducPoker,
    mover,
    moves,
    rounds,
    winnings,
)
from marl_gem.scenarios.games.two_player_cards import CardGame, Table, exploitability, read_table, value
from marl_gem.types import Observation, Response, Role
from marl_gem.views import as_text

DEALS: tuple[Deal, ...] = tuple(itertools.permutations(CARDS, 3))


def information_set(deal: Deal, history: History) -> Hashable:
    """What the mover knows: its card, the one on the board, and all moves."""
    board = deal[2] if len(rounds(history)) == 2 else ""
    return deal[mover(history)], board, history


def _situation(env: MultiAgentEnv) -> tuple[Deal, History]:
    assert isinstance(env, LeducPoker)
    return env.deal, env.history


GAME = CardGame(DEALS, moves, mover, winnings, information_set, _situation)


def uniform() -> Table:
    """Every legal move has the same probability."""
    table: dict[Hashable, tuple[float, ...]] = {}
    pending: list[History] = [()]
    while pending:
        history = pending.pop()
        if legal := moves(history):
            table |= {information_set(deal, history): (1 / len(legal),) * len(legal) for deal in DEALS}
            pending += [(*history, move) for move in legal]
    return table


def analyse(env: MultiAgentEnv, strategy: analysis.Strategy) -> dict[str, float]:
    """The registered analysis of two policies, one in each seat.

    Each information set's probabilities are scaled to its legal moves; if all are 0, the moves count as equally likely.

    Args:
        env: a fresh env, which is reset.
        strategy: the policies' probabilities.

    Returns:
        `exploitability` in chips a hand: the mean over both seats of what a best response wins; `value/player_0`, what
        the first player wins a hand on average against the second, in chips; `illegal`, the greatest probability of an
        illegal answer at any of the 936 information sets.
    """
    table, illegal = read_table(GAME, env, strategy)
    found = {"exploitability": exploitability(GAME, table), "value/player_0": value(GAME, table, table)}
    return {**found, "illegal": illegal}


# The scripted policy

_CARD = re.compile(r"^Your card: (\S+)$", re.MULTILINE)
_BOARD = re.compile(r"^Board: (\S+)$", re.MULTILINE)


def policy(scenario: str, options: Mapping[str, Any]) -> RulePolicy:
    """The policy behind `scripted:rule`; see `marl_gem.registry.register_policy`."""
    return RulePolicy()


class RulePolicy:
    """Raises with a pair and, before the board is known, with a king; calls with a queen and with a king; checks or
    folds the rest."""

    name = "scripted:rule"

    def agent(self, agent_id: str, role: Role, seed: int) -> RulePolicy:
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        text = as_text(observation)
        card, board = _CARD.search(text), _BOARD.search(text)
        if not card or not board:
            raise ConfigError(f"scripted:rule reads its card and the board, but they are not in {text[:80]!r}")
        rank, pair = RANKS.index(card[1][0]), card[1][0] == board[1][0]
        strong = pair or (rank == 2 and board[1] == "none")
        wishes = ["raise", "call", "check"] if strong else ["check", "call"] if rank else ["check", "fold"]
        return Response(next(f"[{move}]" for move in wishes if f"[{move}]" in text.rpartition("Your moves:")[2]))
