"""marl-gem regrade: the recorded episodes of a run, scored again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from marl_gem import bounds
from marl_gem.cli.compare import show_comparison
from marl_gem.cli.exit_codes import ExitCode
from marl_gem.cli.interrupts import stop_on_interrupt
from marl_gem.cli.terminal import err, number, out, plain
from marl_gem.evaluation.regrade import Regraded, regrade
from marl_gem.evaluation.rescored import Change, Changes
from marl_gem.runs.folder import fresh_folder
from marl_gem.runs.outcomes import Outcome

LISTED = 10
"""So many episodes of a kind are listed."""


def regrade_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of an evaluation, a grid or a tournament.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="The new run's folder; by default a fresh one beside RUN.")
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="Score by this function of an episode and an agent: module:name or path/to/file.py:name. "
            "By default the scenario scores, as it is now.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    concurrency: Annotated[int, number(bounds.CONCURRENCY, help="How many episodes are scored at once.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Write what changed as JSON.")] = False,
) -> None:
    """Score the recorded episodes of a run again, after a fix in its scenario or with another rubric.

    The recorded actions go through the scenario as it is now. Where an agent would observe something else than in the
    record, the episode cannot be scored so, and is left out with the reason. RUN is not changed. No model is asked,
    except by rewards that ask one.
    """
    target = folder or fresh_folder(run.parent, f"{Path(os.path.realpath(run)).name}-regraded")
    again = f"marl-gem regrade {run} --out {target} --resume" + (f" --reward {reward}" if reward else "")
    with stop_on_interrupt("the episodes that are live", again) as stop:
        regraded = regrade(run, target, reward=reward, resume=resume, concurrency=concurrency, stop=lambda: bool(stop))
    if as_json:
        out.out(msgspec.json.format(msgspec.json.encode(regraded.changes)).decode(), highlight=False)
    else:
        _show(regraded, run, target)
    _warn(regraded, again)
    changes = regraded.changes
    if changes.scored < changes.recorded:
        sys.exit(ExitCode.INTERRUPTED if regraded.result.stopped == "interrupted" else ExitCode.FAILED)


def _show(regraded: Regraded, run: Path, target: Path) -> None:
    changes = regraded.changes
    same = changes.scored - changes.episodes
    text = f"{changes.scored} of {changes.recorded} recorded episodes are scored again in {target}: "
    out.print(plain(f"{text}{same} as before, {changes.episodes} otherwise."), soft_wrap=True)
    _show_changed(changes)
    if changes.scored:
        show_comparison(run, target)


def _show_changed(changes: Changes) -> None:
    for change in changes.changed[:LISTED]:
        out.print(plain(f"  {change.episode} {change.agent}: {_change_text(change)}"), soft_wrap=True)
    if more := len(changes.changed) - LISTED:
        out.print(f"  and {more} more; --json lists all" if more > 0 else "", end="\n" if more > 0 else "")


def _change_text(change: Change) -> str:
    before, after = change.before, change.after
    if before is None or after is None:
        return f"{_outcome_text(before)}, now {_outcome_text(after)}"
    parts = [f"{before.label}, now {after.label}"] if before.label != after.label else []
    parts += [f"return {before.return_:g}, now {after.return_:g}"] if before.return_ != after.return_ else []
    parts += [f"illegal actions {before.illegal}, now {after.illegal}"] if before.illegal != after.illegal else []
    if before.reason != after.reason:
        parts.append(f"reason {before.reason or 'none'}, now {after.reason or 'none'}")
    return "; ".join(parts)


def _outcome_text(outcome: Outcome | None) -> str:
    return "not in it" if outcome is None else f"{outcome.label} ({outcome.return_:g})"


def _warn(regraded: Regraded, again: str) -> None:
    """What could not be scored, and what differs beside the scores."""
    changes = regraded.changes
    kinds = {
        "cannot be scored so: an agent observes something else than in the record": changes.diverged,
        "failed": changes.failed,
    }
    for what, episodes in kinds.items():
        if episodes:
            err.print(f"[yellow]{len(episodes)} episodes {what}:[/]")
        for id, message in list(episodes.items())[:LISTED]:
            err.print(plain(f"  {id}: {message}"), soft_wrap=True)
    if changes.shorter:
        err.print(f"[yellow]{len(changes.shorter)} episodes end after fewer turns than recorded[/]")
    if regraded.other_roles:
        err.print(
            f"[yellow]in {regraded.other_roles} episodes the agents' instructions or tools are others now; they are "
            "scored as they were played[/]"
        )
    if regraded.unreadable:
        err.print(f"[yellow]{regraded.unreadable} recorded lines were left out: they are no episodes of this run[/]")
    unplayed = regraded.result.pending - (changes.recorded - changes.scored)
    if unplayed:
        err.print(f"{unplayed} episodes have not been played to their end. When they are, score them too:")
    elif changes.failed or regraded.result.stopped:
        err.print("Continue with:")
    if unplayed or changes.failed or regraded.result.stopped:
        err.print(plain(f"  {again}"), soft_wrap=True)
