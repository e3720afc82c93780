"""Reports: their records, their page, and what is refused before anything is played."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import AgentError, ConfigError, MissingPackage, RecordError
from marl_gem.evaluation import Budget, Player, evaluate, tournament
from marl_gem.evaluation.markdown import markdown
from marl_gem.evaluation.markup import money_text
from marl_gem.evaluation.report import read_report
from marl_gem.policies import RandomPolicy
from marl_gem.types import Limits
from tests.evaluation.helpers import (
    GUESS,
    Highest,
    timeless,
)
from tests.slow_game import Slow
from tests.toys import always

FORMAT_1 = Path(__file__).parent / "format_1"


class TestErrors:
    @pytest.mark.parametrize("numbers", [{"n": 0}, {"repeats": 0}, {"seed": -1}])
    def test_numbers(self, numbers: dict[str, int]) -> None:
        with pytest.raises(ConfigError, match=r"is a whole number from [01] to"):
            evaluate(Slow, GUESS, **numbers)  # type: ignore[arg-type]

    def test_seats(self) -> None:
        with pytest.raises(AgentError, match=r"has the seats a, b; without a player: \['b'\], unknown: \['c'\]"):
            evaluate(Slow, {"a": GUESS, "c": GUESS})

    def test_options_of_what_is_no_id(self) -> None:
        with pytest.raises(ConfigError, match="options are for scenarios that have an id"):
            evaluate(Slow, GUESS, options={"rounds": 3})


class TestTheReport:
    def test_is_written_without_matplotlib(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from marl_gem.evaluation.pictures import pictures

        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        assert not list((tmp_path / "run").glob("*.png")) and ".png" not in (tmp_path / "run" / "report.md").read_text()
        with pytest.raises(MissingPackage, match=r"pip install 'marl-gem\[eval\]'"):
            pictures(result.report)

    def test_of_nothing_played_can_be_read(self, tmp_path: Path) -> None:
        seatings: tuple[Any, ...] = (GUESS, {"a": [GUESS, always("heads")], "b": GUESS})
        for seats in seatings:
            result = evaluate(Slow, seats, n=3, out=tmp_path / str(len(str(seats))), budget=Budget(episodes=0))
            assert result.pending in (3, 6) and "are pending" in markdown(result.report)
        empty = tournament(Slow, {"a": GUESS, "b": GUESS}, n=3, out=tmp_path / "t", budget=Budget(episodes=0))
        assert "6 are pending" in markdown(empty.report)

    def test_of_hostile_names_keeps_its_tables(self, tmp_path: Path) -> None:
        odd = "a|b\n<script>$x$\ud800"
        result = evaluate(
            Slow, {"a": always("heads", odd), "b": always("tails", odd)}, n=2, repeats=2, out=tmp_path / "run"
        )
        text = (tmp_path / "run" / "report.md").read_text()
        assert "| `a`&#124;`b <script>$x$[U+D800]` |" in text
        assert result.pending == 0

    @pytest.mark.parametrize(
        ("cost", "text"), [(None, "unknown"), (0.0, "–"), (0.0042, "$0.0042"), (0.5, "$0.5"), (1234.5, "$1,234.50")]
    )
    def test_writes_money(self, cost: float | None, text: str) -> None:
        assert money_text(cost) == text

    def test_has_the_versions_and_how_to_play_it_again(self, tmp_path: Path) -> None:
        evaluate("game:KuhnPoker-v0", Player("random", RandomPolicy()).policy, n=3, out=tmp_path / "run")
        text = (tmp_path / "run" / "report.md").read_text()
        assert "## To play it again" in text and "marl_gem 0.1.0" in text and "derive_seed(0, 'eval', i)" in text


class TestReadReport:
    def test_gives_back_what_was_written(self, tmp_path: Path) -> None:
        heads, tails = always("heads"), always("tails")
        results = [
            evaluate(Slow, GUESS, n=3, repeats=2, limits=Limits(turns=3), out=tmp_path / "eval"),
            evaluate(Slow, {"a": [heads, tails], "b": GUESS}, n=2, out=tmp_path / "grid"),
            tournament(Highest, {"low": always("1"), "high": always("9")}, n=2, out=tmp_path / "tournament"),
        ]
        for result in results:
            assert result.folder is not None
            assert read_report(result.folder) == result.report == read_report(result.folder / "report.json")

    @pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"format": 2}', '{"format": 99}', '{"best": 0.5}'])
    def test_of_something_else_is_an_error(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "report.json").write_text(content)
        with pytest.raises(RecordError, match=r"report.json is no report: "):
            read_report(tmp_path)

    def test_of_a_run_without_one_says_how_to_get_it(self, tmp_path: Path) -> None:
        with pytest.raises(RecordError, match=r"cannot read .*report.json: .*--resume` writes it"):
            read_report(tmp_path)


class TestFormat1:
    """What the first format left on disk: evaluations from before the records had types."""

    def test_reports_are_read(self) -> None:
        report = read_report(FORMAT_1 / "eval")
        assert (report.format, report.config.format, report.config.n) == (2, 2, 3)
        assert (report.episodes.counted, report.episodes.pending) == (4, 2)
        assert report.matches[0].agents["player_0"].success is not None and "2 are pending" in markdown(report)

    def test_grids_and_tournaments_are_read(self) -> None:
        grid, cup = read_report(FORMAT_1 / "grid"), read_report(FORMAT_1 / "tournament")
        assert grid.grid is not None and set(grid.grid.cells) == {match.name for match in grid.matches}
        assert grid.trivial_baselines and "| user | assistant |" not in markdown(grid)
        assert "**Success of assistant**" in markdown(grid)
        assert cup.tournament is not None and {player.name for player in cup.tournament.players} == {"x", "y"}
        assert "won / drawn / lost" in markdown(cup)

    def test_runs_are_resumed(self, tmp_path: Path) -> None:
        shutil.copytree(FORMAT_1 / "eval", tmp_path / "run")
        dice = Player("random", RandomPolicy())
        asked: Any = {"scenario": "game:KuhnPoker-v0", "seats": dict.fromkeys(("player_0", "player_1"), dice)}
        result = evaluate(**asked, n=3, repeats=2, out=tmp_path / "run", resume=True)
        assert (result.pending, result.report.episodes.counted) == (0, 6)
        assert json.loads((tmp_path / "run" / "config.json").read_text())["format"] == 2
        assert timeless(result.report) == timeless(evaluate(**asked, n=3, repeats=2, out=tmp_path / "new").report)
