"""What the long rounds of `make chaos` give: a row for every property that was attacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One property under attack.

    Args:
        attack: what was done, as in "kill -9 during an evaluation".
        promise: what must hold, as in "every episode is in the journal exactly once".
        cases: how often it was tried.
        violations: a short text for each case in which the promise did not hold.
        seconds: wall time.
    """

    attack: str
    promise: str
    cases: int
    violations: Sequence[str] = ()
    seconds: float = 0.0


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table for the docs."""
    lines = ["| attack | promise | cases | violations | seconds |", "|---|---|---:|---:|---:|"]
    for row in rows:
        lines.append(f"| {row.attack} | {row.promise} | {row.cases:,} | {len(row.violations)} | {row.seconds:.0f} |")
    return "\n".join(lines) + "\n"
