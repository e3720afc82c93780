"""marl-gem: one file a command.

Every command does its work through the library; these files read options and show results.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

import typer

from marl_gem.cli import exit_codes
from marl_gem.cli.check import check, playthrough
from marl_gem.cli.command import Command
from marl_gem.cli.evaluate import evaluate, tournament
from marl_gem.cli.export import export
from marl_gem.cli.interrupts import interrupts
from marl_gem.cli.list import list_scenarios
from marl_gem.cli.play import play
from marl_gem.cli.tau import app as tau
from marl_gem.cli.terminal import print_safely
from marl_gem.cli.train import train
from marl_gem.cli.view import view

app = typer.Typer(
    help="A multi-agent gym for language-model agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_scenarios,
    "play": play,
    "train": train,
    "eval": evaluate,
    "tournament": tournament,
    "view": view,
    "export": export,
    "check": check,
    "playthrough": playthrough,
}
for _name, _function in _COMMANDS.items():
    app.command(_name, cls=Command)(_function)
app.add_typer(tau, name="tau")


def main() -> None:
    """The entry point. Errors that marl_gem raises on purpose, and files that cannot be used, are shown in one line."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' bars would break ours
    gc.set_threshold(50_000)  # by default a third of the time goes into it where thousands of episodes are live
    print_safely()
    sys.exit(exit_codes.run(_run_app))


def _run_app() -> None:
    with interrupts():
        app()
