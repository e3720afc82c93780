"""Colonel Blotto: its rules and its analysis."""

from __future__ import annotations

from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.analysis import Decision, uniform
from marl_gem.errors import InvalidOption
from marl_gem.scenarios.games.blotto import PLAYERS, allocations, outcome

BLOTTO = "game:Blotto-v0"


def test_all_allocations() -> None:
    found = allocations(7, 3)
    assert len(found) == len(set(found)) == 36 and {sum(a) for a in found} == {7}


def test_no_answer_beats_all_others() -> None:
    spread = allocations(7, 3)
    assert all(any(outcome(a, b) < 0 for b in spread) for a in spread)


@pytest.mark.parametrize(
    ("first", "second", "won"),
    [
        ("[4 3 0]", "[3 2 2]", 1),
        ("[3 2 2]", "[4 3 0]", -1),
        ("[7 0 0]", "[7 0 0]", 0),
        ("I say [ 1 3 3 ].", "[7 0 0]", 1),
        ("[4 3]", "[7 0 0]", -1),
        ("4 3 0", "", 0),
        ("[8 0 0]", "[0 0 7]", -1),
    ],
)
def test_who_wins(first: str, second: str, won: int) -> None:
    env = marl_gem.make(BLOTTO)
    env.reset(seed=0)
    env.step(dict(zip(PLAYERS, (first, second), strict=True)))
    assert env.done and env.returns == {"player_0": won, "player_1": -won}


@pytest.mark.parametrize("options", [{"soldiers": 0}, {"fields": 1}, {"fields": 6}])
def test_sizes_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="Blotto takes 1 to 20 soldiers and 2 to 5 fields"):
        marl_gem.make(BLOTTO, **options)


def test_the_analysis() -> None:
    def always(decision: Decision) -> dict[str, float]:
        return {"[7 0 0]": 0.5}  # and half of the time nothing legal

    found = registry.analyse(marl_gem.make(BLOTTO), always)
    assert found == {"exploitability": 1.0, "value/player_0": 0.0, "illegal": 0.5}
    even = registry.analyse(marl_gem.make(BLOTTO), uniform)
    assert 0 < even["exploitability"] < 0.5 and even["value/player_0"] == pytest.approx(0)
