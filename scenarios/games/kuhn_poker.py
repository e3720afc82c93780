"""Kuhn poker: three cards, one bet, twelve information sets (H. W. Kuhn, 1950).

Both players ante one chip and get one of J, Q, K. The first checks or bets one chip. After a bet the other
folds or calls; after a check the second may check or bet, and the first then folds or calls. The higher
card wins at a showdown. The rules are plain functions on the history of moves, so that play can also be
analysed without an env (see `kuhn_analysis`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.selectors.directed import DirectedSelector
from marl_gem.types import Metadata, Role

PLAYERS = ("player_0", "player_1")
CARDS = "JQK"
History = tuple[str, ...]

_MOVES: dict[History, tuple[str, str]] = {
    (): ("check", "bet"),
    ("check",): ("check", "bet"),
    ("bet",): ("fold", "call"),
    ("check", "bet"): ("fold", "call"),
}
_MOVE_IN_TEXT = re.compile(r"\[\s*(check|bet|fold|call)\s*\]", re.IGNORECASE)


def moves(history: History) -> tuple[str, ...]:
    """The legal moves after this history; none if the hand is over."""
    return _MOVES.get(history, ())


def winnings(cards: str, history: History) -> int:
    """What the first player wins, in chips, at the end of a hand.

    Args:
        cards: both cards, the first player's first, such as "KJ".
        history: all moves.
    """
    if history[-1] == "fold":
        return 1 if history == ("bet", "fold") else -1
    stake = 2 if history[-1] == "call" else 1
    return stake if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -stake


def situation(card: str, history: History) -> str:
    """The text of an information set: what the player to move knows."""
    past = ", ".join(history) or "nothing"
    return f"Your card: {card}. Moves so far: {past}. Your moves: {' '.join(f'[{move}]' for move in moves(history))}"


class KuhnPoker(MultiAgentEnv):
    """One hand. A move is written `[check]`, `[bet]`, `[fold]` or `[call]`; the first one in the text counts.

    Rewards are chips, from -2 to 2, and sum to zero. A text without a legal move loses the hand: the mover pays what it
    has put into the pot, and its info has `illegal`.
    """

    possible_agents = PLAYERS
    selector = DirectedSelector()
    metadata = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-2.0, 2.0))
    possible_actions = ("[check]", "[bet]", "[fold]", "[call]")

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.cards = "".join(self.rng.sample(CARDS, 2))
        self.history: History = ()

    def role(self, agent: str) -> Role:
        order = "first" if agent == PLAYERS[0] else "second"
        return Role(
            f"You play one hand of Kuhn poker and move {order}. The deck holds J, Q and K, J lowest. Each player has "
            "anted one chip and holds one card. [check] passes, [bet] adds one chip, [call] matches a bet, [fold] "
            "gives up the pot; the higher card wins at the end. Answer with one of your moves in brackets."
        )

    def observe(self, agent: str) -> str:
        card = self.cards[PLAYERS.index(agent)]
        if not self.terminations[agent]:
            return situation(card, self.history)
        return f"Your card: {card}. Moves: {', '.join(self.history)}. You win {self.returns[agent]:+g} chips."

    def render(self) -> str:
        hands = ", ".join(f"{player} holds {card}" for player, card in zip(PLAYERS, self.cards, strict=True))
        played = f"{hands}\nmoves: {', '.join(self.history) or 'none yet'}"
        return (
            f"{played}\n{self.acting[0]} is next"
            if self.acting
            else f"{played}\n{PLAYERS[0]} wins {self.returns[PLAYERS[0]]:+g} chips"
        )

    def legal_actions(self, agent: str) -> list[str]:
        return [f"[{move}]" for move in moves(self.history)]

    def _process_action(self, agent: str, action: str) -> None:
        other = PLAYERS[1 - PLAYERS.index(agent)]
        match = _MOVE_IN_TEXT.search(action)
        move = match[1].lower() if match else None
        if move not in moves(self.history):
            self.infos[agent]["illegal"] = f"{action[:80]!r} holds none of {self.legal_actions(agent)}"
            self._end({agent: -1.0, other: 1.0})  # the player to move has put in only the ante
            return
        self.history += (move,)
        if moves(self.history):
            self.selector.direct(other)
        else:
            won = float(winnings(self.cards, self.history))
            self._end({PLAYERS[0]: won, PLAYERS[1]: -won})

    def _end(self, rewards: dict[str, float]) -> None:
        self.rewards = rewards
        self.terminations = dict.fromkeys(PLAYERS, True)
