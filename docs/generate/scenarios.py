"""One page a family: each scenario with what it declares, its options, a transcript, and the commands that use it.

What an episode looks like comes from tests/playthroughs, which the tests replay line by line, so no env is made here.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import marl_gem.registry
from generate.markdown import Undocumented, code, escape, table, toctree
from marl_gem.testing import playthrough_file

PLAYTHROUGHS = Path(__file__).parents[2] / "tests" / "playthroughs"
COMPACT = {"ta"}
"""Families with too many scenarios for a section each."""

TITLES = {"game": "Games", "ta": "TextArena", "tau": "TAU: tasks with tools, a user and an assistant"}


def pages() -> dict[str, str]:
    """The pages by name.

    Raises:
        Undocumented: a scenario has no description, or no recorded playthrough.
    """
    families: dict[str, list[Any]] = {}
    for scenario in marl_gem.registry.list():
        families.setdefault(scenario.id.partition(":")[0], []).append(scenario)
    result = {f"scenarios/{family}": _page(family, scenarios) for family, scenarios in families.items()}
    result["scenarios/index"] = INDEX + toctree(families)
    return result


INDEX = """# Scenarios

`marl-gem list` shows what can be made on this machine, `marl-gem list SCENARIO` what one of them offers to seat.

"""


def _page(family: str, scenarios: list[Any]) -> str:
    title = f"# {TITLES.get(family, family)}: `{family}:`\n\n"
    for scenario in scenarios:
        if not scenario.description and not scenario.unavailable:
            raise Undocumented(f"{scenario.id} is registered without a description")
    if family in COMPACT:
        return title + _compact(scenarios)
    return title + "\n".join(_section(scenario) for scenario in scenarios)


def _section(scenario: Any) -> str:
    header, transcript = _playthrough(scenario.id)
    parts = [f"## `{scenario.id}`\n", scenario.description + "\n", _docstring(scenario)]
    if scenario.unavailable:
        parts.append(f"Not on the machine that built this page: {scenario.unavailable}\n")
    low, high = scenario.agents
    declared = [("agents", header.get("agents") or (f"{low}" if low == high else f"{low} to {high}"))]
    declared += [("declares", header["facts"])] if header.get("facts") else []
    parts.append(table(("", ""), [(name, escape(value)) for name, value in declared]))
    if options := _options(scenario):
        parts.append("Options (`-o NAME=VALUE`, or keywords of `marl_gem.make`):\n")
        parts.append(table(("option", "default"), options))
    if offered := _offered(scenario.id):
        parts.append("In its seats, besides any model, person or trained run:\n")
        parts.append(table(("seat", "policy", "what it is"), offered))
    parts.append(f"```bash\n{_commands(scenario.id)}\n```\n")
    if transcript:
        parts.append(_details(f"A recorded episode of {scenario.id}", transcript))
    return "\n".join(part for part in parts if part)


def _compact(scenarios: list[Any]) -> str:
    rows, transcripts, hidden = [], [], []
    for scenario in scenarios:
        if scenario.unavailable:
            hidden.append((code(scenario.id), escape(scenario.unavailable)))
            continue
        header, transcript = _playthrough(scenario.id)
        if not transcript:
            raise Undocumented(f"{scenario.id} has no recorded playthrough under tests/playthroughs")
        low, high = scenario.agents
        agents = f"{low}" if low == high else f"{low} to {high}"
        rows.append((code(scenario.id), agents, escape(header.get("facts", "")), escape(scenario.description)))
        if scenario.id.count("-") == 1:  # variants of a game read like the game
            transcripts.append(_details(scenario.id, transcript))
    first = scenarios[0].id
    text = f"```bash\n{_commands('ta:TicTacToe-v0' if first.startswith('ta:') else first)}\n```\n\n"
    text += table(("scenario", "agents", "declares", "what it is"), rows)
    text += "\n## Recorded episodes\n\nOf each game in its first version; the tests replay them.\n\n" + "\n".join(
        transcripts
    )
    if hidden:
        text += "\n## Not available\n\n" + table(("scenario", "what it needs"), hidden)
    return text


def _playthrough(id: str) -> tuple[dict[str, str], str]:
    """The header of a recorded playthrough, and its text; both empty if there is none."""
    path = PLAYTHROUGHS / (playthrough_file(id))
    if not path.exists():
        return {}, ""
    text = path.read_text("utf-8")
    header = dict(re.findall(r"^(\w+): (.*)$", text.partition("\n\n")[0], re.MULTILINE))
    header.setdefault("facts", header.get("metadata", ""))
    return header, re.sub(r"^(#.*\n)+", "", text)


def _factory(scenario: Any) -> Any:
    entry = scenario.entry_point
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(__import__(module, fromlist=["_"]), name)
    return entry


def _docstring(scenario: Any) -> str:
    """The docstring of a scenario's class: its rules and rewards."""
    factory = _factory(scenario)
    docstring = inspect.cleandoc(factory.__doc__ or "") if inspect.isclass(factory) else ""
    prose = re.split(r"^(?:Args|Raises|Returns):$", docstring, flags=re.MULTILINE)[0].strip()
    return prose + "\n" if prose else ""


def _options(scenario: Any) -> list[tuple[str, str]]:
    fixed: Mapping[str, Any] = scenario.options
    rows = []
    for name, parameter in inspect.signature(_factory(scenario)).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        default = fixed.get(name, parameter.default)
        rows.append((code(name), "" if default is parameter.empty else code(repr(default))))
    return [*rows, (code("max_steps"), code("None"))]


def _offered(id: str) -> list[tuple[str, str, str]]:
    rows = [
        ("any", code(f"scripted:{name}"), escape(policy.description))
        for name, policy in sorted(marl_gem.registry.policies(id).items())
    ]
    for agent, strategies in marl_gem.registry.strategies(id).items():
        for name, strategy in sorted(strategies.items()):
            rows.append((agent, code(f"MODEL,strategy={name}"), escape(strategy.description)))
    return rows


def _commands(id: str) -> str:
    return f"marl-gem play {id}\nmarl-gem eval {id} -n 100\nmarl-gem train {id}"


def _details(summary: str, text: str) -> str:
    body = html.escape(text.strip("\n")).replace("\n", "&#10;")  # a blank line would end the block of HTML
    return f"<details><summary>{html.escape(summary)}</summary><pre>{body}</pre></details>\n"
