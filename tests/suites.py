"""Suites register many scenarios of the same class; in the tests of all scenarios a few of them stand for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

STAND_FOR_THE_REST = {
    "rg": {"rg:lcm"},
    "math": {"math:arithmetic-v0", "math:figures-v0"},
    "qa": {"qa:one-hop-v0"},
    "eval": set[str](),
    "logic": set[str](),
}
"""By family; tests/tasks plays all of them."""

Scenario = TypeVar("Scenario")


def sampled(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """The scenarios that the tests of all scenarios play."""
    kept = []
    for scenario in scenarios:
        id = str(scenario.id)  # type: ignore[attr-defined]
        family = id.partition(":")[0]
        if family not in STAND_FOR_THE_REST or id in STAND_FOR_THE_REST[family]:
            kept.append(scenario)
    return kept
