"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def draw_curve(rows: Sequence[dict[str, Any]], title: str, target: Path) -> None:
    """Draw the score against random play and the policy's entropy over the updates, as a PNG.

    Args:
        rows: of a run's metrics.jsonl.
        title: what was trained.
        target: the picture's path.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scores = [(row["update"], row["score"]) for row in rows if "score" in row]
    entropies = [(row["update"], row["entropy"]) for row in rows if row["phase"] == "self-play"]
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), height_ratios=(2, 1), layout="constrained")
    above.axhline(0.5, color="0.8", linewidth=1)
    above.plot(*zip(*scores, strict=True) if scores else ([], []), marker="o", markersize=3, color="tab:blue")
    above.set(title=title, ylabel="score against random play", ylim=(0, 1))
    below.plot(*zip(*entropies, strict=True) if entropies else ([], []), color="tab:orange")
    below.set(xlabel="updates", ylabel="entropy (nats a token)")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=120)
    plt.close(figure)
