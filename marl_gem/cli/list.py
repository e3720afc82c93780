"""marl-gem list: what there is to play."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

import marl_gem.registry
from marl_gem.cli.terminal import out
from marl_gem.errors import MarlGemError


def list_scenarios(
    family: Annotated[
        str | None, typer.Argument(help="Only this family, as in ta; or one scenario, with who may sit in it.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that cannot work here, with the reason.")
    ] = False,
) -> None:
    """Show the scenarios that can be made, or what one of them offers to seat."""
    if family and ":" in family:
        _show(marl_gem.registry.get(family))
        return
    scenarios = marl_gem.registry.list(family)
    if not scenarios:
        raise MarlGemError(f"there is no family {family!r}; `marl-gem list` shows all scenarios")
    shown = [scenario for scenario in scenarios if everything or not scenario.unavailable]
    table = Table("scenario", "agents", "what it is", box=None, header_style="bold", pad_edge=False)
    for scenario in shown:
        low, high = scenario.agents
        note = f"[yellow]cannot work here:[/] {escape(scenario.unavailable)}" if scenario.unavailable else ""
        table.add_row(
            scenario.id, f"{low}" if low == high else f"{low} to {high}", note or escape(scenario.description)
        )
    out.print(table)
    if hidden := len(scenarios) - len(shown):
        out.print(f"[dim]{hidden} more cannot work on this machine; --all tells why.[/]")


def _show(scenario: marl_gem.registry.RegisteredScenario) -> None:
    """One scenario, and the policies and strategies that come with it."""
    out.print(f"[bold]{escape(scenario.id)}[/]: {escape(scenario.description)}")
    if scenario.unavailable:
        out.print(f"[yellow]cannot work here:[/] {escape(scenario.unavailable)}")
    table = Table("seat", "who", "what it is", box=None, header_style="bold", pad_edge=False)
    for name, script in sorted(marl_gem.registry.policies(scenario.id).items()):
        table.add_row("any", f"scripted:{name}", escape(script.description))
    for agent, offered in marl_gem.registry.strategies(scenario.id).items():
        for name, strategy in sorted(offered.items()):
            judge = "[,judge=MODEL]" if "judge" in strategy.needs else ""
            table.add_row(agent, escape(f"MODEL,strategy={name}{judge}"), escape(strategy.description))
    out.print(table if table.rows else "It has no policies and no strategies of its own.")
