"""The commands by name. A command's file is imported when it is asked for: help and completion of names stay fast."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from marl_gem.cli.command import Command
from marl_gem.cli.examples import examples


class _Listed(NamedTuple):
    """A command in the list of all: what it does in a line, and where its function is."""

    panel: str
    where: str
    summary: str


_PLAY, _TRAIN, _RUNS, _SCENARIOS = "Play and measure", "Train", "Look at runs", "Scenarios"
COMMANDS = {
    "play": _Listed(_PLAY, "play:play", "Play: you against a trained policy, or policies against each other."),
    "eval": _Listed(
        _PLAY, "evaluate:evaluate", "Evaluate policies: success, returns, tokens and cost, with intervals."
    ),
    "tournament": _Listed(
        _PLAY, "evaluate:tournament", "Let players meet, each in every seat equally often, and rate them."
    ),
    "mcp": _Listed(_PLAY, "mcp:serve", "Offer a seat of a scenario as an MCP server."),
    "train": _Listed(_TRAIN, "train:train", "Train by self-play or co-evolution."),
    "view": _Listed(_RUNS, "view:view", "Look at runs and episodes, in the browser or in the terminal."),
    "compare": _Listed(_RUNS, "compare:compare_runs", "Compare two runs, paired by task and seed."),
    "regrade": _Listed(_RUNS, "regrade:regrade_run", "Score recorded episodes again, and say what changed."),
    "export": _Listed(_RUNS, "export:export", "Write a run's finished episodes for other programs."),
    "list": _Listed(_SCENARIOS, "list:list_scenarios", "List the scenarios that work here, or show one of them."),
    "new": _Listed(_SCENARIOS, "new:new", "Write a scenario to start from: its code, its test and a page of help."),
    "check": _Listed(_SCENARIOS, "check:check", "Test a scenario against the contract's promises, by playing it."),
    "playthrough": _Listed(_SCENARIOS, "check:playthrough", "Play a scenario at random and write the episode down."),
    "tau": _Listed(_SCENARIOS, "tau:app", "The data of TAU-bench."),
}


class Group(TyperGroup):
    """All commands; pass it as `cls` to the app."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands()
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._listing and cmd_name in COMMANDS:
            listed = COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=listed.summary, rich_help_panel=listed.panel)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the summaries of the commands."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


class _Commands(dict[str, Any]):
    """The commands, each imported when it is read."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = _load(name, COMMANDS[name])
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - dict.get does not call __getitem__

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


def _load(name: str, listed: _Listed) -> Any:
    module, _, attribute = listed.where.partition(":")
    found = getattr(importlib.import_module(f"marl_gem.cli.{module}"), attribute)
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, context_settings=_HELP)
    if isinstance(found, typer.Typer):
        found.info.context_settings = _HELP
        return typer.main.get_group(found)
    app.command(name, cls=Command, epilog=examples(name), context_settings=_HELP)(found)
    return typer.main.get_command(app)


_HELP = {"help_option_names": ["-h", "--help"]}
