"""The learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marl_gem.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {
    "return": "mean return",
    "entropy": "entropy\n(nats a token)",
    "win_rate": "win rate\nagainst the pool",
    "rating": "rating",
}
"""The families of metrics that have a part of the picture, below the score, where a run has them."""

NAMED = 8
"""With more lines than this there are no names in the picture."""

Points = list[tuple[int, float]]


def draw_curve(
    rows: Sequence[dict[str, Any]], *, title: str, score: str, target: Path, changes: Sequence[int] = ()
) -> None:
    """Draw the score with its interval, and the other `LINES`, over the updates, as a PNG.

    Args:
        rows: of a run's metrics.jsonl.
        title: what was trained.
        score: what the score is.
        target: the picture's path.
        changes: the updates at which seats changed hands.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"text.parse_math": False}):  # a name may hold a $, which would begin a formula
        families = {family: lines for family in LINES if (lines := _lines(rows, family))}
        ratios = (2, *(1 for _ in families))
        figure = Figure(figsize=(7, 2.4 + 1.3 * len(families)), layout="constrained")
        axes = figure.subplots(1 + len(families), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
        axes[0].set(title=printable(title), ylabel=score)
        _draw_score(axes[0], rows)
        for part, (family, lines) in zip(axes[1:], families.items(), strict=True):
            _draw_lines(part, lines)
            part.set(ylabel=LINES[family])
        _finish(figure, changes)
        figure.savefig(target, dpi=120)


def _draw_score(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    measured = [row for row in rows if "score" in row]
    bounded = [(row["update"], *row["score_interval"]) for row in measured if _has_interval(row)]
    axes.axhline(0.5, color="0.8", linewidth=1)
    if bounded:
        updates, low, high = zip(*bounded, strict=True)
        axes.fill_between(updates, low, high, color="tab:blue", alpha=0.2, linewidth=0)
    axes.plot([row["update"] for row in measured], list(map(_score, measured)), marker="o", markersize=3)
    axes.set(ylim=(0, 1))


def _draw_lines(axes: Axes, lines: Mapping[str, Points]) -> None:
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), linewidth=1.2, label=printable(name))
    if 1 < len(lines) <= NAMED:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))


def _finish(figure: Figure, changes: Sequence[int]) -> None:
    for axes in figure.axes:
        for change in changes:
            axes.axvline(change, color="0.8", linewidth=1, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[-1].set(xlabel="updates")


def _lines(rows: Sequence[dict[str, Any]], family: str) -> dict[str, Points]:
    """The lines of a family of metrics, by what follows the slash in their names."""
    lines: dict[str, Points] = {}
    for row in rows:
        for name, value in row.items():
            if name.partition("/")[0] == family and row["stage"] == "training":
                lines.setdefault(name.partition("/")[2], []).append((row["update"], value))
    return lines


def _has_interval(row: dict[str, Any]) -> bool:
    """Whether the interval is that of the score that is drawn."""
    return row.get("score_interval") is not None and "first_score" not in row


def _score(row: dict[str, Any]) -> float:
    """The score of the seating at that moment: before the first update that of the first phase, and not of the last."""
    return float(row.get("first_score", row["score"]))
