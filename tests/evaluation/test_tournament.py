"""Tournaments: a round robin of players."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import ConfigError
from marl_gem.evaluation import Budget, tournament
from marl_gem.policies import RandomPolicy, ScriptedPolicy
from tests.evaluation.helpers import (
    GUESS,
    Answer,
    Highest,
    ids,
    played,
    report_of,
)
from tests.slow_game import Slow, SlowPolicy
from tests.toys import always


class TestATournament:
    PLAYERS: Mapping[str, Any] = {
        "low": always("1"),
        "high": always("9"),
        "middle": always("5"),
        "twin": always("5", "twin"),
    }

    def test_seats_everybody_everywhere_equally_often_on_the_same_tasks(self) -> None:
        result = tournament(Highest, self.PLAYERS, n=4)
        at = Counter[tuple[str, str]]()
        seeds: dict[str, set[int]] = {}
        for episode in result.episodes:
            match = result.plan.matches[result.plan.slots[episode.id].match]
            at.update((name, seat) for seat, name in match.labels.items())
            seeds.setdefault(match.name, set()).add(episode.seed)
            assert episode.models == {seat: self.PLAYERS[name].name for seat, name in match.labels.items()}
        assert set(at.values()) == {3 * 4} and len(at) == 8
        assert len(seeds) == 12 and len(set(map(frozenset, seeds.values()))) == 1

    def test_ranks_the_players(self) -> None:
        standings = tournament(Highest, self.PLAYERS, n=10).report.tournament
        names = [player.name for player in standings.players]
        assert names[0] == "high" and names[-1] == "low"
        by_name = {player.name: player for player in standings.players}
        tally = {name: (entry.games, entry.won, entry.drawn, entry.lost) for name, entry in by_name.items()}
        assert tally == {"high": (60, 60, 0, 0), "low": (60, 0, 0, 60), "middle": (60, 20, 20, 20),
                         "twin": (60, 20, 20, 20)}  # fmt: skip
        assert {name: entry.score.mean for name, entry in by_name.items()} == {
            "high": 1, "low": 0, "middle": 0.5, "twin": 0.5,
        }  # fmt: skip
        ratings: dict[str, Any] = {name: entry.rating for name, entry in by_name.items()}
        assert ratings["high"].value > 1200 > 800 > ratings["low"].value
        assert ratings["middle"] == ratings["twin"]
        assert all(rating.low < rating.value < rating.high for rating in ratings.values())

    def test_has_a_matrix_whose_halves_agree(self) -> None:
        players: dict[str, Any] = {
            "first": ScriptedPolicy(lambda o, info: info["legal_actions"][0], "f"),
            "dice": RandomPolicy(),
        }
        standings = tournament("game:TicTacToe-v0", players, n=40).report.tournament
        ahead, behind = standings.matrix["first"]["dice"], standings.matrix["dice"]["first"]
        assert ahead.mean + behind.mean == pytest.approx(1) and ahead.n == 80
        assert ahead.mean > 0.5 and standings.players[0].name == "first"
        assert standings.seats["player_0"].mean + standings.seats["player_1"].mean == pytest.approx(1)
        assert standings.seats["player_0"].mean > 0.5  # moving first helps

    def test_of_three_seats(self) -> None:
        players = {"low": always("1"), "high": always("9"), "middle": always("5")}
        result = tournament(lambda: Highest(3), players, n=2)
        assert len(result.episodes) == 6 * 2
        standings = result.report.tournament
        assert [player.name for player in standings.players] == ["high", "middle", "low"]
        assert standings.matrix["middle"]["low"].mean == 1 and standings.matrix["middle"]["high"].mean == 0
        assert [player.score.mean for player in standings.players] == [1, 0.5, 0]

    def test_lies_in_one_folder_and_resumes(self, tmp_path: Path) -> None:
        players: dict[str, Any] = {"guess": GUESS, "other": SlowPolicy(), "heads": always("heads")}
        tournament(Slow, players, n=6, out=tmp_path / "whole")
        tournament(Slow, players, n=6, out=tmp_path / "run", budget=Budget(episodes=11))
        assert len(ids(tmp_path / "run")) == 11
        tournament(Slow, players, n=6, out=tmp_path / "run", resume=True)
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")
        assert (tmp_path / "run" / "heatmap.png").exists()
        with pytest.raises(ConfigError, match=r"players.heads was 'heads' and would be not set"):
            tournament(Slow, {"guess": GUESS, "other": GUESS}, n=6, out=tmp_path / "run", resume=True)

    @pytest.mark.parametrize(
        ("scenario", "players", "message"),
        [
            (Answer, {"a": GUESS, "b": GUESS}, "has one seat; to compare players in it, use marl-gem eval --grid"),
            (Highest, {"a": GUESS}, "has 2 seats; name at least as many players, not 1"),
            (Highest, {"a": GUESS, "b c": GUESS}, "'b c' is no name for a player"),
        ],
    )
    def test_that_cannot_be_played_is_an_error(self, scenario: Any, players: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            tournament(scenario, players, n=1)
