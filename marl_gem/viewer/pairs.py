"""Two runs of a library side by side, as the page shows them; the numbers are those of `evaluation.comparison`."""

from __future__ import annotations

from typing import Any

import msgspec

from marl_gem.errors import RecordError
from marl_gem.evaluation.comparison import Comparison, compare
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader

MOST_FLIPS = 500
"""So many episodes that turned out otherwise are sent, of each agent and each direction."""

MOST_PARTS = 100
"""The most matches of two grids that are compared."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs that were compared, or why they cannot be.

    `name` is the match's in a grid, else empty. `before` and `after` are the names of the runs. `left_out` counts the
    episodes that turned out otherwise and are not listed.
    """

    name: str
    before: str
    after: str
    comparison: Comparison | None = None
    problem: str = ""
    left_out: int = 0


def pairs(library: RunLibrary, before: str, after: str) -> list[Part]:
    """Compare two runs; of two grids, the matches with the same folder.

    Raises:
        RecordError: there is no such run, or the grids have no match in common.
    """
    first, second = (_matches(library, library.open(name)) for name in (before, after))
    if {""} in (set(first), set(second)) and set(first) != set(second):
        raise RecordError(f"one of {before} and {after} is a grid, and the other is not; compare one of its matches")
    names = [name for name in first if name in second]
    if not names:
        raise RecordError(f"{before} and {after} have no match in common")
    return [_part(name, library.open(first[name]), library.open(second[name])) for name in names[:MOST_PARTS]]


def _matches(library: RunLibrary, run: RunReader) -> dict[str, str]:
    """The names of a grid's matches by their folders, or that of the run itself."""
    if run.config.get("kind") != "grid":
        return {"": run.name}
    inside = {other.path.name: other.name for other in library.runs().values() if other.path.parent == run.path}
    return dict(sorted(inside.items()))


def _part(name: str, before: RunReader, after: RunReader) -> Part:
    runs: dict[str, Any] = {"name": name, "before": before.name, "after": after.name}
    try:
        compared = compare(before, after)
    except RecordError as error:
        return Part(**runs, problem=str(error))
    shortened = [
        msgspec.structs.replace(subject, gained=subject.gained[:MOST_FLIPS], lost=subject.lost[:MOST_FLIPS])
        for subject in compared.subjects
    ]
    left_out = sum(len(subject.gained[MOST_FLIPS:]) + len(subject.lost[MOST_FLIPS:]) for subject in compared.subjects)
    return Part(**runs, comparison=msgspec.structs.replace(compared, subjects=tuple(shortened)), left_out=left_out)
