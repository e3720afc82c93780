"""The concept figure of the home page: `python docs/generate/figure.py FILE` draws it too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

INK, LINE = "#1f2937", "#64748b"
CORE, MODEL, LEARN = "#dbeafe", "#dcfce7", "#fef3c7"


def draw(path: Path) -> None:
    """Draw how scenario, env, selector, rollout, policy, episode, evaluation and trainer belong together, as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "marl_gem"  # the same file every time
    figure, axes = plt.subplots(figsize=(9.6, 4.4))
    axes.set(xlim=(0, 96), ylim=(0, 44))
    axes.axis("off")
    _box(axes, 2, 30, 17, 10, "Scenario", "rules, rewards,\na name", CORE)
    _box(axes, 27, 30, 17, 10, "Env", "one live copy,\nsteps and returns", CORE)
    _box(axes, 27, 13, 17, 10, "Selector", "who acts next", CORE)
    _box(axes, 52, 30, 17, 10, "Rollout", "many episodes\nat once", CORE)
    _box(axes, 77, 30, 17, 10, "Policy", "a model, a script,\na person", MODEL)
    _box(axes, 52, 13, 17, 10, "Episode", "every turn,\nas plain data", CORE)
    _box(axes, 77, 13, 17, 10, "Trainer", "advantages, loss,\nnew weights", LEARN)
    _box(axes, 48, 0.5, 25, 7, "Evaluation, viewer", "", CORE)
    _arrow(axes, (19, 35), (27, 35), "make", (23, 36.2))
    _arrow(axes, (44, 36.5), (52, 36.5), "observe", (48, 37.7))
    _arrow(axes, (52, 33.5), (44, 33.5), "step", (48, 31.4))
    _arrow(axes, (69, 36.5), (77, 36.5), "prompt", (73, 37.7))
    _arrow(axes, (77, 33.5), (69, 33.5), "response", (73, 31.4))
    _arrow(axes, (35.5, 23), (35.5, 30), "acting agents", (42.2, 26))
    _arrow(axes, (60.5, 30), (60.5, 23), "", (0, 0))
    _arrow(axes, (69, 18), (77, 18), "", (0, 0))
    _arrow(axes, (85.5, 23), (85.5, 30), "weights", (90, 26))
    _arrow(axes, (60.5, 13), (60.5, 7.5), "", (0, 0))
    figure.savefig(path, format="svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})
    plt.close(figure)


def _box(axes: Any, x: float, y: float, width: float, height: float, title: str, text: str, color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=1.2"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=color, edgecolor=LINE))
    middle = x + width / 2
    axes.text(
        middle,
        y + height - (2.8 if text else height / 2),
        title,
        ha="center",
        va="center",
        size=11,
        weight="bold",
        color=INK,
    )
    axes.text(middle, y + 3.6, text, ha="center", va="center", size=8.5, color=INK)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], text: str, at: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE, "lw": 1.4})
    axes.text(*at, text, ha="center", va="center", size=8.5, color=INK)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
