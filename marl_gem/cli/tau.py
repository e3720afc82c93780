"""marl-gem tau: the data of TAU-bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from marl_gem.cli.command import Command
from marl_gem.cli.terminal import out

app = typer.Typer(help="The data of TAU-bench.", no_args_is_help=True)


@app.callback()
def tau() -> None:
    """The data of TAU-bench."""


@app.command("import", cls=Command)
def import_data(
    checkout: Annotated[
        Path, typer.Argument(help="What `git clone https://github.com/sierra-research/tau-bench` made.")
    ],
    into: Annotated[Path | None, typer.Option(help="Where to write; by default where scenarios look for it.")] = None,
) -> None:
    """Read an official checkout, without running its code, so that tau:retail-v0 and tau:airline-v0 can be played."""
    from marl_gem.scenarios.tau import data_folder, official

    for domain, counts in official.import_checkout(checkout, into).items():
        out.print(f"{domain}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    target = into or data_folder.home()
    out.print(f"written to {escape(str(target))}", soft_wrap=True)
    if into is not None:
        out.print(f"set {data_folder.VARIABLE}={escape(str(into.absolute()))} to play with it", soft_wrap=True)
