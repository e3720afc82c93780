"""The numbers of a training run over its updates, as they are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from marl_gem.runs.metric_names import renamed

POINTS = 400
"""The most points of a line; with more rows, a point is the mean of several that follow one another."""

LINES, FAMILIES = 64, 200
"""The most lines of a chart, and the most charts."""

NO_CURVES = {"update", "step", "episodes", "seconds", "score_interval", "first_score"}
"""Numbers in a row that say where and when it was written, or belong to another number."""

Point = tuple[float, float]


class Curves(msgspec.Struct):
    """What is drawn of a training run.

    `series` has a family of lines for each metric, as in {"entropy": {"user": [(update, value), ...]}}; a metric of the
    run has one line with an empty name. Of the warm start there is `imitation_loss`, over its steps. `intervals` are
    (update, low, high) of the score. `episodes` are (update, first line in episodes.jsonl, how many). `phases` are the
    updates after which seats changed hands. `rows_a_point` says how many rows became one point.
    """

    series: dict[str, dict[str, list[Point]]] = {}
    intervals: list[tuple[float, float, float]] = []
    episodes: list[tuple[int, int, int]] = []
    phases: list[int] = []
    updates: int = 0
    planned: int | None = None
    rows_a_point: int = 1


def curves(rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> Curves:
    """What is drawn of a run; values that are no finite numbers are left out.

    Args:
        rows: of its metrics.jsonl.
        config: its configuration.
    """
    found = Curves()
    written = 0
    for row in map(renamed, rows):
        update, stage = _count(row.get("update")), row.get("stage")
        for family, line, value in _numbers(row):
            if stage == "imitation":
                if family == "loss":
                    _add(found, "imitation_loss", str(row.get("policy", ""))[:200], _count(row.get("step")), value)
            elif stage == "training" or family == "score":
                if family == "score":
                    _drop(found, line, update)
                _add(found, family, line, update, value)
        low, high = _pair(row.get("score_interval"))
        if "score" in row and low is not None and high is not None and not _has(row, "first_score"):
            if found.intervals and found.intervals[-1][0] == update:
                found.intervals.pop()
            found.intervals.append((update, low, high))
        if (total := _count(row.get("episodes"))) > written:
            found.episodes.append((update, written + 1, total - written))
            written = total
        found.updates = max(found.updates, update)
    _thin(found)
    training, phases = config.get("training"), config.get("phases")
    found.planned = _count(training.get("updates")) if isinstance(training, Mapping) else None
    if isinstance(phases, list):
        found.phases = [_count(phase.get("start")) for phase in phases[:LINES] if isinstance(phase, Mapping)]
    return found


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """The family, the line and the value of each number to draw, and the mean length of an answer, which follows."""
    for name, value in row.items():
        family, _, line = name.partition("/")
        if not _is_number(value) or family in NO_CURVES:
            continue
        if family == "score" and not line and _has(row, "first_score"):
            value = row["first_score"]  # of the seating that is trained first
        yield family, line, float(value)
        turns = row.get(f"turns/{line}" if line else "turns")
        if family == "tokens" and isinstance(turns, int | float) and turns > 0:
            yield "answer_tokens", line, value / turns


def _add(found: Curves, family: str, line: str, x: int, y: float) -> None:
    if family in found.series or len(found.series) < FAMILIES:
        lines = found.series.setdefault(family, {})
        if line in lines or len(lines) < LINES:
            lines.setdefault(line, []).append((x, y))


def _drop(found: Curves, line: str, update: int) -> None:
    """Forget the score of an update that is measured again, with more episodes."""
    points = found.series.get("score", {}).get(line, [])
    if points and points[-1][0] == update:
        points.pop()


def _thin(found: Curves) -> None:
    longest = max((len(points) for lines in found.series.values() for points in lines.values()), default=0)
    size = math.ceil(longest / POINTS)
    if size > 1:
        found.rows_a_point = size
        found.series = {
            family: {line: _means(points, size) for line, points in lines.items()}
            for family, lines in found.series.items()
        }


def _means(points: Sequence[Point], size: int) -> list[Point]:
    """Each `size` points as one: the last one's x, and the mean of y. Short lines stay as they are."""
    if len(points) <= POINTS:
        return list(points)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _has(row: Mapping[str, Any], name: str) -> bool:
    return _is_number(row.get(name))


def _pair(value: object) -> tuple[float | None, float | None]:
    if isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)):
        return float(value[0]), float(value[1])
    return None, None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else 0
