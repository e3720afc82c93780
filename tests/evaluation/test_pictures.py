"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from marl_gem.evaluation import evaluate
from marl_gem.evaluation.pictures import pictures
from tests.evaluation.helpers import Highest
from tests.toys import OneAnswer, always

pytest.importorskip("matplotlib")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], dict[str, Any]]]:
    """The figures that belong to a report, by the title of their axes' kind: what is saved, before it is saved."""
    import matplotlib
    from matplotlib.figure import Figure

    figures: list[tuple[Any, list[str]]] = []

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
        figure.draw_without_rendering()
        figures.append((figure, list(matplotlib.rcParams["font.family"])))

    def draw(report: Any) -> dict[str, Any]:
        figures.clear()
        names = list(pictures(report))
        return dict(zip(names, figures, strict=True))

    monkeypatch.setattr(Figure, "savefig", savefig)
    yield draw


def names(labels: Sequence[Any]) -> list[str]:
    assert all(label.get_rotation() == 0 for label in labels), "names are horizontal"
    return [label.get_text() for label in labels]


def test_values_stand_beside_the_bars_and_not_on_the_lines(drawn: Callable[[Any], dict[str, Any]]) -> None:
    report = evaluate(OneAnswer, {"solver": [always("yes"), always("no")]}, n=4).report
    found = drawn(report)
    figure, _ = found["bars.png"]
    (axes,) = figure.axes
    values = [text for text in axes.texts if "%" in text.get_text()]
    ends = max(line.get_window_extent().x1 for line in axes.lines)
    assert [text.get_text().split()[0] for text in values] == ["100.0%", "0.0%"]
    assert all(text.get_window_extent().x0 > ends for text in values)
    assert names(axes.get_yticklabels()) == ["yes", "no"]
    names(found["heatmap.png"][0].axes[0].get_xticklabels())


def test_fifty_agents_have_a_bar_with_a_name_each(drawn: Callable[[Any], dict[str, Any]]) -> None:
    report = evaluate(lambda: Highest(50), always("1"), n=1).report
    ((figure, _),) = drawn(report).values()
    (axes,) = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(names(axes.get_yticklabels())) == 50
    assert all(above.y0 >= below.y1 - 1 for above, below in pairwise(boxes)), "they do not overlap"


def test_installed_fonts_serve_letters_that_the_first_one_lacks(
    drawn: Callable[[Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.font_manager import fontManager

    monkeypatch.setattr(fontManager, "get_font_names", lambda: ["DejaVu Sans", "WenQuanYi Zen Hei", "Comic Sans"])
    ((_, fonts),) = drawn(evaluate(OneAnswer, always("yes"), n=2).report).values()
    assert fonts == ["DejaVu Sans", "WenQuanYi Zen Hei"]
