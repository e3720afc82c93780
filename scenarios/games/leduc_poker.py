"""Leduc poker: six cards, two rounds of bets, 936 information sets (Southey et al., arXiv 1207.1411).

The deck holds two each of J, Q and K. Both players ante one chip and get a card. After a round of bets a card is laid
on the board, and there is a second round. A raise adds 2 chips in the first round and 4 in the second, at most two
raises a round; player_0 begins both. At the end a pair with the board wins, then the higher card; equal cards split.
The rules are plain functions on the history of moves, so that play can also be analysed without an env.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.types import Metadata, Role

PLAYERS = ("player_0", "player_1")
RANKS = "JQK"
CARDS = tuple(rank + suit for rank in RANKS for suit in "sh")
RAISES = (2, 4)
"""What a raise adds in each round, in chips."""

MOST_RAISES = 2
"""In a round."""

Deal = tuple[str, str, str]
"""The first player's card, the second player's, and the one for the board."""

History = tuple[str, ...]
"""All moves of both rounds."""

_MOVE_IN_TEXT = re.compile(r"\[\s*(check|call|raise|fold)\s*\]", re.IGNORECASE)


def rounds(history: History) -> tuple[History, ...]:
    """The moves of each round that has begun: one or two."""
    for length in range(1, len(history) + 1):
        if _is_over(history[:length]):
            return (history[:length],) if history[length - 1] == "fold" else (history[:length], history[length:])
    return (history,)


def _is_over(bets: History) -> bool:
    """Whether a round of bets has ended."""
    return bets[-1:] in (("call",), ("fold",)) or bets == ("check", "check")


def moves(history: History) -> tuple[str, ...]:
    """The legal moves after this history; none if the hand is over."""
    bets = rounds(history)[-1]
    if _is_over(bets):
        return ()
    first = ("fold", "call") if bets[-1:] == ("raise",) else ("check",)
    return (*first, "raise") if bets.count("raise") < MOST_RAISES else first


def mover(history: History) -> int:
    """The seat that moves next, 0 or 1."""
    return len(rounds(history)[-1]) % 2


def stakes(history: History) -> tuple[int, int]:
    """What each player has put into the pot, in chips."""
    paid = [1, 1]
    for bets, size in zip(rounds(history), RAISES, strict=False):
        for index, move in enumerate(bets):
            seat = index % 2
            if move in ("call", "raise"):
                paid[seat] = paid[1 - seat] + (size if move == "raise" else 0)
    return paid[0], paid[1]


def winnings(deal: Deal, history: History) -> int:
    """What the first player wins, in chips, at the end of a hand."""
    first, second = stakes(history)
    if history[-1] == "fold":
        loser = (len(rounds(history)[-1]) - 1) % 2
        return second if loser == 1 else -first
    strengths = [3 if card[0] == deal[2][0] else RANKS.index(card[0]) for card in deal[:2]]
    return second * (strengths[0] > strengths[1]) - first * (strengths[0] < strengths[1])


def situation(card: str, board: str, history: History) -> str:
    """The text of an information set: what the player to move knows.

    Args:
        card: the player's.
        board: the card on the board; it is not shown in the first round.
        history: all moves.
    """
    played = rounds(history)
    first, second = (", ".join(bets) or "nothing" for bets in (*played, ())[:2])
    legal = " ".join(f"[{move}]" for move in moves(history))
    shown = board if len(played) == 2 else "none"
    return f"Your card: {card}\nBoard: {shown}\nFirst round: {first}\nSecond round: {second}\nYour moves: {legal}"


class LeducPoker(MultiAgentEnv):
    """One hand. A move is written `[check]`, `[call]`, `[raise]` or `[fold]`; the first one in the text counts.

    Rewards are chips, from -13 to 13, and sum to zero. A text without a legal move loses the hand: the mover pays what
    it has put into the pot, and its info has `illegal`.
    """

    possible_agents = PLAYERS
    selector = DirectedSelector()
    metadata = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-13.0, 13.0))
    possible_actions = ("[check]", "[call]", "[raise]", "[fold]")

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        first, second, board = self.rng.sample(CARDS, 3)
        self.deal: Deal = (first, second, board)
        self.history: History = ()

    def role(self, agent: str) -> Role:
        order = "first" if agent == PLAYERS[0] else "second"
        return Role(
            f"You play one hand of Leduc poker and move {order} in both rounds. The deck holds two each of J, Q and K, "
            "J lowest, in the suits s and h, which do not count. Each player has anted one chip and holds one card. "
            "After the first round of bets a card is laid on the board. [check] passes; [raise] matches a bet and adds "
            "2 chips in the first round, 4 in the second, at most two raises a round; [call] matches a bet; [fold] "
            "gives up the pot. In the end a card that pairs with the board wins, then the higher card; equal cards "
            "split the pot. Answer with one of your moves in brackets."
        )

    def observe(self, agent: str) -> str:
        card = self.deal[PLAYERS.index(agent)]
        if not self.terminations[agent]:
            return situation(card, self.deal[2], self.history)
        board = f" Board: {self.deal[2]}." if len(rounds(self.history)) == 2 else ""
        played = ", ".join(self.history) or "none"
        return f"Your card: {card}.{board} Moves: {played}. You win {self.returns[agent]:+g} chips."

    def render(self) -> str:
        first, second, board = self.deal
        played = rounds(self.history)
        lines = [f"{PLAYERS[0]} holds {first}, {PLAYERS[1]} holds {second}, the board has {board}"]
        lines += [f"round {number}: {', '.join(bets) or 'no moves yet'}" for number, bets in enumerate(played, 1)]
        end = f"{PLAYERS[0]} wins {self.returns[PLAYERS[0]]:+g} chips"
        return "\n".join([*lines, f"{self.acting[0]} is next" if self.acting else end])

    def legal_actions(self, agent: str) -> list[str]:
        return [f"[{move}]" for move in moves(self.history)]

    def _process_action(self, agent: str, action: str) -> None:
        seat = PLAYERS.index(agent)
        match = _MOVE_IN_TEXT.search(action)
        move = match[1].lower() if match else None
        if move not in moves(self.history):
            self.infos[agent]["illegal"] = f"{action[:80]!r} holds none of {self.legal_actions(agent)}"
            paid = stakes(self.history)[seat]
            self._end(paid if seat == 1 else -paid)
            return
        self.history += (move,)
        if moves(self.history):
            self.selector.direct(PLAYERS[mover(self.history)])
        else:
            self._end(winnings(self.deal, self.history))

    def _end(self, won: int) -> None:
        """`won` is what the first player wins."""
        self.rewards = dict(zip(PLAYERS, (float(won), float(-won)), strict=True))
        self.terminations = dict.fromkeys(PLAYERS, True)
