"""Tables that keep to a terminal's width and lose no value: cells wrap, names get shorter, columns go into blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from marl_gem.printable import printable

GAP = 2
"""Blank cells between two columns."""

NAME = 16
"""A name that must get shorter gets about this long."""

WORD = 24
"""Words up to this length stay in one line; longer ones are folded where nothing else helps."""

_BOUNDARIES = "/:@,=-_. "
_LONG_NAME = re.compile(rf"(?=.*[^\W\d])\S{{{NAME + 1},}}")


class FittedTable:
    """A table for a terminal of any width.

    Where a row is too wide, cells wrap between words. Where that is not enough, long names are shortened and stay
    distinct, with a legend below. Where even that is not enough, the columns go into several blocks below one another,
    which all have the first column. No cell is ever cut.

    Args:
        header: the columns' names. Text without markup, as all texts here.
        title: a line above the table.
    """

    def __init__(self, *header: str | Text, title: str = "") -> None:
        self.title = title
        self._rows: list[list[Text]] = [[_text(cell) for cell in header]]

    def add_row(self, *cells: str | Text) -> None:
        """Add a row; cells that are left out are empty."""
        given = [_text(cell) for cell in cells]
        self._rows.append([*given, *(Text() for _ in range(len(self._rows[0]) - len(given)))])

    @property
    def rows(self) -> int:
        """The number of rows below the header."""
        return len(self._rows) - 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.title:
            yield Text(self.title, "bold")
        rows, legend = self._rows, dict[str, str]()
        if _breadth(_least(rows, word=width)) > width:
            legend = _shortened(rows)
            rows = [[_replaced(cell, legend) for cell in row] for row in rows]
        for number, columns in enumerate(_blocks(_least(rows), width)):
            if number:
                yield Text()
            yield from _block([[row[column] for column in columns] for row in rows], width, console)
        for name, short in legend.items():
            yield Text(f"{short}: {name}", "dim")


def short_names(names: Iterable[str], longest: int = NAME) -> dict[str, str]:
    """A shorter name for each that is longer than `longest`; different names stay different.

    What all long names begin or end with is replaced by an ellipsis, up to a word's boundary; then the middle of a
    name. Names that would be the same after that get a number.
    """
    given = list(dict.fromkeys(names))
    long = [name for name in given if len(name) > longest]
    start, end = _common(long), _common([name[::-1] for name in long])
    taken = set(given)
    short: dict[str, str] = {}
    for name in long:
        rest = name
        if start + end < len(name) and start + end:
            rest = f"{'…' if start else ''}{name[start : len(name) - end]}{'…' if end else ''}"
        half = (longest - 1) // 2
        cut = rest if len(rest) <= longest else f"{rest[: longest - 1 - half]}…{rest[-half:]}"
        numbered = (f"{cut[: longest - 4]}…{number}" for number in count(2))
        short[name] = next(text for text in chain([cut], numbered) if text not in taken)
        taken.add(short[name])
    return short


def _common(names: Sequence[str]) -> int:
    """The length of what all names begin with, up to the end of a word; 0 if it is not worth cutting."""
    if len(names) < 2:
        return 0
    same = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]
    alike = names[0][: same.index(False) if False in same else len(same)]
    length = max((index + 1 for index, letter in enumerate(alike) if letter in _BOUNDARIES), default=0)
    return length if length > 3 else 0


def _text(cell: str | Text) -> Text:
    text = Text(printable(cell)) if isinstance(cell, str) else cell.copy()
    text.overflow, text.no_wrap, text.justify = "fold", False, None
    return text


def _least(rows: Sequence[Sequence[Text]], word: int = WORD) -> list[int]:
    """The width that each column needs so that no word of up to so many letters is folded."""
    columns = zip(*rows, strict=True)
    return [
        max((min(word, cell_len(part)) for cell in column for part in cell.plain.split()), default=1)
        for column in columns
    ]


def _breadth(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shortened(rows: Sequence[Sequence[Text]]) -> dict[str, str]:
    """Short names for the long ones of a table: those of its header, of its first column, and of its cells."""
    legend: dict[str, str] = {}
    groups = ([*rows[0][1:]], [row[0] for row in rows[1:]], [cell for row in rows[1:] for cell in row[1:]])
    for group in groups:
        names = [text for text in (cell.plain for cell in group) if _LONG_NAME.fullmatch(text) and text not in legend]
        for name, short in short_names(names).items():
            legend[name] = short if short not in legend.values() else name
    return {name: short for name, short in legend.items() if name != short}


def _replaced(cell: Text, legend: dict[str, str]) -> Text:
    if cell.plain not in legend:
        return cell
    return _text(Text(legend[cell.plain], cell.spans[0].style if cell.spans else cell.style))


def _blocks(least: Sequence[int], width: int) -> list[list[int]]:
    """The columns of each block: all in one if they fit, else as many as do beside the first."""
    if _breadth(least) <= width:
        return [list(range(len(least)))]
    blocks: list[list[int]] = []
    for column in range(1, len(least)):
        if not blocks or _breadth([least[index] for index in [*blocks[-1], column]]) > width:
            blocks.append([0])
        blocks[-1].append(column)
    return blocks or [[0]]


def _widths(rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """How wide each column is: as its longest line where there is room, the widest narrower if not."""
    natural = [
        max(cell_len(line) for cell in column for line in (cell.plain.split("\n")))
        for column in zip(*rows, strict=True)
    ]
    widths, least = [max(1, wide) for wide in natural], _least(rows, word=width)
    least = least if _breadth(least) <= width else _least(rows)
    while _breadth(widths) > width and any(wide > few for wide, few in zip(widths, least, strict=True)):
        widest = max((column for column, few in enumerate(least) if widths[column] > few), key=widths.__getitem__)
        widths[widest] -= 1
    while _breadth(widths) > width and max(widths) > 1:  # even two words are too long for one line
        widths[widths.index(max(widths))] -= 1
    return widths


def _block(rows: Sequence[Sequence[Text]], width: int, console: Console) -> Iterator[Segment]:
    """These rows, the first in bold. rich's own table is slow: it lays out each cell several times."""
    widths = _widths(rows, width)
    for number, row in enumerate(rows):
        cells = [_lines(cell, wide, console) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=Text(end="")):
            blanks = 0
            for text, wide in zip(parts, widths, strict=True):
                if text.plain:
                    yield Segment(" " * blanks)
                    yield from Segment.apply_style(text.render(console), None if number else Style(bold=True))
                    blanks = 0
                blanks += wide - text.cell_len + GAP
            yield Segment.line()


def _lines(cell: Text, width: int, console: Console) -> list[Text]:
    """A cell's lines of at most this width."""
    fits = cell_len(cell.plain) <= width and "\n" not in cell.plain and "\t" not in cell.plain
    lines = [cell] if fits else [*cell.wrap(console, width, overflow="fold")]
    for line in lines:
        line.end = ""
        line.rstrip()
    return lines
