"""marl-gem export: episodes for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from marl_gem.cli.terminal import err, out
from marl_gem.errors import MarlGemError
from marl_gem.runs.library import RunLibrary


class Format(StrEnum):
    chat = "chat"
    inspect = "inspect"


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or a JSONL file of episodes.")],
    to: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file to write: .jsonl for chat, .eval for inspect.")
    ],
    format: Annotated[
        Format, typer.Option(help="chat: a row of messages and tokens for each agent. inspect: a log of inspect_ai.")
    ] = Format.chat,
    agent: Annotated[str, typer.Option(help="Only this agent.")] = "",
    success: Annotated[
        bool, typer.Option("--success", "--won", help="Only agents that succeeded: won a contest, or solved a task.")
    ] = False,
    run: Annotated[str | None, typer.Option(help="Which run, if there are several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a run's finished episodes for other programs: to train on, or to look at with inspect."""
    library = RunLibrary(path)
    names = list(library.runs())
    if run is None and len(names) > 1:
        raise MarlGemError(f"there are several runs; choose one with --run: {', '.join(names)}")
    source = library.open(run if run is not None else names[0])
    if agent and agent not in (
        agents := {name for entry in source.entries() if entry.summary for name in entry.summary.returns}
    ):
        raise MarlGemError(f"there is no agent {agent!r} in {source.name}; its agents are {', '.join(sorted(agents))}")
    if format is Format.chat:
        from marl_gem.export.chat import write_chat

        written = write_chat(source, to, agent=agent, success=success, force=force)
        summary = f"{written.rows} rows of {written.episodes} episodes"
        if written.errors:
            err.print(f"[yellow]{written.errors} episodes were left out: they ended with an error[/]")
    else:
        from marl_gem.export.inspect_log import write_inspect

        summary = f"{write_inspect(source, to, agent=agent, success=success, force=force)} samples"
    if broken := sum(1 for entry in source.entries() if not entry.summary):
        err.print(f"[yellow]{broken} lines were left out: they are no episodes[/]")
    out.print(f"{escape(str(to))}: {summary}", soft_wrap=True)
