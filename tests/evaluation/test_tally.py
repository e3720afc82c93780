"""Counts of outcomes, and a policy against an opponent in every seat."""

from __future__ import annotations

import itertools

import pytest

from marl_gem.errors import MarlGemError
from marl_gem.evaluation.estimates import wilson
from marl_gem.evaluation.head_to_head import head_to_head
from marl_gem.evaluation.tally import Tally, overall, tally
from marl_gem.types import Episode, EpisodeError, Response, Turn
from tests.toys import NumberGame, RockPaperScissors, always

SEEDS = itertools.count()


def game(
    returns: dict[str, float], illegal: bool = False, error: EpisodeError | None = None, seed: int | None = None
) -> Episode:
    turns = (Turn("a", "", Response(""), info={"illegal": "no"} if illegal else {}),)
    return Episode("1", "s", next(SEEDS) if seed is None else seed, turns, returns, "terminated", error)


def counts(counted: Tally) -> tuple[int, ...]:
    assert counted.success == counted.win or not counted.is_contest
    return (counted.win, counted.draw, counted.loss, counted.illegal, counted.games)


def test_wins_draws_losses_and_illegal_actions_are_counted() -> None:
    games = [
        game({"a": 1.0, "b": -1.0}),
        game({"a": 0.0, "b": 0.0}),
        game({"a": -1.0, "b": 1.0}, illegal=True),
        game({"a": 2.0, "b": 2.0, "c": 1.0}),
        game({"a": 2.0, "b": 1.0, "c": 3.0}),
    ]
    assert counts(tally(games, "a", contest=True)) == (1, 2, 2, 1, 5)
    assert counts(tally(games, "b", contest=True)) == (1, 2, 2, 0, 5)
    assert counts(tally(games, "c", contest=True)) == (1, 0, 1, 0, 2), "it was in two of them"
    alone = [game({"a": 0.5}), game({"a": 0.0}), game({"a": -0.5})]
    assert counts(tally(alone, "a", contest=True)) == (1, 1, 1, 0, 3)
    assert tally(games, "a", contest=True).score == 0.4


def test_tasks_are_solved_or_not() -> None:
    counted = tally([*(game({"a": 1.0, "b": 1.0}) for _ in range(3)), game({"a": 0.0, "b": 0.0})], "a")
    assert counts(counted) == (0, 0, 0, 0, 4) and not counted.is_contest
    assert (counted.success, counted.score) == (3, 0.75)
    assert counted.score_interval == wilson(3, 4)


def test_returns_are_averaged() -> None:
    counted = tally([game({"a": value, "b": -value}) for value in (1.0, -2.0, 2.0, 1.0)], "a")
    assert counted.mean_return == 0.5
    assert counted.return_interval == pytest.approx((0.5 - 1.96 * 1.5 / 2, 0.5 + 1.96 * 1.5 / 2))
    assert tally([game({"a": 3.0}) for _ in range(5)], "a").return_interval is None, "how much they vary is unknown"


def test_games_of_the_same_seed_count_once_in_intervals() -> None:
    games = [game({"a": 1.0, "b": -1.0}, seed=seed) for seed in (1, 1, 1, 1, 2)]
    counted = tally(games, "a")
    assert (counted.games, counted.distinct, counted.score) == (5, 2, 1.0)
    assert counted.score_interval == wilson(2, 2)
    mixed = tally([*games, *(game({"a": -1.0, "b": 1.0}, seed=3) for _ in range(5))], "a")
    once = tally([game({"a": 1.0, "b": -1.0}, seed=4), game({"a": -1.0, "b": 1.0}, seed=5)], "a")
    assert mixed.distinct == 3 and mixed.score_interval == (0.0, 1.0)
    assert once.return_interval == pytest.approx((-1.96 / 2**0.5, 1.96 / 2**0.5))


def test_a_failed_game_has_no_winner() -> None:
    with pytest.raises(MarlGemError, match="episode 1 failed in llm: gone"):
        tally([game({"a": 1.0}, error=EpisodeError("llm", "LLMError", "gone"))], "a")


def test_intervals() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)
    assert Tally(win=50, loss=50, games=100).score_interval == pytest.approx((0.402, 0.598), abs=1e-3)
    assert Tally(draw=9, games=9).score_interval == pytest.approx((0.3504, 0.6496), abs=1e-4)


def test_tallies_add_up() -> None:
    x = Tally(win=1, draw=2, loss=3, illegal=4, games=6, success=1, return_sum=-2.0, return_square_sum=4.0)
    y = Tally(win=1, draw=1, loss=1, illegal=1, games=3, success=1, return_sum=0.5, return_square_sum=2.0)
    total = Tally(win=2, draw=3, loss=4, illegal=5, games=9, success=2, return_sum=-1.5, return_square_sum=6.0)
    assert overall({"x": x, "y": y}) == total


def test_head_to_head() -> None:
    best, worst = always("3", "best"), always("0", "worst")
    tallies, episodes = head_to_head(NumberGame, best, worst, games=5, seed=1, contest=True)
    assert {seat: counts(counted) for seat, counted in tallies.items()} == {"a": (5, 0, 0, 0, 5), "b": (5, 0, 0, 0, 5)}
    assert {counted.mean_return for counted in tallies.values()} == {6.0}
    assert [episode.models["a"] for episode in episodes] == ["best"] * 5 + ["worst"] * 5
    assert len({episode.seed for episode in episodes}) == 10
    other_tallies, others = head_to_head(NumberGame, worst, best, games=5, seed=1, contest=True)
    assert [episode.seed for episode in others] == [episode.seed for episode in episodes]
    assert counts(other_tallies["a"]) == (0, 0, 5, 0, 5)


def test_head_to_head_goes_by_what_the_scenario_declares() -> None:
    tallies, _ = head_to_head(RockPaperScissors, always("rock"), always("rock"), games=2, seed=0)
    assert counts(tallies["a"]) == (0, 2, 0, 0, 2), "a draw, though all returns are 0"
    tasks, _ = head_to_head(NumberGame, always("3"), always("1"), games=2, seed=0)
    assert (tasks["a"].success, tasks["a"].is_contest) == (2, False)
