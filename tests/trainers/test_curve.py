"""The picture of a learning curve."""

from __future__ import annotations

from pathlib import Path

from marl_gem.trainers.curve import draw_curve


def test_a_title_is_no_formula(tmp_path: Path) -> None:
    rows = [{"update": 1, "score": 0.5, "stage": "training", "entropy/$\\x$": 1.0, "entropy/b": 1.0}]
    draw_curve(rows, title="games/$\\x$\ud800.py", score="score of $\\y$", target=tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
