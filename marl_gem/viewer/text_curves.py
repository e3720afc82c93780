"""Training curves as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem.viewer.curves import Point, curves

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 32
"""The most characters of a curve; each is the mean of the points that it stands for."""

FIRST = ("score", "return", "loss", "kl", "entropy", "illegal")
"""Families of metrics that come first, in this order."""

HIGHER, LOWER = {"score", "return", "rating"}, {"loss", "illegal", "imitation_loss"}
"""Families of which the greatest value is the best, and the least. Of others none is."""


def curve_rows(rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> list[list[str]]:
    """For each metric its name, its curve, and its first, last and best value.

    Args:
        rows: of the run's metrics.jsonl.
        config: its configuration.
    """
    found = curves(rows, config).series
    families = sorted(found, key=lambda family: (FIRST.index(family) if family in FIRST else len(FIRST), family))
    return [
        [f"{family}/{name}" if name else family, *_row(family, found[family][name])]
        for family in families
        for name in found[family]
    ]


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Values as bars: the lowest is the least value and the highest the greatest; equal values are in the middle."""
    size = max(1, -(-len(values) // width))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    halves = [sum(value / (2 * len(part)) for value in part) for part in parts]  # so that no sum becomes infinite
    low, high = min(halves), max(halves)
    if high == low:
        return BARS[3] * len(halves)
    return "".join(BARS[round((len(BARS) - 1) * ((half - low) / (high - low)))] for half in halves)


def _row(family: str, points: Sequence[Point]) -> list[str]:
    values = [value for _, value in points]
    best = max(values) if family in HIGHER else min(values) if family in LOWER else None
    return [
        sparkline(values),
        *(f"{value:.4g}" for value in (values[0], values[-1])),
        "" if best is None else f"{best:.4g}",
    ]
