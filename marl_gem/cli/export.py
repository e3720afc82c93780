"""marl-gem export: episodes for other programs."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from marl_gem.cli.terminal import err, out
from marl_gem.errors import MarlGemError
from marl_gem.evaluation.task_choice import read_tasks
from marl_gem.export.selection import Selection, grades_of
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader


class Format(StrEnum):
    chat = "chat"
    inspect = "inspect"


def export(
    path: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's folder, also that of a grid, or a JSONL file of episodes.")
    ],
    to: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="The file to write: .jsonl or .parquet for chat, .eval for inspect."
        ),
    ],
    format: Annotated[
        Format,
        typer.Option(help="chat: a row of messages and tokens for each agent. inspect: a log of inspect_ai."),
    ] = Format.chat,
    agents: Annotated[
        list[str] | None, typer.Option("--agent", help="Only this agent, or a pattern. May be repeated.")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Only what this model played, or a pattern. May be repeated.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="3,7-9", help="Only these tasks, by their numbers from 0.")
    ] = None,
    grades: Annotated[
        list[str] | None, typer.Option("--grade", help="Only tasks of this grade. May be repeated.")
    ] = None,
    success: Annotated[
        bool, typer.Option("--success", "--won", help="Only agents that succeeded: won a contest, or solved a task.")
    ] = False,
    native_calls: Annotated[
        bool, typer.Option("--native-calls", help="Of chat: calls of tools apart from the text, in tool_calls.")
    ] = False,
    run: Annotated[str | None, typer.Option(help="Which run, if there are several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a run's finished episodes for other programs: to train on, or to look at with inspect.

    Of a grid all combinations are written.
    """
    runs = _runs(path, run)
    selection = Selection(
        tuple(agents or ()), tuple(models or ()), read_tasks(tasks) if tasks else (), tuple(grades or ()), success
    )
    _check(runs, selection)
    if format is Format.chat:
        from marl_gem.export.chat import write_chat

        written = write_chat(runs, to, selection, native_calls=native_calls, force=force)
        summary = f"{written.rows} rows of {written.episodes} episodes"
        if written.errors:
            err.print(f"[yellow]{written.errors} episodes were left out: they ended with an error[/]")
    else:
        from marl_gem.export.inspect_log import write_inspect

        summary = f"{write_inspect(runs, to, selection, force=force)} samples"
    if broken := sum(1 for source in runs for entry in source.entries() if not entry.summary):
        err.print(f"[yellow]{broken} lines were left out: they are no episodes[/]")
    out.print(f"{escape(str(to))}: {summary}", soft_wrap=True)


def _runs(path: Path, name: str | None) -> list[RunReader]:
    """The runs to export: the only run, that of this name, or the combinations of a grid.

    Raises:
        MarlGemError: there are several runs that are no grid.
    """
    library = RunLibrary(path)
    names = list(library.runs())
    if name is not None:
        return [library.open(name)]
    if len(names) > 1 and RunReader(path).config.get("kind") != "grid":
        raise MarlGemError(f"there are several runs; choose one with --run: {', '.join(names)}")
    return [library.open(found) for found in sorted(names)]


def _check(runs: list[RunReader], selection: Selection) -> None:
    """Refuse what fits nothing in the runs, which is a typing error.

    Raises:
        MarlGemError: there is no such agent, model or grade; the message names those that there are.
    """
    summaries = [entry.summary for run in runs for entry in run.entries() if entry.summary]
    known = {
        "agent": (selection.agents, {name for summary in summaries for name in summary.returns}),
        "model": (selection.models, {name for summary in summaries for name in summary.models.values()}),
        "grade": (selection.grades, {grade for run in runs for grade in grades_of(run).values()}),
    }
    for kind, (patterns, names) in known.items():
        for pattern in patterns:
            if not any(pattern == name or fnmatchcase(name, pattern) for name in names):
                where = ", ".join(run.name for run in runs)
                there = f"its {kind}s are {', '.join(sorted(names))}" if names else f"its report has no {kind}s"
                raise MarlGemError(f"there is no {kind} {pattern!r} in {where}; {there}")
