"""Pieces of a report's page as Markdown: tables, numbers, and texts of others, in which no markup is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from marl_gem.evaluation.estimates import Estimate
from marl_gem.printable import printable, printable_line

NOTHING = "–"
"""What a cell without a value holds."""

_HARMLESS = re.compile(r"(?!.*(?:://|www\.|\b_|_\b|:[\w+-]+:))[\w .,:;()'\"%+/=?!–…-]*")
"""Texts in which no renderer finds markup, a link or an emoji. `player_0` is fine, `__init__` would be bold."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def quoted(text: str) -> str:
    """A text of others for a line of Markdown: as it is where nothing in it can be markup, otherwise as code.

    In code no renderer sees links, pictures, HTML, formulas or emoji. A "|" would still end a cell of a table, so it
    stands between two pieces of code.
    """
    flat = " ".join(printable_line(text).split())
    return flat if _HARMLESS.fullmatch(flat) else "&#124;".join(map(code, flat.split("|")))


def code(text: str) -> str:
    """One line as code: between more backticks than it has in a row."""
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.strip() and (text[0] in "` " or text[-1] in "` ") else ""  # spaces alone keep their number
    return f"{fence}{space}{text}{space}{fence}"


def block(text: str) -> str:
    """Lines as code."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{printable(text)}\n{fence}"


def shortened(text: str, length: int = 160) -> str:
    """A text of others in one line, without what is longer than `length`."""
    flat = " ".join(text.split())
    return quoted(flat if len(flat) <= length else flat[: length - 1] + "…")


def transposed(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A table with a column for each agent or player; rows in which nobody has anything are left out."""
    names = next(iter(columns.values()), {})
    rows = [[name, *(column[name] for column in columns.values())] for name in names]
    return table(["", *map(quoted, columns)], [row for row in rows if set(row[1:]) != {NOTHING}])


def by_row(agents: Mapping[str, Mapping[str, str]]) -> str:
    """A table with a row for each agent; columns in which nobody has anything are left out."""
    names = [name for name in next(iter(agents.values()), {}) if any(a[name] != NOTHING for a in agents.values())]
    rows = [[quoted(agent), *(values[name] for name in names)] for agent, values in agents.items()]
    return table(["agent", *names], rows)


def estimate_text(estimated: Estimate | None, share: bool) -> str:
    """A mean and its interval: a share in percent, anything else to three digits."""
    if estimated is None:
        return NOTHING
    mean, low, high = estimated.mean, estimated.low, estimated.high
    if share:
        return f"{100 * mean:.1f}%" + ("" if low is None or high is None else f" ({100 * low:.1f}–{100 * high:.1f})")
    return f"{mean:.3g}" + ("" if low is None or high is None else f" ({low:.3g} to {high:.3g})")


def money_text(cost: float | None) -> str:
    """US dollars, or that the price is unknown."""
    return "unknown" if cost is None else NOTHING if cost == 0 else f"${cost:,.2f}" if cost >= 1 else f"${cost:.2g}"


def number_text(value: float | None) -> str:
    """A number to one digit."""
    return NOTHING if value is None else f"{value:.1f}"
