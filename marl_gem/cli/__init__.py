"""marl-gem: one file a command.

Every command does its work through the library; these files read options and show results.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated

import typer

import marl_gem
from marl_gem.cli import exit_codes
from marl_gem.cli.examples import WHO
from marl_gem.cli.group import Group
from marl_gem.cli.interrupts import interrupts
from marl_gem.cli.terminal import out, print_safely


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"marl_gem {marl_gem.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Group,
    help="A multi-agent gym for language-model agents.",
    epilog=WHO,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point. Errors that marl_gem raises on purpose, and files that cannot be used, are shown in one line."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' bars would break ours
    gc.set_threshold(50_000)  # by default a third of the time goes into it where thousands of episodes are live
    print_safely()
    sys.exit(exit_codes.run(_run_app))


def _run_app() -> None:
    with interrupts():
        app()
