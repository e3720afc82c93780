"""Text coloured for a terminal as plain text, with marks where only a colour carried the information."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPE = re.compile(
    r"\x1b(?:\[(?P<codes>[0-9;:]*)m"  # colours and styles (SGR)
    r"|\[[0-?]*[ -/]*[@-~]"  # every other control sequence, such as cursor movements
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|[ -/]*[0-~])"
)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class _Style(NamedTuple):
    """The colours of a piece of text; "" is the terminal's default."""

    text: str = ""
    background: str = ""
    reversed: bool = False

    def __str__(self) -> str:
        words = [f"in {self.text}"] * bool(self.text) + [f"on {self.background}"] * bool(self.background)
        return " ".join(words) if words else "reversed"


def plain_text(text: str) -> str:
    """Remove all escape sequences; mark the text whose colour stood out.

    Text on a coloured background becomes `[text]`, text in another colour `(text)`. A last line names the colour
    of every mark: "Marks: [F] on red, (G) in blue". Text without colours stays as it is.
    """
    marked: list[str] = []
    marks: dict[str, None] = {}  # in the order in which they appear
    for piece, style in _pieces(text):
        for line in piece.splitlines(keepends=True):
            content = line.rstrip("\r\n")
            highlighted = bool(style.background or style.reversed)
            if not content or not (highlighted or (style.text and content.strip())):
                marked.append(line)
                continue
            mark = f"[{content}]" if highlighted else f"({content})"
            marked.append(mark + line[len(content) :])
            marks[f"{mark} {style}"] = None
    plain = "".join(marked)
    return plain.rstrip("\n") + f"\nMarks: {', '.join(marks)}" if marks else plain


def _pieces(text: str) -> Iterator[tuple[str, _Style]]:
    """The text between the escape sequences, each piece of one style as a whole."""
    piece, style, start = "", _Style(), 0
    for escape in _ESCAPE.finditer(text):
        piece, start = piece + text[start : escape.start()], escape.end()
        changed = style if escape["codes"] is None else _applied(style, escape["codes"])
        if changed != style:
            yield piece, style
            piece, style = "", changed
    yield piece + text[start:], style


def _applied(style: _Style, codes: str) -> _Style:
    """The style after an SGR sequence. Bold, underlined and the like are ignored."""
    numbers = [int(code or 0) for code in re.split("[;:]", codes)]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            style = _Style()
        elif code in (7, 27):
            style = style._replace(reversed=code == 7)
        elif code in (38, 48):
            colour = _extended(numbers)
            style = style._replace(text=colour) if code == 38 else style._replace(background=colour)
        elif code in (39, 49):
            style = style._replace(text="") if code == 39 else style._replace(background="")
        elif code in range(30, 38) or code in range(90, 98):
            style = style._replace(text=_name(code))
        elif code in range(40, 48) or code in range(100, 108):
            style = style._replace(background=_name(code - 10))
    return style


def _name(code: int) -> str:
    return ("bright " if code >= 90 else "") + _COLOURS[code % 10]


def _extended(numbers: list[int]) -> str:
    """A colour of 256 (5;N) or of 24 bits (2;R;G;B). Its numbers are removed from the list."""
    kind = numbers.pop(0) if numbers else 0
    values = [numbers.pop(0) for _ in range(min(len(numbers), {5: 1, 2: 3}.get(kind, 0)))]
    return "#" + "".join(f"{value:02x}" for value in values) if kind == 2 else f"colour {' '.join(map(str, values))}"
