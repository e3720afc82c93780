"""Leduc poker: the game against its rules, and the analysis against what is known of it."""

from __future__ import annotations

from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.analysis import Decision, uniform
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.games import leduc_analysis
from marl_gem.scenarios.games.leduc_analysis import GAME, information_set
from marl_gem.scenarios.games.leduc_poker import (
    CARDS,
    PLAYERS,
    LeducPoker,
    mover,
    moves,
    rounds,
    situation,
    stakes,
    winnings,
)
from marl_gem.scenarios.games.two_player_cards import best_response_value, exploitability
from marl_gem.specs import load_policy

LEDUC = "game:LeducPoker-v0"
CALLED = ("raise", "raise", "call")


def play(deal: tuple[str, str, str], *history: str) -> LeducPoker:
    env = LeducPoker()
    env.reset(seed=0)
    env.deal = deal
    for move in history:
        env.step({env.acting[0]: f"[{move}]"})
    return env


class TestTheRules:
    @pytest.mark.parametrize(
        ("history", "legal"),
        [
            ((), ("check", "raise")),
            (("check",), ("check", "raise")),
            (("raise",), ("fold", "call", "raise")),
            (("raise", "raise"), ("fold", "call")),
            (("check", "raise", "raise"), ("fold", "call")),
            (("check", "check"), ("check", "raise")),
            (CALLED, ("check", "raise")),
            ((*CALLED, "check", "raise", "raise"), ("fold", "call")),
            (("raise", "fold"), ()),
            (("check", "check", "raise", "fold"), ()),
            ((*CALLED, "check", "check"), ()),
            ((*CALLED, *CALLED), ()),
        ],
        ids=str,
    )
    def test_moves(self, history: tuple[str, ...], legal: tuple[str, ...]) -> None:
        assert moves(history) == legal

    def test_the_first_player_begins_both_rounds(self) -> None:
        assert [mover(history) for history in ((), ("raise",), CALLED, (*CALLED, "check"))] == [0, 1, 0, 1]
        assert rounds((*CALLED, "check")) == (CALLED, ("check",))

    def test_stakes(self) -> None:
        assert stakes(()) == (1, 1)
        assert stakes(("check", "raise")) == (1, 3)
        assert stakes(CALLED) == (5, 5)
        assert stakes((*CALLED, "raise", "raise")) == (9, 13)
        assert stakes((*CALLED, *CALLED)) == (13, 13)

    @pytest.mark.parametrize(
        ("deal", "history", "won"),
        [
            (("Ks", "Js", "Qs"), ("check",) * 4, 1),
            (("Js", "Ks", "Qs"), ("check",) * 4, -1),
            (("Js", "Ks", "Jh"), (*CALLED, *CALLED), 13),  # a pair
            (("Qs", "Qh", "Ks"), (*CALLED, *CALLED), 0),
            (("Js", "Ks", "Qs"), ("raise", "fold"), 1),
            (("Ks", "Js", "Qs"), ("raise", "raise", "fold"), -3),
            (("Ks", "Js", "Qs"), ("check", "check", "check", "raise", "fold"), -1),
            (("Ks", "Js", "Qs"), (*CALLED, "raise", "raise", "fold"), -9),
        ],
        ids=str,
    )
    def test_who_wins_what(self, deal: tuple[str, str, str], history: tuple[str, ...], won: int) -> None:
        env = play(deal, *history)
        assert env.done and env.returns == {"player_0": won, "player_1": -won}
        assert winnings(deal, history) == won

    def test_the_board_is_seen_in_the_second_round(self) -> None:
        deal = ("Ks", "Js", "Qs")
        assert "Qs" not in "".join(play(deal, "check").observe(agent) for agent in PLAYERS)
        assert "Board: Qs" in play(deal, "check", "check").observe("player_0")
        assert "Ks" not in play(deal, "check", "check", "check").observe("player_1")

    def test_an_illegal_move_forfeits_what_was_paid(self) -> None:
        for history, mover_index, paid in (((), 0, 1), (("check", "raise"), 0, 1), ((*CALLED, "raise"), 1, 5)):
            env = play(("Ks", "Js", "Qs"), *history)
            _, rewards, terminations, _, infos = env.step({PLAYERS[mover_index]: "[bet]"})
            assert rewards == {PLAYERS[mover_index]: -paid, PLAYERS[1 - mover_index]: paid}
            assert all(terminations.values()) and "holds none of" in infos[PLAYERS[mover_index]]["illegal"]


class TestTheAnalysis:
    def test_uniform_play(self) -> None:
        table = leduc_analysis.uniform()
        assert len(table) == 936
        assert exploitability(GAME, table) == pytest.approx(2.3736, abs=5e-5)

    @pytest.mark.slow
    def test_through_the_env(self) -> None:
        found = registry.analyse(marl_gem.make(LEDUC), uniform)
        assert found == pytest.approx({"exploitability": 2.373611, "value/player_0": -0.078125, "illegal": 0}, abs=1e-6)

    @pytest.mark.slow
    def test_the_value_of_the_game(self) -> None:
        """Best responses to a good strategy enclose it."""
        table = solved(10)
        most, least = best_response_value(GAME, 0, table), -best_response_value(GAME, 1, table)
        assert least <= -0.0856 + 5e-5 and most >= -0.0856 - 5e-5
        assert most - least < 2

    def test_what_a_player_knows(self) -> None:
        assert information_set(("Ks", "Js", "Qs"), ("check",)) == ("Js", "", ("check",))
        assert information_set(("Ks", "Js", "Qs"), CALLED) == ("Ks", "Qs", CALLED)


def solved(iterations: int) -> dict[Any, list[float]]:
    """The average strategy of CFR+ (Tammelin, arXiv 1407.5042), both seats at once, later iterations counting more."""
    regrets: dict[Any, list[float]] = {}
    sums: dict[Any, list[float]] = {}
    keys = {(deal, history): information_set(deal, history) for deal in GAME.deals for history in decisions()}

    def current(at: Any, count: int) -> list[float]:
        total = sum(regrets.setdefault(at, [0.0] * count))
        return [regret / total for regret in regrets[at]] if total else [1 / count] * count

    def walk(deal: Any, history: tuple[str, ...], reach: tuple[float, float], weight: int) -> float:
        legal = moves(history)
        if not legal:
            return winnings(deal, history)
        seat, at = mover(history), keys[deal, history]
        chances = strategies.setdefault(at, current(at, len(legal)))
        values = []
        for move, chance in zip(legal, chances, strict=True):
            after = (reach[0] * chance, reach[1]) if seat == 0 else (reach[0], reach[1] * chance)
            values.append(walk(deal, (*history, move), after, weight))
        mean = sum(chance * v for chance, v in zip(chances, values, strict=True))
        sign = 1 if seat == 0 else -1
        gained = gains.setdefault(at, [0.0] * len(legal))
        total = sums.setdefault(at, [0.0] * len(legal))
        for index, v in enumerate(values):
            gained[index] += sign * reach[1 - seat] * (v - mean)
            total[index] += weight * reach[seat] * chances[index]
        return mean

    for iteration in range(1, iterations + 1):
        strategies: dict[Any, list[float]] = {}
        gains: dict[Any, list[float]] = {}
        for deal in GAME.deals:
            walk(deal, (), (1.0, 1.0), iteration)
        for at, gained in gains.items():
            regrets[at] = [max(regret + gain, 0.0) for regret, gain in zip(regrets[at], gained, strict=True)]
    return {at: [s / sum(total) if sum(total) else 1 / len(total) for s in total] for at, total in sums.items()}


def decisions(history: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """All histories after which somebody moves."""
    return [history, *(h for m in moves(history) for h in decisions((*history, m)))] if moves(history) else []


class TestTheRulePlayer:
    def test_it_beats_random_play_in_both_seats(self) -> None:
        rule = load_policy("scripted:rule", LEDUC, agents=("player_0",))
        for seat in PLAYERS:
            other = PLAYERS[1 - PLAYERS.index(seat)]
            jobs = [Job(seed, {seat: rule, other: RandomPolicy()}) for seed in range(200)]
            played = collect(lambda: marl_gem.make(LEDUC), jobs)
            assert not any("illegal" in turn.info for episode in played for turn in episode.turns)
            assert sum(episode.returns[seat] for episode in played) > 50

    def test_every_decision_of_a_uniform_player_lists_its_moves(self) -> None:
        env = play(("Ks", "Js", "Qs"), "raise")
        decision = Decision("player_1", env.role("player_1"), (), tuple(env.legal_actions("player_1")))
        assert uniform(decision) == pytest.approx(dict.fromkeys(("[fold]", "[call]", "[raise]"), 1 / 3))
        assert situation("Js", "Qs", ("raise",)) == env.observe("player_1")
        assert len(CARDS) == 6
