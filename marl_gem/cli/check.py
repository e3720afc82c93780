"""`marl-gem check` and `marl-gem playthrough`: check a scenario against the contract, and write an episode as text."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import marl_gem.registry
from marl_gem import testing
from marl_gem.cli.terminal import Options, out
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption, MarlGemError, UnknownScenario
from marl_gem.overrides import apply_overrides

_COLOURS = {"ok": "green", "FAILED": "bold red", "skipped": "yellow"}


def check(
    what: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario id, or module:Class of your own.")],
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this check: {', '.join(testing.CHECKS)}. May be repeated.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Play only the episode with this seed.")] = None,
    options: Options = None,
) -> None:
    """Check that a scenario keeps the promises of the contract, by playing it. The exit code is 1 if it breaks one."""
    make = _maker(what, apply_overrides({}, options or []))
    plan = testing.THOROUGH if seed is None else testing.Plan(seeds=(seed,))
    results = []
    out.print(f"[bold]{escape(what)}[/]")
    with out.status("checking"):
        for result in testing.run_checks(make, plan, only=only or ()):
            results.append(result)
            line = escape(str(result)).replace(result.status, f"[{_COLOURS[result.status]}]{result.status}[/]", 1)
            out.print(line, soft_wrap=True)
    report = testing.CheckReport(what, tuple(results))
    out.print(f"[bold]{report.summary}[/]")
    if not report.ok:
        raise typer.Exit(1)


def playthrough(
    what: Annotated[list[str], typer.Argument(metavar="SCENARIO...", help="Scenario ids, or families such as ta.")],
    seed: Annotated[int, typer.Option(min=0, help="The seed of the episode and of the random actions.")] = 0,
    options: Options = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="Write to this .txt file, or to FAMILY/NAME.txt in this folder.")
    ] = None,
) -> None:
    """Play a scenario at random and write what happens as text, for people to read and tests to replay."""
    ids = [id for name in what for id in _available(name)]
    if to is not None and to.suffix == ".txt" and len(ids) > 1:
        raise MarlGemError(f"{len(ids)} playthroughs do not go into one file; name a folder with --out")
    for id in ids:
        text = testing.playthrough(id, seed, options=apply_overrides({}, options or []))
        if to is None:
            out.out(text, end="", highlight=False)
            continue
        file = to if to.suffix == ".txt" else to / testing.playthrough_file(id)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="\n")
        out.print(escape(str(file)), soft_wrap=True)


def _available(name: str) -> list[str]:
    """The id itself, or what can be made of a family."""
    if ":" in name:
        return [name]
    ids = [scenario.id for scenario in marl_gem.registry.list(name) if not scenario.unavailable]
    if not ids:
        raise MarlGemError(f"there is no family {name!r} with scenarios that work here; `marl-gem list` shows all")
    return ids


def _maker(what: str, options: dict[str, Any]) -> testing.Make:
    """What makes the env: a function that can be sent to another process. It has been tried once."""
    try:
        marl_gem.registry.get(what)
        make = functools.partial(marl_gem.registry.make, what, **options)
    except UnknownScenario as unknown:
        make = functools.partial(_load(what, unknown), **options)
    try:
        env = make()
    except TypeError as error:
        raise InvalidOption(f"{what} cannot be made: {error}. Give its options with -o NAME=VALUE") from error
    if not isinstance(env, MultiAgentEnv):
        raise MarlGemError(f"{what} makes a {type(env).__name__}, not a MultiAgentEnv")
    env.close()
    return make


def _load(what: str, unknown: UnknownScenario) -> Any:
    """The class `module:Class`, also from the current folder."""
    module, _, name = what.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise unknown
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise MarlGemError(f"{unknown} Nor is there a module {module!r} in {Path.cwd()} or installed.") from error
        raise MarlGemError(f"the module {module!r} cannot be imported: {error}") from error
    except Exception as error:
        raise MarlGemError(f"the module {module!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise MarlGemError(f"the module {module!r} has no class {name!r}")
    return found
