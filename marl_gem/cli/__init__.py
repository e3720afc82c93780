"""marl-gem: one file a command.

Every command does its work through the library; these files read options and show results.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import marl_gem
from marl_gem.cli import exit_codes
from marl_gem.cli.check import check, playthrough
from marl_gem.cli.command import Command
from marl_gem.cli.compare import compare_runs
from marl_gem.cli.evaluate import evaluate, tournament
from marl_gem.cli.examples import WHO, examples
from marl_gem.cli.export import export
from marl_gem.cli.interrupts import interrupts
from marl_gem.cli.list import list_scenarios
from marl_gem.cli.new import new
from marl_gem.cli.play import play
from marl_gem.cli.regrade import regrade_run
from marl_gem.cli.tau import app as tau
from marl_gem.cli.terminal import out, print_safely
from marl_gem.cli.train import train
from marl_gem.cli.view import view


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"marl_gem {marl_gem.__version__}")
        raise typer.Exit


app = typer.Typer(
    help="A multi-agent gym for language-model agents.",
    epilog=WHO,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Play and measure": (play, evaluate, tournament),
    "Train": (train,),
    "Look at runs": (view, compare_runs, regrade_run, export),
    "Scenarios": (list_scenarios, new, check, playthrough),
}
_NAMES = {compare_runs: "compare", evaluate: "eval", list_scenarios: "list", regrade_run: "regrade"}
for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        _name = _NAMES.get(_function, _function.__name__)
        app.command(_name, cls=Command, rich_help_panel=_panel, epilog=examples(_name))(_function)
app.add_typer(tau, name="tau", rich_help_panel="Scenarios")


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
