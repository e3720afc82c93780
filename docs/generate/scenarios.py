"""One page a family: each scenario with what it declares, its options, a transcript, and the commands that use it.

What an episode looks like comes from tests/playthroughs, which the tests replay line by line, so no env is made here.
"""

from __future__ import annotations

import html
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import marl_gem.registry
from generate.markdown import Undocumented, code, escape, table, toctree
from marl_gem.testing import playthrough_file

PLAYTHROUGHS = Path(__file__).parents[2] / "tests" / "playthroughs"
SUITES = {"eval", "logic", "math", "qa", "rg"}
"""Families of tasks of the same kind; a few of them have a recorded playthrough."""

COMPACT = {*SUITES, "ta"}
"""Families with too many scenarios for a section each."""

TITLES = {
    "eval": "GEM's evaluation sets",
    "logic": "RuleTaker",
    "math": "Mathematics",
    "qa": "Questions about the world",
    "rg": "ReasoningGym",
    "game": "Games",
    "ta": "TextArena",
    "tau": "TAU: tasks with tools, a user and an assistant",
}


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


COMMANDS = """```bash
marl-gem play ID                            # at random, where a scenario lists its legal actions
marl-gem play ID --seat player_0=human
marl-gem eval ID --seat player_0=MODEL@URL
marl-gem train ID --policy FOLDER           # FOLDER holds a model of transformers; without it a tiny one is made
```
"""

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
    recorded = scenario.id
    if not _playthrough(recorded)[1]:  # data that may not be copied; a small world of our own has the same rules
        recorded = scenario.id.replace("-v0", "-mini-v0")
    header, transcript = _playthrough(recorded)
    if not transcript:
        raise Undocumented(f"neither {scenario.id} nor {recorded} has a recorded playthrough under tests/playthroughs")
    parts = [f"## `{scenario.id}`\n", scenario.description + "\n", _rules(scenario)]
    if scenario.unavailable:
        parts.append(f"Not on the machine that built this page: {scenario.unavailable}\n")
    low, high = scenario.agents
    declared = [("agents", header.get("agents") or (f"{low}" if low == high else f"{low} to {high}"))]
    declared += [("declares", header["facts"])] if header.get("facts") else []
    parts.append(table(("", ""), [(name, escape(value)) for name, value in declared]))
    if options := _options(scenario):
        parts.append("Options (`-o NAME=VALUE`, or keywords of `marl_gem.make`):\n")
        parts.append(table(("option", "default", "meaning"), options))
    if offered := _offered(scenario.id):
        parts.append("In its seats, besides any model, person or trained run:\n")
        parts.append(table(("seat", "policy", "what it is"), offered))
    parts.append(f"```bash\n{_commands(scenario.id, header.get('agents', ''), transcript)}\n```\n")
    parts.append(_details(f"A recorded episode of {recorded}", transcript))
    return "\n".join(part for part in parts if part)


def _compact(scenarios: list[Any]) -> str:
    rows, transcripts, hidden = [], [], []
    for scenario in scenarios:
        if scenario.unavailable:
            hidden.append((code(scenario.id), escape(scenario.unavailable)))
            continue
        header, transcript = _playthrough(scenario.id)
        family = scenario.id.partition(":")[0]
        if not transcript and family not in SUITES:
            raise Undocumented(f"{scenario.id} has no recorded playthrough under tests/playthroughs")
        low, high = scenario.agents
        agents = f"{low}" if low == high else f"{low} to {high}"
        rows.append((code(scenario.id), agents, escape(header.get("facts", "")), escape(scenario.description)))
        if transcript and (family in SUITES or scenario.id.count("-") == 1):  # variants of a game read like the game
            transcripts.append(_details(scenario.id, transcript))
    text = COMMANDS.replace("ID", rows[0][0].strip("`")) + "\n" if rows else ""
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


def _class_docstring(scenario: Any) -> str:
    """The docstring of a scenario's class, also where a function makes its envs."""
    factory = _factory(scenario)
    if not inspect.isclass(factory):
        factory = typing.get_type_hints(factory).get("return", object)
    return inspect.cleandoc(factory.__doc__ or "") if factory is not object else ""


def _rules(scenario: Any) -> str:
    """The rules and rewards: the prose of the docstring."""
    prose = re.split(r"^(?:Args|Raises|Returns):$", _class_docstring(scenario), flags=re.MULTILINE)[0].strip()
    return prose + "\n" if prose else ""


def _options(scenario: Any) -> list[tuple[str, str, str]]:
    """Name, default and meaning of each option; the meaning stands under `Args:` in a docstring."""
    meanings = marl_gem.registry.option_meanings(scenario.id)
    rows = []
    for name, parameter in inspect.signature(_factory(scenario)).parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or (
            required and name in scenario.options
        ):
            continue
        default = "" if required else code(repr(scenario.options.get(name, parameter.default)))
        rows.append((code(name), default, escape(meanings.get(name, ""))))
    return [*rows, (code("max_steps"), code("None"), "After so many steps whoever is left is truncated.")]


def _offered(id: str) -> list[tuple[str, str, str]]:
    rows = [
        ("any", code(f"scripted:{name}"), escape(policy.description))
        for name, policy in sorted(marl_gem.registry.policies(id).items())
    ]
    for agent, strategies in marl_gem.registry.strategies(id).items():
        for name, strategy in sorted(strategies.items()):
            rows.append((agent, code(f"MODEL,strategy={name}"), escape(strategy.description)))
    return rows


def _commands(id: str, agents: str, transcript: str) -> str:
    """How to play, evaluate and train a scenario. Where random play only babbles, a policy is named."""
    if "\n  legal: " in transcript:
        return f"marl-gem play {id}\nmarl-gem eval {id} -n 100\nmarl-gem train {id}"
    scripts = [name for name in ("expert", "oracle") if name in marl_gem.registry.policies(id)]
    policy = f"scripted:{scripts[0]}" if scripts else "MODEL@URL"
    names = agents.split(", ")
    seats = " ".join(f"--seat {agent}={policy}" for agent in names)
    others = " ".join(f"--seat {agent}=MODEL@URL" for agent in names)
    return f"marl-gem play {id} {seats}\nmarl-gem eval {id} {others}\nmarl-gem train {id} --policy FOLDER"


def _details(summary: str, text: str) -> str:
    body = html.escape(text.strip("\n")).replace("\n", "&#10;")  # a blank line would end the block of HTML
    return f"<details><summary>{html.escape(summary)}</summary><pre>{body}</pre></details>\n"
