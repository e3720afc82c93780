"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Undocumented(Exception):
    """Something that the reference lists has no description in the code."""


def escape(text: str) -> str:
    """`text` for a cell of a table: one line, nothing in it read as markup except code between backticks."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    for index in range(0, len(parts), 2):  # outside of backticks
        for character in "\\<>*_[]{}$":
            if character != "\\":
                parts[index] = parts[index].replace(character, f"\\{character}")
    return "`".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Its cells are Markdown already."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def code(text: str) -> str:
    """`text` in backticks, in a cell of a table too."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def toctree(names: Iterable[str]) -> str:
    return "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"
