"""marl-gem list: the scenarios, what one of them offers, and the wrappers."""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args

import typer

from marl_gem import bounds, registry
from marl_gem.cli.fitted_table import FittedTable
from marl_gem.cli.terminal import bounds_text, number, out
from marl_gem.errors import MarlGemError
from marl_gem.registry import RegisteredScenario
from marl_gem.types import TurnOrder


def list_scenarios(
    name: Annotated[
        str | None, typer.Argument(metavar="[FAMILY|SCENARIO]", help="One family, as in ta; or one scenario.")
    ] = None,
    agents: Annotated[int | None, number(bounds.AGENTS, help="Only scenarios for this number of agents.")] = None,
    turn_order: Annotated[
        str | None, typer.Option(help=f"Only scenarios with this turn order: {', '.join(get_args(TurnOrder))}.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also scenarios that cannot work here, with the reason.")
    ] = False,
    wrappers: Annotated[bool, typer.Option("--wrappers", help="The wrappers that --wrap takes, instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List the scenarios that work here, or show what one of them takes and offers."""
    if turn_order is not None and turn_order not in get_args(TurnOrder):
        raise MarlGemError(f"there is no turn order {turn_order!r}; choose one of {', '.join(get_args(TurnOrder))}")
    if wrappers:
        _list_wrappers(as_json)
    elif name and ":" in name:
        from marl_gem.cli.card import scenario_card, show_card  # plays the scenario, which takes more than a list

        scenario = registry.find(name)
        card = _row(scenario) | scenario_card(scenario)
        _write_json(card) if as_json else show_card(card)
    else:
        _list_family(name, agents, turn_order, everything, as_json)


def _list_family(
    family: str | None, agents: int | None, turn_order: str | None, everything: bool, as_json: bool
) -> None:
    known = registry.list(family)
    if not known:
        hint = f"name the class, as in {family}:Class" if str(family).endswith(".py") else "`marl-gem list` shows all"
        raise MarlGemError(f"there is no family {family!r}; {hint}")
    fitting = [
        scenario
        for scenario in known
        if (agents is None or scenario.agents[0] <= agents <= scenario.agents[1])
        and (turn_order is None or scenario.turn_order == turn_order)
    ]
    shown = [scenario for scenario in fitting if everything or not scenario.unavailable]
    if as_json:
        _write_json([_row(scenario) for scenario in shown])
        return
    table = FittedTable("scenario", "agents", "turns", "description")
    for scenario in shown:
        note = f"cannot work here: {scenario.unavailable}" if scenario.unavailable else scenario.description
        table.add_row(scenario.id, bounds_text(*scenario.agents), scenario.turn_order or "", note)
    out.print(table if shown else "No scenario fits.")
    if hidden := len(fitting) - len(shown):
        out.print(f"[dim]{hidden} more cannot work on this machine; --all gives the reasons.[/]")


def _list_wrappers(as_json: bool) -> None:
    known = registry.wrappers().values()
    if as_json:
        _write_json([{"name": w.name, "parameters": w.parameters, "description": w.description} for w in known])
        return
    table = FittedTable("wrapper", "parameters", "description")
    for wrapper in known:
        table.add_row(wrapper.name, ", ".join(wrapper.parameters), wrapper.description)
    out.print(table)


def _row(scenario: RegisteredScenario) -> dict[str, Any]:
    """What the registration says of a scenario, as plain data."""
    return {
        "id": scenario.id,
        "family": scenario.id.partition(":")[0],
        "agents": list(scenario.agents),
        "turn_order": scenario.turn_order,
        "description": scenario.description,
        "unavailable": scenario.unavailable,
    }


def _write_json(value: Any) -> None:
    out.out(json.dumps(value, indent=2), highlight=False)
