"""marl-gem check and marl-gem playthrough: test a scenario, and record an episode that tests replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

import marl_gem.registry
from marl_gem import bounds, testing
from marl_gem.cli.terminal import Options, Tools, Wrappers, number, out, read_scenario
from marl_gem.errors import MarlGemError
from marl_gem.export.target import export_target
from marl_gem.faults import close_env
from marl_gem.overrides import apply_overrides

_COLOURS = {"ok": "green", "FAILED": "bold red", "skipped": "yellow"}


def check(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A scenario id, module:Class or path/to/file.py:Class.")
    ],
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this check: {', '.join(testing.CHECKS)}. May be repeated.")
    ] = None,
    seed: Annotated[int | None, number(bounds.SEED, help="Play only the episode with this seed.")] = None,
    wrappers: Wrappers = None,
    tools: Tools = None,
    options: Options = None,
) -> None:
    """Test a scenario against the contract's promises, by playing it. The exit code is 1 if it breaks one."""
    spec = read_scenario(scenario, options, wrappers, tools)
    close_env(spec.make())  # an error in the options is not one of the scenario
    plan = testing.THOROUGH if seed is None else testing.Plan(seeds=(seed,))
    results = []
    out.print(f"[bold]{escape(scenario)}[/]")
    with out.status("checking"):
        for result in testing.run_checks(spec.make, plan, only=only or ()):
            results.append(result)
            line = escape(str(result)).replace(result.status, f"[{_COLOURS[result.status]}]{result.status}[/]", 1)
            out.print(line, soft_wrap=True)
    report = testing.CheckReport(scenario, tuple(results))
    out.print(f"[bold]{report.summary}[/]")
    if not report.ok:
        raise typer.Exit(1)


def playthrough(
    names: Annotated[list[str], typer.Argument(metavar="SCENARIO...", help="Scenario ids, or families such as ta.")],
    seed: Annotated[int, number(bounds.SEED, help="Fixes the episode and the actions in it.")] = 0,
    options: Options = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="Write to this .txt file, or to FAMILY/NAME.txt in this folder.")
    ] = None,
) -> None:
    """Play a scenario at random and write the episode down as text, for people to read and tests to replay."""
    ids = [id for name in names for id in _available(name)]
    if to is not None and to.suffix == ".txt" and len(ids) > 1:
        raise MarlGemError(f"{len(ids)} playthroughs do not go into one file; name a folder with --out")
    for id in ids:
        text = testing.playthrough(id, seed, options=apply_overrides({}, options or []))
        if to is None:
            out.out(text, end="", highlight=False)
            continue
        file = to if to.suffix == ".txt" else to / testing.playthrough_file(id)
        with export_target(file, force=True) as draft:
            draft.write_text(text, "utf-8", newline="\n")
        out.print(escape(str(file)), soft_wrap=True)


def _available(name: str) -> list[str]:
    """The id itself, or the scenarios of a family that work here."""
    if ":" in name:
        return [name]
    ids = [scenario.id for scenario in marl_gem.registry.list(name) if not scenario.unavailable]
    if not ids:
        raise MarlGemError(f"there is no family {name!r} with scenarios that work here; `marl-gem list` shows all")
    return ids
