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
    family: Annotated[str | None, typer.Argument(help="Only this family, for instance ta.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that cannot work here, with the reason.")
    ] = False,
) -> None:
    """Show the scenarios that can be made."""
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
