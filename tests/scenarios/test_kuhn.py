"""Kuhn poker: the game against its rules, and the analysis against what is known and against the game."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem.scenarios.games.kuhn_analysis import (
    DEALS,
    GAME_VALUE,
    INFORMATION_SETS,
    average,
    best_response_value,
    equilibrium,
    exploitability,
    tabulate,
    uniform,
    value,
)
from marl_gem.scenarios.games.kuhn_poker import PLAYERS, KuhnPoker, moves, situation

probabilities = st.floats(0, 1, allow_subnormal=False)
strategies = st.lists(probabilities, min_size=12, max_size=12).map(
    lambda row: dict(zip(INFORMATION_SETS, row, strict=True))
)
PURE = [dict(zip(INFORMATION_SETS, bits, strict=True)) for bits in itertools.product((0.0, 1.0), repeat=12)]


# What is known


def test_uniform_play() -> None:
    assert exploitability(uniform()) == pytest.approx(11 / 24)
    assert value(uniform(), uniform()) == pytest.approx(1 / 8)


@pytest.mark.parametrize("alpha", [0, 0.1, 0.25, 1 / 3])
def test_equilibria(alpha: float) -> None:
    best = equilibrium(alpha)
    assert exploitability(best) == pytest.approx(0, abs=1e-12)
    assert value(best, best) == pytest.approx(-1 / 18) == pytest.approx(GAME_VALUE)


@pytest.mark.parametrize("alpha", [-0.01, 0.34, float("nan")])
def test_there_are_no_other_equilibria_of_this_form(alpha: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1/3"):
        equilibrium(alpha)


def test_who_leaves_the_equilibrium_can_be_exploited() -> None:
    for at in INFORMATION_SETS:
        moved = equilibrium(0.2) | {at: 0.9 if equilibrium(0.2)[at] < 0.5 else 0.1}
        assert exploitability(moved) > 1e-3, at


def test_always_bet_and_call() -> None:
    """By hand: the best reply folds a jack, and calls or bets a queen or king.

    As first player one wins, over the six deals, J: -1 -1, Q: +2 -2, K: +2 +2; as second the same.
    """
    brave = tabulate(lambda at: 1.0)
    assert value(brave, brave) == 0
    assert best_response_value(0, brave) == pytest.approx(2 / 6)
    assert best_response_value(1, brave) == pytest.approx(2 / 6)
    assert exploitability(brave) == pytest.approx(1 / 3)


def test_always_check_and_fold() -> None:
    """By hand: whoever bets wins the ante, in either seat."""
    timid = tabulate(lambda at: 0.0)
    assert value(timid, timid) == 0
    assert [best_response_value(seat, timid) for seat in (0, 1)] == [1, 1]


@settings(max_examples=10, deadline=None)
@given(strategies)
def test_a_best_response_is_the_best_of_all_pure_strategies(strategy: dict[Any, Any]) -> None:
    assert best_response_value(0, strategy) == pytest.approx(max(value(pure, strategy) for pure in first_seat()))
    assert best_response_value(1, strategy) == pytest.approx(max(-value(strategy, pure) for pure in second_seat()))


def first_seat() -> list[dict[Any, Any]]:
    """Every pure strategy of the first player; what it would do in the second seat does not matter."""
    return [pure for pure in PURE if not any(move for (_, history), move in pure.items() if len(history) % 2 == 1)]


def second_seat() -> list[dict[Any, Any]]:
    return [pure for pure in PURE if not any(move for (_, history), move in pure.items() if len(history) % 2 == 0)]


# Averages


@settings(deadline=None)
@given(st.lists(strategies, min_size=1, max_size=4), strategies)
@pytest.mark.slow
def test_an_average_plays_like_one_picked_at_random(mixed: list[dict[Any, Any]], opponent: dict[Any, Any]) -> None:
    one = average(mixed)
    assert value(one, opponent) == pytest.approx(sum(value(s, opponent) for s in mixed) / len(mixed))
    assert value(opponent, one) == pytest.approx(sum(value(opponent, s) for s in mixed) / len(mixed))


def test_an_average_is_not_the_mean_of_probabilities() -> None:
    """One checks a king and then calls, the other bets it: whoever faces a bet after a check always calls."""
    slow = equilibrium(0) | {("K", ()): 0.0, ("K", ("check", "bet")): 1.0}
    fast = equilibrium(0) | {("K", ()): 1.0, ("K", ("check", "bet")): 0.0}
    mixed = average([slow, fast])
    assert mixed["K", ()] == 0.5
    assert mixed["K", ("check", "bet")] == 1.0


# The env


def play(cards: str, history: tuple[str, ...], text: str = "[{}]") -> KuhnPoker:
    env = KuhnPoker()
    env.reset(seed=0)
    env.cards = cards
    for move in history:
        env.step({env.acting[0]: text.format(move)})
    return env


def endings(history: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not moves(history):
        yield history
    for move in moves(history):
        yield from endings((*history, move))


PAYS = {
    ("check", "check"): lambda higher: 1 if higher else -1,
    ("bet", "fold"): lambda higher: 1,
    ("bet", "call"): lambda higher: 2 if higher else -2,
    ("check", "bet", "fold"): lambda higher: -1,
    ("check", "bet", "call"): lambda higher: 2 if higher else -2,
}


def test_all_deals_and_endings() -> None:
    assert set(endings()) == PAYS.keys()
    for cards, history in itertools.product(DEALS, PAYS):
        env = play(cards, history)
        won = PAYS[history]("JQK".index(cards[0]) > "JQK".index(cards[1]))
        assert env.done and env.returns == {"player_0": won, "player_1": -won}, (cards, history)
        assert env.rewards == env.returns and all(env.terminations.values())


def test_the_player_to_move_sees_its_card_and_the_moves() -> None:
    for cards in DEALS:
        for history in ((), ("check",), ("bet",), ("check", "bet")):
            env = play(cards, history)
            mover = len(history) % 2
            assert env.acting == (PLAYERS[mover],)
            assert env.observe(env.acting[0]) == situation(cards[mover], history)
            assert env.legal_actions(env.acting[0]) == [f"[{move}]" for move in moves(history)]


def test_deals_are_fair() -> None:
    env, seen = KuhnPoker(), dict.fromkeys(DEALS, 0)
    for seed in range(6000):
        env.reset(seed=seed)
        seen[env.cards] += 1
    assert all(abs(count - 1000) < 5 * (1000 * 5 / 6) ** 0.5 for count in seen.values()), seen


@pytest.mark.parametrize(
    "strategy", [uniform(), equilibrium(0.25), tabulate(lambda at: 0.8)], ids=["uniform", "equilibrium", "bold"]
)
@pytest.mark.slow
def test_play_earns_what_the_analysis_says(strategy: dict[Any, Any]) -> None:
    """Mean of 10,000 hands, with a bound of five standard errors; the seeds are fixed."""
    env: Any = marl_gem.make("game:KuhnPoker-v0")
    dice, total, squares, hands = random.Random(0), 0.0, 0.0, 10_000
    for seed in range(hands):
        env.reset(seed=seed)
        while not env.done:
            (agent,) = env.acting
            card = env.cards[PLAYERS.index(agent)]
            second = dice.random() < strategy[card, env.history]
            env.step({agent: env.legal_actions(agent)[second]})
        total += env.returns["player_0"]
        squares += env.returns["player_0"] ** 2
    mean = total / hands
    assert abs(mean - value(strategy, strategy)) < 5 * (squares / hands - mean**2) ** 0.5 / hands**0.5


@pytest.mark.parametrize("history", [(), ("check",), ("bet",), ("check", "bet")], ids=str)
@pytest.mark.parametrize("text", ["", "check", "[raise]", "[[]]", "I will [ fold or call ]", "[{illegal}]"])
def test_an_illegal_move_forfeits_the_ante(history: tuple[str, ...], text: str) -> None:
    illegal = {"check": "fold", "fold": "bet"}[moves(history)[0]]
    env = play("QJ", history)
    (mover,) = env.acting
    _, rewards, terminations, _, infos = env.step({mover: text.replace("{illegal}", illegal)})
    assert rewards == {agent: -1.0 if agent == mover else 1.0 for agent in PLAYERS}
    assert all(terminations.values())
    assert "holds none of" in infos[mover]["illegal"] and [a for a in PLAYERS if "illegal" in infos[a]] == [mover]


@pytest.mark.parametrize("text", ["[{}]", "[ {} ]", "Hm... [{}]!", "[{}] [fold]", "[what] [{}]"])
def test_how_a_move_may_be_written(text: str) -> None:
    for history in PAYS:
        assert (
            play("KJ", history, text).returns
            == play("KJ", history, text.upper()).returns
            == play("KJ", history).returns
        )
