"""Reports: their records, their page, and what is refused before anything is played."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from marl_gem.errors import AgentError, ConfigError, MissingPackage
from marl_gem.evaluation import Budget, Player, evaluate, tournament
from marl_gem.evaluation.markdown import markdown, money_text
from marl_gem.policies import RandomPolicy
from tests.evaluation.helpers import (
    GUESS,
    Answer,
    says,
)
from tests.slow_game import Slow


class TestWhatIsWrongIsTold:
    @pytest.mark.parametrize("numbers", [{"n": 0}, {"repeats": 0}, {"seed": -1}])
    def test_numbers(self, numbers: dict[str, int]) -> None:
        with pytest.raises(ConfigError, match="n and repeats count from 1, the seed from 0"):
            evaluate(Slow, GUESS, **numbers)  # type: ignore[arg-type]

    def test_seats(self) -> None:
        with pytest.raises(AgentError, match=r"has the seats a, b; without a player: \['b'\], unknown: \['c'\]"):
            evaluate(Slow, {"a": GUESS, "c": GUESS})

    def test_options_of_what_is_no_id(self) -> None:
        with pytest.raises(ConfigError, match="options are for scenarios that have an id"):
            evaluate(Slow, GUESS, options={"rounds": 3})

    def test_random_play_where_no_legal_actions_are_known_before_anything_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(AgentError, match="random play in seat 'solver' needs a list of legal actions"):
            evaluate(Answer, RandomPolicy(), n=3, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()


class TestTheReport:
    def test_is_written_without_matplotlib(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from marl_gem.evaluation.pictures import pictures

        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        assert not list((tmp_path / "run").glob("*.png")) and ".png" not in (tmp_path / "run" / "report.md").read_text()
        with pytest.raises(MissingPackage, match=r"pip install 'marl-gem\[eval\]'"):
            pictures(result.report)

    def test_of_nothing_played_can_be_read(self, tmp_path: Path) -> None:
        for seats in (GUESS, {"a": [GUESS, says("heads")], "b": GUESS}):
            result = evaluate(Slow, seats, n=3, out=tmp_path / str(len(str(seats))), budget=Budget(episodes=0))
            assert result.pending in (3, 6) and "are pending" in markdown(result.report)
        empty = tournament(Slow, {"a": GUESS, "b": GUESS}, n=3, out=tmp_path / "t", budget=Budget(episodes=0))
        assert "6 are pending" in markdown(empty.report)

    def test_of_hostile_names_keeps_its_tables(self, tmp_path: Path) -> None:
        odd = "a|b\n<script>$x$\ud800"
        result = evaluate(
            Slow, {"a": says("heads", odd), "b": says("tails", odd)}, n=2, repeats=2, out=tmp_path / "run"
        )
        text = (tmp_path / "run" / "report.md").read_text()
        assert "<script>" not in text and "a\\|b &lt;script>" in text
        assert result.pending == 0

    @pytest.mark.parametrize(
        ("cost", "text"), [(None, "unknown"), (0.0, "–"), (0.0042, "$0.0042"), (0.5, "$0.5"), (1234.5, "$1,234.50")]
    )
    def test_tells_money(self, cost: float | None, text: str) -> None:
        assert money_text(cost) == text

    def test_has_the_versions_and_how_to_play_it_again(self, tmp_path: Path) -> None:
        evaluate("game:KuhnPoker-v0", Player("random", RandomPolicy()).policy, n=3, out=tmp_path / "run")
        text = (tmp_path / "run" / "report.md").read_text()
        assert "## To play it again" in text and "marl_gem 0.1.0" in text and "derive_seed(0, 'eval', i)" in text
