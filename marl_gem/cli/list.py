"""marl-gem list: the scenarios, what one of them offers, and the wrappers."""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape
from rich.table import Column, Table

from marl_gem import bounds, registry
from marl_gem.cli.terminal import number, out
from marl_gem.errors import MarlGemError
from marl_gem.overrides import write_value
from marl_gem.registry import RegisteredScenario
from marl_gem.specs import ScenarioSpec
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
        card = _card(registry.find(name))
        _write_json(card) if as_json else _show_card(card)
    else:
        _list_family(name, agents, turn_order, everything, as_json)


def _list_family(
    family: str | None, agents: int | None, turn_order: str | None, everything: bool, as_json: bool
) -> None:
    known = registry.list(family)
    if not known:
        raise MarlGemError(f"there is no family {family!r}; `marl-gem list` shows all scenarios")
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
    table = _table("scenario", "agents", "turns", "description")
    for scenario in shown:
        note = f"[yellow]cannot work here:[/] {escape(scenario.unavailable)}" if scenario.unavailable else ""
        table.add_row(
            scenario.id, _bounds(*scenario.agents), scenario.turn_order or "", note or escape(scenario.description)
        )
    out.print(table if shown else "No scenario fits.")
    if hidden := len(fitting) - len(shown):
        out.print(f"[dim]{hidden} more cannot work on this machine; --all gives the reasons.[/]")


def _list_wrappers(as_json: bool) -> None:
    known = registry.wrappers().values()
    if as_json:
        _write_json([{"name": w.name, "parameters": w.parameters, "description": w.description} for w in known])
        return
    table = _table("wrapper", "parameters", "description")
    for wrapper in known:
        table.add_row(wrapper.name, ", ".join(wrapper.parameters), escape(wrapper.description))
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


def _card(scenario: RegisteredScenario) -> dict[str, Any]:
    """All that is known of one scenario, as plain data; `info` is None where no env can be made without options."""
    id = scenario.id
    card = _row(scenario) | {"options": {}, "option_meanings": {}, "info": None}
    if not scenario.unavailable:
        card["options"] = {name: _plain(value) for name, value in registry.options(id).items()}
        meanings = registry.option_meanings(id)
        card["option_meanings"] = {name: meanings[name] for name in card["options"] if name in meanings}
        try:
            info = ScenarioSpec(id).inspect()
        except MarlGemError:
            pass  # it needs options
        else:
            reward_range = info.metadata.reward_range
            card["turn_order"] = info.metadata.turn_order
            card["info"] = {
                "agents": list(info.agents),
                "joins": info.joins,
                "tasks": info.tasks,
                "zero_sum": info.metadata.zero_sum,
                "reward_range": reward_range and list(reward_range),
                "trivial_baselines": list(info.trivial_baselines),
            }
    analysis = registry.analysis(id)
    return card | {
        "policies": {name: policy.description for name, policy in sorted(registry.policies(id).items())},
        "strategies": {
            agent: {
                name: {"description": offered.description, "judge": "judge" in offered.needs}
                for name, offered in sorted(strategies.items())
            }
            for agent, strategies in registry.strategies(id).items()
        },
        "analysis": analysis.description if analysis else None,
    }


def _show_card(card: dict[str, Any]) -> None:
    out.print(f"[bold]{escape(card['id'])}[/] {escape(card['description'])}".rstrip())
    if card["unavailable"]:
        out.print(f"[yellow]cannot work here:[/] {escape(card['unavailable'])}")
    for name, value in _facts(card).items():
        out.print(f"  {name}: {escape(value)}", soft_wrap=True)
    if card["option_meanings"]:
        options = _table("option", "meaning")
        for name, meaning in card["option_meanings"].items():
            options.add_row(name, escape(meaning))
        out.print(options)
    table = _table("agent", "policy", "description")
    for name, description in card["policies"].items():
        table.add_row("any", f"scripted:{name}", escape(description))
    for agent, strategies in card["strategies"].items():
        for name, strategy in strategies.items():
            judge = "[,judge=MODEL]" if strategy["judge"] else ""
            table.add_row(agent, escape(f"MODEL,strategy={name}{judge}"), escape(strategy["description"]))
    out.print(table if table.rows else "It has no policies and no strategies of its own.")


def _facts(card: dict[str, Any]) -> dict[str, str]:
    """The lines of a scenario's card, by name; what is not known is left out."""
    info = card["info"] or {}
    zero_sum, rewards = info.get("zero_sum"), info.get("reward_range")
    options = [name if value == "..." else f"{name}={write_value(value)}" for name, value in card["options"].items()]
    lines = {
        "agents": ", ".join(info.get("agents", [])) or _bounds(*card["agents"]),
        "turn order": card["turn_order"] or "",
        "zero-sum": "" if zero_sum is None else "yes" if zero_sum else "no",
        "rewards": f"from {rewards[0]:g} to {rewards[1]:g}" if rewards else "",
        "tasks": str(info.get("tasks") or ""),
        "options (-o)": ", ".join([*options, "max_steps"]) if not card["unavailable"] else "",
        "trivial baselines": ", ".join(info.get("trivial_baselines", [])),
        "exact analysis": card["analysis"] or "",
    }
    return {name: value for name, value in lines.items() if value}


def _plain(value: Any) -> Any:
    """An option's default as plain data: a text where it is none, "..." where there is none."""
    if value is ...:
        return "..."
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _bounds(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _table(*columns: str) -> Table:
    headers = (Column(column, overflow="fold") for column in columns)
    return Table(*headers, box=None, header_style="bold", pad_edge=False)


def _write_json(value: Any) -> None:
    out.out(json.dumps(value, indent=2), highlight=False)
