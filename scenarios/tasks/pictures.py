"""Problems with a picture that is drawn here: figures of geometry, and charts. Equal seeds give equal bytes.

Drawn with Pillow, whose font comes with it; another version of Pillow may draw letters a little differently.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from marl_gem.errors import MissingPackage
from marl_gem.scenarios.tasks.images import data_url
from marl_gem.scenarios.tasks.problems import FRACTIONS

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

Pictured: TypeAlias = tuple[str, Fraction, str]
"""A problem, its answer, and the URL of its picture."""

Point: TypeAlias = tuple[float, float]
Label: TypeAlias = tuple[Point, str]

WIDTH, HEIGHT = 320, 240
INK, FILL = (20, 20, 20), (200, 215, 240)


def figures(rng: Random, grade: int) -> Pictured:
    """A figure with labelled lengths: its perimeter, area or a side."""
    size = 5 * grade
    a, b = rng.randint(3, size + 3), rng.randint(3, size + 3)
    corners: Sequence[Point]
    if grade == 1:
        corners = [(60, 60), (260, 60), (260, 180), (60, 180)]
        labels = [((160, 195), str(a)), ((275, 120), str(b))]
        return "What is the perimeter of this rectangle?", Fraction(2 * (a + b)), _figure(corners, labels)
    if grade == 2:
        top = rng.randint(80, 240)
        corners = [(40, 190), (280, 190), (top, 50)]
        labels = [((160, 205), str(a)), ((top + 14, 120), str(b))]
        picture = _figure(corners, labels, dashed=((top, 50), (top, 190)))
        return (
            f"The dashed line is the height. What is the area of this triangle? {FRACTIONS}",
            Fraction(a * b, 2),
            picture,
        )
    if grade == 3:
        m, k = rng.randint(2, 5), rng.randint(1, 3)
        legs, longest = (k * (m * m - 1), 2 * k * m), k * (m * m + 1)
        corners = [(60, 190), (260, 190), (60, 50)]
        labels = [((160, 205), str(legs[0])), ((40, 120), str(legs[1])), ((175, 105), "x")]
        return "The angle at the lower left is a right angle. What is x?", Fraction(longest), _figure(corners, labels)
    c, d = rng.randint(1, a - 1), rng.randint(1, b - 1)
    if grade == 4:
        corners = [(60, 40), (180, 40), (180, 110), (270, 110), (270, 200), (60, 200)]
        labels = [((165, 215), str(a)), ((40, 120), str(b)), ((225, 95), str(c)), ((195, 75), str(d))]
        question = "All angles of this figure are right angles. What is its area?"
        return question, Fraction(a * b - c * d), _figure(corners, labels)
    corners = [(50, 40), (270, 40), (270, 200), (50, 200)]
    hole = [(110, 90), (200, 90), (200, 150), (110, 150)]
    labels = [((160, 215), str(a)), ((285, 120), str(b)), ((155, 78), str(c)), ((213, 120), str(d))]
    question = f"What share of the large rectangle is shaded? {FRACTIONS}"
    return question, 1 - Fraction(c * d, a * b), _figure(corners, labels, hole)


def charts(rng: Random, grade: int) -> Pictured:
    """A chart of bars: a value, a difference, a sum, a mean, a share."""
    names = rng.sample(["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"], min(8, grade + 2))
    values = [rng.randint(1, 5 + 4 * grade) for _ in names]
    first, second = rng.sample(range(len(names)), 2)
    picture = _chart(names, values)
    asked = "The chart shows how many books each has read."
    if grade == 1:
        return f"{asked} How many has {names[first]} read?", Fraction(values[first]), picture
    if grade == 2:
        high, low = (first, second) if values[first] >= values[second] else (second, first)
        question = f"{asked} How many more has {names[high]} read than {names[low]}?"
        return question, Fraction(values[high] - values[low]), picture
    if grade == 3:
        return f"{asked} How many have they read together?", Fraction(sum(values)), picture
    if grade == 4:
        return f"{asked} What is their mean number of books? {FRACTIONS}", Fraction(sum(values), len(values)), picture
    question = f"{asked} Of all these books, what share have {names[first]} and {names[second]} read? {FRACTIONS}"
    return question, Fraction(values[first] + values[second], sum(values)), picture


PICTURED: dict[str, Callable[[Random, int], Pictured]] = {"charts": charts, "figures": figures}


def _figure(
    corners: Sequence[Point],
    labels: Sequence[Label],
    hole: Sequence[Point] = (),
    dashed: tuple[Point, Point] | None = None,
) -> str:
    def draw(canvas: ImageDraw) -> None:
        canvas.polygon(list(corners), fill=FILL, outline=INK, width=2)
        if hole:
            canvas.polygon(list(hole), fill="white", outline=INK, width=2)
        if dashed:
            (x, top), (_, bottom) = dashed
            for y in range(int(top), int(bottom), 10):
                canvas.line([(x, y), (x, y + 5)], fill=INK, width=2)
        _label(canvas, labels)

    return _drawn(draw)


def _chart(names: Sequence[str], values: Sequence[int]) -> str:
    def draw(canvas: ImageDraw) -> None:
        step, unit = (WIDTH - 40) / len(names), (HEIGHT - 70) / max(values)
        canvas.line([(20, HEIGHT - 40), (WIDTH - 10, HEIGHT - 40)], fill=INK, width=2)
        for index, (name, value) in enumerate(zip(names, values, strict=True)):
            left, top = 26 + index * step, HEIGHT - 40 - value * unit
            canvas.rectangle([left, top, left + step * 0.7, HEIGHT - 40], fill=FILL, outline=INK)
            middle = left + step * 0.35
            _label(canvas, [((middle, HEIGHT - 28), name), ((middle, top - 9), str(value))])

    return _drawn(draw)


def _label(canvas: ImageDraw, labels: Sequence[Label]) -> None:
    for point, text in labels:
        canvas.text(point, text, fill=INK, anchor="mm", font_size=14)


def _drawn(draw: Callable[[ImageDraw], None]) -> str:
    """The URL of a picture.

    Raises:
        MissingPackage: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MissingPackage("pillow", "math", "drawing the picture of a problem") from error
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw(ImageDraw.Draw(image))
    file = io.BytesIO()
    image.save(file, "PNG")
    return data_url(file.getvalue())
