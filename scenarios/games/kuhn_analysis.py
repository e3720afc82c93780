"""Exact analysis of Kuhn poker: value, exploitability, averages of strategies.

A strategy maps each of the twelve information sets, `(card, history)`, to the probability of the second of
its two moves (bet or call). The whole game tree is small: 6 deals with 5 endings each. `analyse` is the registered
analysis of `game:KuhnPoker-v0`.
Source of the equilibria: Kuhn, "A simplified two-person poker", 1950.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from marl_gem import analysis
from marl_gem.env import MultiAgentEnv
from marl_gem.scenarios.games import two_player_cards
from marl_gem.scenarios.games.kuhn_poker import CARDS, History, KuhnPoker, moves, winnings
from marl_gem.scenarios.games.two_player_cards import CardGame

InformationSet: TypeAlias = tuple[str, History]
Strategy: TypeAlias = Mapping[InformationSet, float]

HISTORIES: tuple[History, ...] = ((), ("check",), ("bet",), ("check", "bet"))
INFORMATION_SETS: tuple[InformationSet, ...] = tuple(itertools.product(CARDS, HISTORIES))
DEALS = tuple("".join(pair) for pair in itertools.permutations(CARDS, 2))
GAME_VALUE = -1 / 18
"""What the first player wins a hand, in chips, when both play an equilibrium."""


def analyse(env: MultiAgentEnv, strategy: analysis.Strategy) -> dict[str, float]:
    """The registered analysis of two policies, one in each seat.

    Each information set's probabilities are scaled to its two legal moves; if both are 0, each counts as 0.5.

    Args:
        env: a fresh env, which is reset.
        strategy: the policies' probabilities.

    Returns:
        `exploitability` in chips a hand, see `exploitability`; `value/player_0`, what the first player wins a hand
        on average against the second, in chips; `illegal`, the greatest probability of an illegal answer at any of
        the twelve information sets.
    """
    table, illegal = read_strategy(env, strategy)
    return {"exploitability": exploitability(table), "value/player_0": value(table, table), "illegal": illegal}


def read_strategy(env: MultiAgentEnv, strategy: analysis.Strategy) -> tuple[dict[InformationSet, float], float]:
    """A strategy as a table of both seats, and the greatest probability that it gives to illegal answers."""
    table, illegal = two_player_cards.read_table(GAME, env, strategy)
    return {at: table[at][1] for at in INFORMATION_SETS}, illegal


def _information_set(deal: str, history: History) -> InformationSet:
    return deal[len(history) % 2], history


def _situation(env: MultiAgentEnv) -> tuple[str, History]:
    assert isinstance(env, KuhnPoker)
    return env.cards, env.history


GAME = CardGame(DEALS, moves, lambda history: len(history) % 2, winnings, _information_set, _situation)


def uniform() -> dict[InformationSet, float]:
    """Both moves have probability 0.5 everywhere."""
    return dict.fromkeys(INFORMATION_SETS, 0.5)


def equilibrium(alpha: float) -> dict[InformationSet, float]:
    """The Nash equilibrium in which the first player bets a jack with probability `alpha`, 0 to 1/3."""
    if not 0 <= alpha <= 1 / 3:
        raise ValueError(f"Kuhn poker's equilibria have alpha from 0 to 1/3, not {alpha}")
    opened, checked, bet, raised = HISTORIES
    return {
        ("J", opened): alpha,
        ("Q", opened): 0.0,
        ("K", opened): 3 * alpha,
        ("J", raised): 0.0,
        ("Q", raised): alpha + 1 / 3,
        ("K", raised): 1.0,
        ("J", checked): 1 / 3,
        ("Q", checked): 0.0,
        ("K", checked): 1.0,
        ("J", bet): 0.0,
        ("Q", bet): 1 / 3,
        ("K", bet): 1.0,
    }


def value(first: Strategy, second: Strategy) -> float:
    """What the first player wins a hand on average, in chips."""
    return two_player_cards.value(GAME, _table(first), _table(second))


def best_response_value(seat: int, strategy: Strategy) -> float:
    """The most that the player in `seat` (0 or 1) can win a hand on average against `strategy`, in chips."""
    return two_player_cards.best_response_value(GAME, seat, _table(strategy))


def exploitability(strategy: Strategy) -> float:
    """The mean over both seats of what a best response wins against a strategy, in chips per hand.

    This is NashConv / 2: 0 at an equilibrium, 0.458 for uniform play.
    """
    return two_player_cards.exploitability(GAME, _table(strategy))


def average(strategies: Sequence[Strategy]) -> dict[InformationSet, float]:
    """The strategy that equals playing one of `strategies`, drawn uniformly before each hand.

    At an information set, each strategy's weight is the probability of its own earlier moves that lead there.
    """

    def reach_of(strategy: Strategy, at: InformationSet) -> float:
        card, history = at
        reach = 1.0
        for length in range(len(history) % 2, len(history), 2):
            before = history[:length]
            reach *= _probabilities(strategy, (card, before))[moves(before).index(history[length])]
        return reach

    result = {}
    for at in INFORMATION_SETS:
        weights = [reach_of(strategy, at) for strategy in strategies]
        total = sum(weights)
        weighted = sum(w * s[at] for w, s in zip(weights, strategies, strict=True))
        result[at] = weighted / total if total else 0.5
    return result


def tabulate(probability: Callable[[InformationSet], float]) -> dict[InformationSet, float]:
    """A strategy from a function that gives the probability of betting or calling."""
    return {at: probability(at) for at in INFORMATION_SETS}


def _table(strategy: Strategy) -> dict[Hashable, tuple[float, float]]:
    """Both moves' probabilities; a strategy may leave out what the seat that it is asked for never decides."""
    return {at: _probabilities(strategy, at) for at in strategy}


def _probabilities(strategy: Strategy, at: InformationSet) -> tuple[float, float]:
    return 1 - strategy[at], strategy[at]
