"""Texts of others, written into Markdown so that nothing in them is markup."""

from __future__ import annotations

import re

from marl_gem.printable import printable, printable_line

_HARMLESS = re.compile(r"(?!.*(?:://|www\.|\b_|_\b|:[\w+-]+:))[\w .,:;()'\"%+/=?!–…-]*")
"""Texts in which no renderer finds markup, a link or an emoji. `player_0` is fine, `__init__` would be bold."""


def quoted(text: str) -> str:
    """A text of others for a line of Markdown: as it is where nothing in it can be markup, otherwise as code.

    In code no renderer sees links, pictures, HTML, formulas or emoji. A "|" would still end a cell of a table, so it
    stands between two pieces of code.
    """
    flat = " ".join(printable_line(text).split())
    return flat if _HARMLESS.fullmatch(flat) else "&#124;".join(map(_code, flat.split("|")))


def _code(text: str) -> str:
    """One line as code: between more backticks than it has in a row."""
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}"


def block(text: str) -> str:
    """Lines as code."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{printable(text)}\n{fence}"
