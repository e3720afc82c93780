"""Grids: all combinations of several players for each seat."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import ConfigError
from marl_gem.evaluation import Budget, Player, evaluate
from marl_gem.evaluation.markdown import markdown
from marl_gem.evaluation.markup import estimate_text
from marl_gem.evaluation.report import read_report
from tests.evaluation.helpers import (
    GUESS,
    Highest,
    ids,
    numbers_of,
    played,
    timeless,
)
from tests.slow_game import Slow
from tests.toys import always


class TestAGrid:
    SEATS: Mapping[str, Any] = {"a": [always("heads"), GUESS], "b": [always("heads"), always("tails"), GUESS]}

    def test_plays_all_combinations_on_the_same_tasks(self, tmp_path: Path) -> None:
        result = evaluate(Slow, self.SEATS, n=6, out=tmp_path / "grid")
        folders = sorted(path.name for path in (tmp_path / "grid").iterdir() if path.is_dir())
        assert folders == [
            "01_heads_heads", "02_heads_tails", "03_heads_slow", "04_slow_heads", "05_slow_tails", "06_slow_slow",
        ]  # fmt: skip
        for folder in folders:
            assert len(set(ids(tmp_path / "grid" / folder))) == 6
            alone = read_report(tmp_path / "grid" / folder)
            assert alone.matches[0] == next(match for match in result.report.matches if match.folder == folder)
        assert (tmp_path / "grid" / "heatmap.png").exists() and (tmp_path / "grid" / "bars.png").exists()
        single = evaluate(Slow, {"a": always("heads"), "b": always("tails")}, n=6).report
        assert numbers_of(result.report, "a", 1).return_.mean == numbers_of(single, "a").return_.mean

    def test_forms_a_table(self) -> None:
        result = evaluate(Slow, self.SEATS, n=4)
        grid = result.report.grid
        assert (grid.row_agents, grid.column_agent) == (("a",), "b")
        assert (grid.rows, grid.columns) == (("heads", "slow"), ("heads", "tails", "slow"))
        assert grid.cells["05"] == ("slow", "tails")
        text = markdown(result.report)
        share = estimate_text(numbers_of(result.report, "b", 4).success, share=True)
        assert re.search(rf"\| slow \| [^|]* \| {re.escape(share)} \| [^|]* \|", text)

    def test_stopped_early_has_played_the_same_tasks_everywhere(self, tmp_path: Path) -> None:
        evaluate(Slow, self.SEATS, n=20, out=tmp_path / "grid", concurrency=1, budget=Budget(episodes=24))
        matches = read_report(tmp_path / "grid").matches
        assert [match.episodes for match in matches] == [4] * 6

    def test_is_resumed_as_a_whole(self, tmp_path: Path) -> None:
        whole = evaluate(Slow, self.SEATS, n=5, repeats=2, out=tmp_path / "whole")
        evaluate(Slow, self.SEATS, n=5, repeats=2, out=tmp_path / "grid", budget=Budget(episodes=17))
        result = evaluate(Slow, self.SEATS, n=5, repeats=2, out=tmp_path / "grid", resume=True)
        assert timeless(result.report) == timeless(whole.report)
        for match in result.report.matches:
            assert played(tmp_path / "grid" / match.folder) == played(tmp_path / "whole" / match.folder)

    def test_a_part_is_not_resumed_alone(self, tmp_path: Path) -> None:
        evaluate(Slow, self.SEATS, n=2, out=tmp_path / "grid")
        with pytest.raises(ConfigError, match=r"01_heads_heads is a part of the run in .*grid; resume that"):
            evaluate(
                Slow,
                {"a": always("heads"), "b": always("heads")},
                n=2,
                out=tmp_path / "grid/01_heads_heads",
                resume=True,
            )

    def test_rows_are_combinations_when_three_seats_vary(self) -> None:
        seats = {f"seat_{i}": [always("1"), always("2")] for i in range(3)}
        grid = evaluate(lambda: Highest(3), seats, n=1).report.grid
        assert grid.rows == ("1, 1", "1, 2", "2, 1", "2, 2") and grid.columns == ("1", "2")

    def test_the_same_player_twice_in_a_seat_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match=r"seat 'a' must be one or more, all different; not \['heads', 'heads'\]"):
            evaluate(Slow, {"a": [always("heads"), always("heads")], "b": GUESS}, n=1)

    def test_long_names_become_folders_and_labels(self, tmp_path: Path) -> None:
        url = "Qwen/Qwen3-1.7B@http://127.0.0.1:8000/v1,temperature=0"
        players = [Player(url, always("heads", "Qwen/Qwen3-1.7B")), Player("../x$y$", always("tails", "../x$y$"))]
        seats: dict[str, Any] = {"a": players, "b": [GUESS]}
        evaluate(Slow, seats, n=2, out=tmp_path / "grid")
        assert sorted(path.name for path in (tmp_path / "grid").iterdir() if path.is_dir()) == [
            "01_Qwen-Qwen3-1.7B", "02_x-y",
        ]  # fmt: skip
        assert [path.name for path in tmp_path.iterdir()] == ["grid"]
