"""The card of one scenario: what it takes and offers, how a turn in it looks, and commands to copy."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from typing import Any

from rich.markup import escape
from rich.text import Text

from marl_gem import registry
from marl_gem.cli.fitted_table import FittedTable
from marl_gem.cli.terminal import bounds_text, out, plain
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import MarlGemError
from marl_gem.faults import FAULTS, close_env
from marl_gem.overrides import write_value
from marl_gem.policies import Policy, RandomPolicy
from marl_gem.registry import RegisteredScenario
from marl_gem.specs import ScenarioInfo, ScenarioSpec
from marl_gem.types import Role
from marl_gem.views import as_text

SHORT = 300
"""So many characters of a prompt or an observation are shown."""

ROLES = 4
"""The roles of so many agents are shown; agents with the same role count once."""

PREFERRED = ("expert", "oracle", "optimal", "rule")
"""The scripted policies that play the sample turn, if there is one of them; otherwise it is random play."""


def scenario_card(scenario: RegisteredScenario) -> dict[str, Any]:
    """All that is known of one scenario, as plain data; `info` is None where no env can be made without options."""
    id = scenario.id
    card: dict[str, Any] = {"options": {}, "option_types": {}, "option_meanings": {}, "info": None, "sample": None}
    if not scenario.unavailable:
        card["options"] = {name: _plain(value) for name, value in registry.options(id).items()}
        card["option_types"] = registry.option_types(id)
        meanings = registry.option_meanings(id)
        card["option_meanings"] = {name: meanings[name] for name in card["options"] if name in meanings}
        try:
            info = ScenarioSpec(id).inspect()
            env = ScenarioSpec(id).make()
        except MarlGemError:
            pass  # it needs options
        else:
            card["turn_order"] = info.metadata.turn_order
            card["info"] = _info(info)
            try:
                card["sample"] = _sample(env, id)
            except FAULTS:
                pass  # `marl-gem check` says what is wrong with it
            finally:
                close_env(env)
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
        "commands": _commands(id, card["info"]),
    }


def show_card(card: dict[str, Any]) -> None:
    """Print a card, the facts of its scenario included."""
    out.print(Text.assemble(plain(card["id"], "bold"), plain(f" {card['description']}")))
    if card["unavailable"]:
        out.print(f"[yellow]cannot work here:[/] {escape(card['unavailable'])}")
    for name, value in _facts(card).items():
        out.print(f"  {name}: {escape(value)}", soft_wrap=True)
    if card["options"]:
        _show_options(card)
    if card["sample"]:
        _show_sample(card["sample"])
    _show_offers(card)
    out.print(Text("commands", "bold"))
    for command in card["commands"]:
        out.print(plain(f"  {command}"), soft_wrap=True)


def _info(info: ScenarioInfo) -> dict[str, Any]:
    rewards = info.metadata.reward_range
    return {
        "agents": list(info.agents),
        "joins": info.joins,
        "tasks": info.tasks,
        "grades": dict(Counter(info.grades)),
        "zero_sum": info.metadata.zero_sum,
        "reward_range": rewards and list(rewards),
        "trivial_baselines": list(info.trivial_baselines),
    }


def _sample(env: MultiAgentEnv, id: str) -> dict[str, Any]:
    """The roles, and the first turn of the episode with seed 0, as plain data."""
    observations, infos = env.reset(seed=0)
    roles: list[tuple[Role, list[str]]] = []
    for agent in env.agents:
        role = env.role(agent)
        same = next((agents for known, agents in roles if known == role), None)
        if same is None:
            roles.append((role, [agent]))
        else:
            same.append(agent)
    name = next((name for name in PREFERRED if name in registry.policies(id)), "")
    policy: Policy = registry.make_policy(id, name) if name else RandomPolicy()
    agent, observation = next(iter(observations.items()))
    response = asyncio.run(policy.agent(agent, env.role(agent), 0).act(observation, infos.get(agent, {})))
    return {
        "roles": [
            {
                "agents": agents,
                "instructions": role.instructions,
                "tools": {tool.name: tool.description for tool in role.tools},
            }
            for role, agents in roles
        ],
        "agent": agent,
        "observation": as_text(observation),
        "policy": policy.name,
        "response": response.text,
    }


def _commands(id: str, info: dict[str, Any] | None) -> list[str]:
    seat = next(iter(info["agents"]), "") if info else ""
    where = shlex.quote(id)
    return [
        f"marl-gem play {where}" + (f" --seat {shlex.quote(seat)}=human" if seat else ""),
        f"marl-gem eval {where} --seat '*=MODEL@http://127.0.0.1:8000/v1' -n 50",
        f"marl-gem train {where} --updates 50",
    ]


def _facts(card: dict[str, Any]) -> dict[str, str]:
    """The lines of a scenario's card, by name; what is not known is left out."""
    info = card["info"] or {}
    zero_sum, rewards, grades = info.get("zero_sum"), info.get("reward_range"), info.get("grades", {})
    agents = info.get("agents", [])
    named = [*agents[:8], *([f"... {agents[-1]} ({len(agents)})"] if len(agents) > 8 else [])]
    tasks = str(info.get("tasks") or "")
    counts = ", ".join(f"{grade} {count}" for grade, count in grades.items())
    lines = {
        "agents": ", ".join(named) or bounds_text(*card["agents"]),
        "turn order": card["turn_order"] or "",
        "zero-sum": "" if zero_sum is None else "yes" if zero_sum else "no",
        "rewards": f"from {rewards[0]:g} to {rewards[1]:g}" if rewards else "",
        "tasks": f"{tasks}, by grade: {counts}" if counts else tasks,
        "trivial baselines": ", ".join(info.get("trivial_baselines", [])),
        "exact analysis": card["analysis"] or "",
    }
    return {name: value for name, value in lines.items() if value}


def _show_options(card: dict[str, Any]) -> None:
    table = FittedTable("option (-o)", "type", "default", "meaning")
    for name, default in card["options"].items():
        value = "needed" if default == "..." else write_value(default)
        table.add_row(name, card["option_types"].get(name, ""), value, card["option_meanings"].get(name, ""))
    table.add_row("max_steps", "int", "", "after so many steps whoever is left is truncated")
    out.print(table)


def _show_sample(sample: dict[str, Any]) -> None:
    for role in sample["roles"][:ROLES]:
        agents = role["agents"]
        who = ", ".join(agents[:ROLES]) + (f" and {len(agents) - ROLES} others" if len(agents) > ROLES else "")
        if role["instructions"] or role["tools"]:
            out.print(Text.assemble(plain(f"role of {who}: ", "bold"), plain(_short(role["instructions"]))))
        for name, description in role["tools"].items():
            out.print(plain(f"  tool {name}: {_short(description, 80)}", "dim"))
    out.print(Text.assemble(plain(f"{sample['agent']} sees (seed 0): ", "bold"), plain(_short(sample["observation"]))))
    out.print(Text.assemble(plain(f"{sample['policy']} answers: ", "bold"), plain(_short(sample["response"]))))


def _show_offers(card: dict[str, Any]) -> None:
    table = FittedTable("agent", "policy", "description")
    for name, description in card["policies"].items():
        table.add_row("any", f"scripted:{name}", description)
    for agent, strategies in card["strategies"].items():
        for name, strategy in strategies.items():
            judge = "[,judge=MODEL]" if strategy["judge"] else ""
            table.add_row(agent, f"MODEL,strategy={name}{judge}", strategy["description"])
    out.print(table if table.rows else "It has no policies and no strategies of its own.")


def _short(text: str, length: int = SHORT) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip()} ..."


def _plain(value: Any) -> Any:
    """An option's default as plain data: a text where it is none, "..." where there is none."""
    if value is ...:
        return "..."
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
