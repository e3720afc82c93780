"""What the scripts make is what ships. For the mini worlds, `tests/tau/test_mini.py` holds this."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("textarena")

from marl_gem.scenarios.textarena import catalog
from scripts.textarena_contests import is_zero_sum
from scripts.textarena_survey import as_text, survey


def test_the_catalog_is_written_as_it_ships() -> None:
    shipped = catalog.FILE.read_text("utf-8")
    read = json.loads(shipped)
    assert as_text(read["games"], read["textarena"]) == shipped


@pytest.mark.slow
@pytest.mark.parametrize(
    "game", ["TicTacToe-v0", "KuhnPoker-v0", "GuessTheNumber-v0", "NewRecruit-v0", "BabyAiText-v0"]
)
def test_the_survey_of_a_game_finds_what_the_catalog_says(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = json.loads(catalog.FILE.read_text("utf-8"))["games"][game]
    monkeypatch.setattr(catalog, "entries", lambda: {})
    monkeypatch.setattr("scripts.textarena_survey.MOST_PLAYERS", 3)
    assert survey(game) == known


@pytest.mark.parametrize("game", ["TicTacToe-v0", "Nim-v0", "KuhnPoker-v0", "SimpleNegotiation-v0"])
def test_the_survey_finds_the_contests(game: str) -> None:
    assert is_zero_sum(game, "") == catalog.entry(game).zero_sum


def test_a_game_that_assigns_rewards_in_its_source_is_not_called_zero_sum() -> None:
    assert not is_zero_sum("TicTacToe-v0", "self.state.rewards = {0: 1, 1: 1}")
    assert not is_zero_sum("TicTacToe-v0", "self.state.set_winners([0, 1], reason='both')")
