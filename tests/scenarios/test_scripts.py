"""What the scripts make is what ships. For the mini worlds, `tests/tau/test_mini.py` holds this."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("textarena")

from marl_gem.scenarios.textarena import catalog
from scripts.textarena_survey import as_text, survey


def test_the_catalog_is_written_as_it_ships() -> None:
    shipped = catalog.FILE.read_text("utf-8")
    read = json.loads(shipped)
    assert as_text(read["games"], read["textarena"]) == shipped


@pytest.mark.slow
@pytest.mark.parametrize("game", ["TicTacToe-v0", "KuhnPoker-v0", "GuessTheNumber-v0", "BabyAiText-v0"])
def test_the_survey_of_a_game_finds_what_the_catalog_says(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = json.loads(catalog.FILE.read_text("utf-8"))["games"][game]
    monkeypatch.setattr(catalog, "entries", lambda: {})
    monkeypatch.setattr("scripts.textarena_survey.MOST_PLAYERS", 3)
    assert survey(game) == known
