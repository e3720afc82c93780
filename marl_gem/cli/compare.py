"""marl-gem compare: two runs side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from marl_gem.cli.fitted_table import FittedTable
from marl_gem.cli.terminal import out, plain
from marl_gem.errors import RecordError
from marl_gem.evaluation.comparison import Comparison, Difference, Flip, SubjectComparison, compare
from marl_gem.evaluation.estimates import Estimate
from marl_gem.evaluation.markup import money_text
from marl_gem.evaluation.seat_groups import MANY
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader

LISTED = 10
"""So many episodes that turned out otherwise are listed."""


def compare_runs(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A run's folder, or a JSONL file of episodes.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another.")],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Compare two runs, paired by task and seed: success, returns, tokens, cost, and what turned out otherwise.

    Evaluations, grids (combination by combination), tournaments (player by player) and training runs (their last
    measurement). An interval that does not hold 0 is a difference that chance rarely makes.
    """
    if as_json:
        out.out(msgspec.json.format(msgspec.json.encode(_compared(before, after))).decode(), highlight=False)
    else:
        show_comparison(before, after)


def _compared(before: Path, after: Path) -> dict[str, Comparison]:
    return {name: compare(*runs) for name, runs in _paired(before, after).items()}


def show_comparison(before: Path, after: Path) -> None:
    """Print two runs side by side."""
    for name, comparison in _compared(before, after).items():
        if name:
            out.print(plain(name, "bold"))
        _show(comparison, before / name, after / name)


def _paired(before: Path, after: Path) -> dict[str, tuple[RunReader, RunReader]]:
    """The runs of two paths: themselves under an empty name, or those below them that are called the same."""
    found: list[dict[str, RunReader]] = []
    for path in (before, after):
        library = RunLibrary(path)
        runs = {"" if run.path == library.root else name: library.open(name) for name, run in library.runs().items()}
        found.append({"": runs[""]} if "" in runs and runs[""].entries() else runs)
    first, second = found
    if len(first) == len(second) == 1:
        return {"": (next(iter(first.values())), next(iter(second.values())))}
    names = [name for name in sorted(first) if name in second]
    if not names:
        raise RecordError(f"{before} and {after} have no run of the same name; give the folders of two runs")
    return {name: (first[name], second[name]) for name in names}


def _show(comparison: Comparison, before: Path, after: Path) -> None:
    first, second = comparison.before, comparison.after
    table = FittedTable("", str(before), str(after), "difference")
    if len(comparison.subjects) > MANY:
        _add_by_measure(table, comparison.subjects)
    else:
        for subject in comparison.subjects:
            table.add_row(plain(subject.name, "bold"), "", "", plain(_paired_text(subject), "dim"))
            table.add_row("  success", *_cells(subject.success, share=True))
            table.add_row("  mean return", *_cells(subject.return_, share=False))
    table.add_row("episodes", f"{first.episodes:,}", f"{second.episodes:,}")
    table.add_row(
        "turns per episode", f"{first.turns:.1f}", f"{second.turns:.1f}", f"{second.turns - first.turns:+.1f}"
    )
    if first.tokens or second.tokens:
        table.add_row("tokens", f"{first.tokens:,}", f"{second.tokens:,}", f"{second.tokens - first.tokens:+,}")
        table.add_row("cost", money_text(first.cost), money_text(second.cost))
    out.print(table)
    for subject in comparison.subjects:
        _show_flips(subject.name, "only after", subject.gained, after)
        _show_flips(subject.name, "only before", subject.lost, after)


def _add_by_measure(table: FittedTable, subjects: Sequence[SubjectComparison]) -> None:
    """A row for each of many subjects: first their success, then their returns."""
    pairs = ", ".join(dict.fromkeys(map(_paired_text, subjects)))
    table.add_row(plain("success", "bold"), "", "", plain(pairs, "dim"))
    for subject in subjects:
        table.add_row(f"  {subject.name}", *_cells(subject.success, share=True))
    table.add_row(plain("mean return", "bold"))
    for subject in subjects:
        table.add_row(f"  {subject.name}", *_cells(subject.return_, share=False))


def _paired_text(subject: SubjectComparison) -> str:
    return f"{subject.pairs} pairs" if subject.pairs else "no pairs: other tasks or seeds"


def _cells(found: Difference, *, share: bool) -> tuple[str, str, str]:
    def text(value: Estimate | None) -> str:
        return "-" if value is None else f"{100 * value.mean:.1f}%" if share else f"{value.mean:.3f}"

    return text(found.before), text(found.after), _signed(found.difference, 100 if share else 1, 1 if share else 3)


def _signed(value: Estimate | None, scale: int, digits: int) -> str:
    """A difference, with its interval."""
    if value is None:
        return "-"
    mean = f"{scale * value.mean:+.{digits}f}"
    if value.low is None or value.high is None:
        return mean
    return f"{mean} ({scale * value.low:+.{digits}f} to {scale * value.high:+.{digits}f})"


def _show_flips(name: str, when: str, flips: Sequence[Flip], run: Path) -> None:
    if not flips:
        return
    ids = ", ".join(flip.id for flip in flips[:LISTED]) + (f" and {len(flips) - LISTED} more" if flips[LISTED:] else "")
    out.print(plain(f"{name} succeeds {when}: {ids}"), soft_wrap=True)
    out.print(
        plain(f"  marl-gem view {shlex.quote(str(run))} --text --episode {flips[0].after}", "dim"), soft_wrap=True
    )
