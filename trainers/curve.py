"""The learning curve as a picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marl_gem.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_curve(
    rows: Sequence[dict[str, Any]], *, title: str, score: str, target: Path, changes: Sequence[int] = ()
) -> None:
    """Draw the score and the policies' entropy over the updates, as a PNG.

    Args:
        rows: of a run's metrics.jsonl.
        title: what was trained.
        score: what the score is.
        target: the picture's path.
        changes: the updates at which seats changed hands.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"text.parse_math": False}):  # a name may hold a $, which would begin a formula
        figure = _draw(rows, title, score, changes)
        figure.savefig(target, dpi=120)
    plt.close(figure)


def _draw(rows: Sequence[dict[str, Any]], title: str, score: str, changes: Sequence[int]) -> Figure:
    import matplotlib.pyplot as plt

    scores = [(row["update"], _score(row)) for row in rows if "score" in row]
    entropies: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name.partition("/")[0] == "entropy" and row["stage"] == "training":
                entropies.setdefault(name.partition("/")[2], []).append((row["update"], value))
    figure: Figure
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), height_ratios=(2, 1), layout="constrained")
    above.axhline(0.5, color="0.8", linewidth=1)
    above.plot(*zip(*scores, strict=True) if scores else ([], []), marker="o", markersize=3, color="tab:blue")
    above.set(title=printable(title), ylabel=score, ylim=(0, 1))
    for (name, points), color in zip(
        entropies.items(), itertools.cycle(["tab:orange", "tab:green", "tab:red"]), strict=False
    ):
        below.plot(*zip(*points, strict=True), color=color, label=printable(name))
    if len(entropies) > 1:
        below.legend(frameon=False)
    below.set(xlabel="updates", ylabel="entropy (nats a token)")
    for axes in (above, below):
        for change in changes:
            axes.axvline(change, color="0.8", linewidth=1, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _score(row: dict[str, Any]) -> float:
    """The score of the seating at that moment: before the first update that of the first phase, and not of the last."""
    return float(row.get("first_score", row["score"]))
