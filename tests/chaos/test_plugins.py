"""A short round of hostile plug-ins; `make chaos` plays all kinds."""

from __future__ import annotations

import pytest

from tests.chaos import hostile_plugins, plugins


def test_some_hostile_plug_ins_beside_healthy_neighbours() -> None:
    (row,) = plugins.attack(seed=1, count=4)
    assert row.cases == 4 and not row.violations


@pytest.mark.parametrize(
    "name",
    [
        "a cycle in an info",
        "an object whose methods exit for an observation",
        "_process_action raises KeyboardInterrupt",
        "close exits",
        "nobody acts",
    ],
)
def test_kinds_that_once_ended_the_run(name: str) -> None:
    kinds = dict(plugins.all_kinds())
    (row,) = plugins.attack(seed=2, kinds={name: kinds[name]})
    assert row.cases == 1 and not row.violations


def test_there_are_many_kinds() -> None:
    assert len(hostile_plugins.HOSTILE) + len(hostile_plugins.POLICIES) > 180


@pytest.mark.parametrize("place", ["at import", "in reset"])
def test_a_plug_in_that_ends_the_program_is_no_success(place: str) -> None:
    row = plugins.exits([place], [("eval", "-n", "2"), ("play",), ("list",)])
    assert row.cases == 3 and not row.violations
