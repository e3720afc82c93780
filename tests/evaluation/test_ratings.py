"""Ratings of a tournament's players."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from marl_gem.evaluation import read_report, tournament
from marl_gem.evaluation.ratings import Comparison, rate
from marl_gem.evaluation.report import Rating
from marl_gem.runs.files import read_json_file, write_json
from tests.evaluation.helpers import Highest
from tests.toys import always


def games(strengths: dict[str, float], tasks: int, seed: int = 0) -> dict[int, list[Comparison]]:
    """A game of each pair a task, decided by Bradley and Terry's model; strengths on Elo's scale."""
    rng, names = random.Random(seed), list(strengths)
    return {
        task: [
            (a, b, float(rng.random() < 1 / (1 + 10 ** ((strengths[b] - strengths[a]) / 400))))
            for index, a in enumerate(names)
            for b in names[index + 1 :]
        ]
        for task in range(tasks)
    }


def interval(rating: Rating) -> tuple[float, float]:
    assert rating.low is not None and rating.high is not None
    return rating.low, rating.high


def test_strengths_are_found_again() -> None:
    strengths = {"a": 1300.0, "b": 1050.0, "c": 900.0, "d": 750.0}
    covered = 0
    for seed in range(10):
        ratings = rate(list(strengths), games(strengths, 300, seed), seed)
        for name, strength in strengths.items():
            assert abs(ratings[name].value - strength) < 90
            low, high = interval(ratings[name])
            covered += low <= strength <= high
    assert covered >= 34, "of 40 intervals of 95%"


def test_two_players_as_the_formula_says() -> None:
    ratings = rate(["a", "b"], {task: [("a", "b", float(task < 3))] for task in range(4)}, 0)
    assert ratings["a"].value + ratings["b"].value == pytest.approx(2000)
    p = 10 ** ((ratings["a"].value - 1000) / 400)
    assert 4 * p / (p + 1 / p) + p / (p + 1) == pytest.approx(3 + 0.5), "a draw against an average player comes on top"


def test_neither_the_order_of_games_nor_that_of_players_counts() -> None:
    played = games({"a": 1100.0, "b": 1000.0, "c": 900.0}, 20)
    backwards = {task: [(b, a, 1 - points) for a, b, points in reversed(met)] for task, met in reversed(played.items())}
    assert rate(["a", "b", "c"], played, 0) == rate(["c", "b", "a"], backwards, 0)


def test_equal_players_rate_equal() -> None:
    tasks = {task: [("a", "b", 0.5), ("a", "c", 1.0), ("b", "c", 1.0)] for task in range(5)}
    ratings = rate(["a", "b", "c"], tasks, 0)
    assert ratings["a"] == ratings["b"]
    cycle = rate(["a", "b", "c"], {task: [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 1.0)] for task in range(9)}, 0)
    assert [cycle[name].value for name in "abc"] == pytest.approx([1000.0] * 3)


def test_four_equal_games_are_not_certain() -> None:
    won = rate(["a", "b"], {task: [("a", "b", 1.0)] * 2 for task in range(4)}, 0)["a"]
    low, high = interval(won)
    assert high - low > 200
    more = rate(["a", "b"], {task: [("a", "b", 1.0)] * 2 for task in range(400)}, 0)["a"]
    low, high = interval(more)
    assert 1000 < low < high < 4000 and more.value > won.value


def test_who_met_nobody_is_average() -> None:
    ratings = rate(["a", "b", "c"], {0: [("a", "b", 1.0)], 1: [("a", "b", 0.0)]}, 0)
    assert (ratings["c"].value, ratings["c"].low) == (1000, None)
    assert rate(["a", "b"], {}, 0)["a"].value == 1000


def test_the_report_explains_the_scale_and_old_ratings_are_not_mixed_with_it(tmp_path: Path) -> None:
    tournament(Highest, {"low": always("1"), "high": always("9")}, n=4, out=tmp_path / "cup")
    assert "on Elo's scale" in (tmp_path / "cup" / "report.md").read_text("utf-8")
    data = read_json_file(tmp_path / "cup" / "report.json")
    data["tournament"]["players"][0]["rating"] = {"mu": 27.0, "sigma": 3.0}
    write_json(tmp_path / "old.json", data)
    old = read_report(tmp_path / "old.json").tournament
    assert old is not None and all(player.rating is None for player in old.players)
    assert "--resume" in old.left_out
