"""marl-gem new: a scenario to start from, with its test and a page of help."""

from __future__ import annotations

import enum
import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Annotated, NamedTuple

import typer

from marl_gem.bounds import Range
from marl_gem.cli.terminal import number, out, plain
from marl_gem.errors import ConfigError

AGENTS = Range(1, 100)
"""How many agents a new scenario can have; more are a matter of one line in it."""


class Turns(enum.StrEnum):
    """Who acts next, in a new scenario."""

    sequential = "sequential"
    parallel = "parallel"
    random = "random"
    phases = "phases"
    graph = "graph"
    directed = "directed"


class _Order(NamedTuple):
    """What a turn order changes in the scenario's text."""

    selector: str
    turn_order: str
    description: str
    imports: tuple[str, ...] = ()


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new scenario's name, such as auction.")],
    agents: Annotated[int, number(AGENTS, help="How many agents.")] = 2,
    turns: Annotated[Turns, typer.Option(help="Who acts next.")] = Turns.sequential,
    folder: Annotated[Path, typer.Option("--out", help="The folder that gets the new one.")] = Path(),
) -> None:
    """Write a scenario to start from: its code, its test and a page of help, in a folder of their own."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} is no name for a module; use small letters, digits and _, as in spelling_bee")
    target = folder / name
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name, or another folder with --out")
    texts = scenario_files(name, agents, turns)
    target.mkdir(parents=True)
    for file, text in texts.items():
        (target / file).write_text(text, "utf-8")
        out.print(plain(f"  {target / file}"), soft_wrap=True)
    where = f"{target / name}.py:{_class_name(name)}"
    out.print(plain(f"Try it:\n  marl-gem check {where}\n  marl-gem play {where}"), soft_wrap=True)


def scenario_files(name: str, agents: int, turns: Turns) -> dict[str, str]:
    """The texts of a new scenario's files, by file name."""
    ids = [f"player_{index}" for index in range(agents)]
    order = _order(turns, ids)
    talks = turns is Turns.phases
    listed = ", ".join(f'"{id}"' for id in ids) + ("," if agents == 1 else "")
    values = {
        "Class": _class_name(name),
        "module": name,
        "imports": ", ".join(sorted({"Metadata", "MultiAgentEnv", "Role", *order.imports}, key=str.lower)),
        "agents": f"({listed})" if agents <= 5 else f'tuple(f"player_{{index}}" for index in range({agents}))',
        "selector": order.selector,
        "max_steps": str(10 * (1 if turns is Turns.parallel else agents + 1 if talks else agents)),
        "turn_order": order.turn_order,
        "instructions": "First all talk, then all guess at once." if talks else "Answer with the number alone.",
        "observe": indent(_OBSERVE_TALK if talks else _OBSERVE, " " * 8),
        "legal": indent(_LEGAL_TALK if talks else _LEGAL, " " * 8),
        "process": indent(_PROCESS_TALK if talks else _PROCESS, " " * 8)
        + ("        self.selector.direct(self.rng.choice(self.agents))\n" if turns is Turns.directed else ""),
        "agent_list": ", ".join(ids[:5]) + (f" ... {ids[-1]}" if agents > 5 else ""),
        "turns": order.description,
        "first": ids[0],
        "count": str(agents),
    }
    templates = files("marl_gem.cli") / "new_scenario"
    sources = {f"{name}.py": "scenario.py.txt", f"test_{name}.py": "test.py.txt", "README.md": "readme.md.txt"}
    return {
        file: Template((templates / source).read_text("utf-8")).substitute(values) for file, source in sources.items()
    }


def _order(turns: Turns, ids: list[str]) -> _Order:
    edges = ", ".join(f'"{id}": "{following}"' for id, following in zip(ids, [*ids[1:], ids[0]], strict=True))
    circle = f'f"player_{{i}}": f"player_{{(i + 1) % {len(ids)}}}" for i in range({len(ids)})'
    return {
        Turns.sequential: _Order("SequentialSelector()", "sequential", "one after the other", ("SequentialSelector",)),
        Turns.parallel: _Order("ParallelSelector()", "parallel", "all at the same time", ("ParallelSelector",)),
        Turns.random: _Order("RandomSelector()", "sequential", "in random order", ("RandomSelector",)),
        Turns.phases: _Order(
            'PhaseSelector(Phase("talk"), Phase("guess", together=True))',
            "mixed",
            "in phases: all talk one after the other, then all guess at once",
            ("Phase", "PhaseSelector"),
        ),
        Turns.graph: _Order(
            f'GraphSelector({{{edges if len(ids) <= 2 else circle}}}, start="{ids[0]}")',
            "sequential",
            "along a graph of who acts after whom",
            ("GraphSelector",),
        ),
        Turns.directed: _Order(
            "DirectedSelector()", "sequential", "as the scenario says: whom it draws", ("DirectedSelector",)
        ),
    }[turns]


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_OBSERVE = 'return f"The number is from {self.low} to {self.high}."'
_OBSERVE_TALK = """\
asked = "Say something to the others." if self.selector.phase == "talk" else "Your guess?"
bounds = f"The number is from {self.low} to {self.high}."
return "\\n".join([*map(str, self.new_messages(agent)), f"{bounds} {asked}"])"""
_LEGAL = "return [str(number) for number in range(1, self.highest + 1)]"
_LEGAL_TALK = """\
if self.selector.phase == "talk":
    return None
return [str(number) for number in range(1, self.highest + 1)]"""
_PROCESS = """\
winners = [agent for agent, text in actions.items() if self._guess(agent, text)]
if winners:
    self.rewards = {agent: float(agent in winners) for agent in self.agents}
    self.terminations = dict.fromkeys(self.agents, True)
"""
_PROCESS_TALK = """\
if self.selector.phase == "talk":
    for agent, text in actions.items():
        self.send(text[:200], sender=agent)
    return
winners = [agent for agent, text in actions.items() if self._guess(agent, text)]
if winners:
    self.rewards = {agent: float(agent in winners) for agent in self.agents}
    self.terminations = dict.fromkeys(self.agents, True)
"""
