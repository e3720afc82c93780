"""The picture of the learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marl_gem.evaluation.estimates import wilson
from marl_gem.evaluation.tally import Tally, mean_score_interval
from marl_gem.trainers import run as run_module
from marl_gem.trainers.curve import draw_curve
from marl_gem.trainers.run import TrainingRun
from tests.trainers.support import kuhn, rows


def height(picture: Path) -> int:
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    return int.from_bytes(content[20:24])


def test_a_title_is_no_formula(tmp_path: Path) -> None:
    rows = [{"update": 1, "score": 0.5, "stage": "training", "entropy/$\\x$": 1.0, "entropy/b": 1.0}]
    draw_curve(rows, title="games/$\\x$\ud800.py", score="score of $\\y$", target=tmp_path / "curve.png")
    assert height(tmp_path / "curve.png")


def test_each_family_that_there_is_has_a_part(tmp_path: Path) -> None:
    plain: list[dict[str, Any]] = [{"update": n, "stage": "training", "score": 0.5} for n in range(3)]
    more = [
        {**row, "score_interval": [0.4, 0.6], "return/a": 1.0, "return/b": 0.0, "win_rate/p/p@0": 0.5} for row in plain
    ]
    for name, table in (("plain", plain), ("more", more), ("empty", [])):
        draw_curve(table, title="x", score="score", target=tmp_path / f"{name}.png")
    assert height(tmp_path / "more.png") > height(tmp_path / "plain.png") == height(tmp_path / "empty.png")


@pytest.mark.slow
def test_it_is_drawn_while_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "DRAWN_EVERY", 0)
    settings = ("imitation.steps=1", "training.episodes=8", "evaluation.final_episodes=2", "evaluation.probe_every=1")
    working = TrainingRun.start(tmp_path / "run", kuhn(*settings)).work()
    for progress in working:
        if progress.stage == "training" and progress.done == 2:
            break
    assert height(tmp_path / "run" / "curve.png")
    (tmp_path / "run" / "curve.png").unlink()
    next(working)
    assert height(tmp_path / "run" / "curve.png")
    working.close()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_every_score_has_its_interval(finished_kuhn: Path) -> None:
    measured = [row for row in rows(finished_kuhn) if "score" in row]
    assert len(measured) >= 3
    for row in measured:
        low, high = row["score_interval"]
        assert 0 <= low <= row["score"] <= high <= 1 and low < high


def test_the_interval_of_a_mean_of_scores() -> None:
    first, second = Tally(games=50, success=20), Tally(games=50, success=30)
    low, high = mean_score_interval([[first]])
    assert (low, high) == pytest.approx(wilson(20, 50)), "of one score it is that one's"
    apart, together = mean_score_interval([[first], [second]]), mean_score_interval([[first, second]])
    assert together == pytest.approx(tuple((a + b) / 2 for a, b in zip(wilson(20, 50), wilson(30, 50), strict=True)))
    width = together[1] - together[0]
    assert apart[1] - apart[0] == pytest.approx(width / 2**0.5, rel=0.01), "independent errors partly cancel"
    won = Tally(games=4, win=4, success=4)
    assert won.score_interval == wilson(4, 4) and won.score_interval[0] < 0.6, "four games are no certainty"
