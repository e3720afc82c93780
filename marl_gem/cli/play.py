"""marl-gem play: a person against a policy, or policies against each other."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from marl_gem import bounds
from marl_gem.cli.exit_codes import CommandFailed
from marl_gem.cli.terminal import (
    Options,
    Tools,
    Wrappers,
    as_trained,
    number,
    out,
    person,
    plain,
    read_scenario,
    show_tallies,
)
from marl_gem.evaluation.tally import tally
from marl_gem.export.target import export_target
from marl_gem.policies import HumanPolicy
from marl_gem.rollout import Job, collect
from marl_gem.seeding import derive_seed
from marl_gem.specs import assign_seats, load_policies, parse_assignment
from marl_gem.types import Episode, to_json
from marl_gem.views import as_text


def play(
    scenario: Annotated[
        str, typer.Argument(help="A scenario id (marl-gem list shows them), module:Class or path/to/file.py:Class.")
    ],
    seats: Annotated[
        list[str] | None,
        typer.Option(
            "--seat",
            metavar="AGENT=WHO",
            help="WHO is human, random, a run's folder, a model such as tiny@URL ... May be repeated.",
        ),
    ] = None,
    games: Annotated[int, number(bounds.GAMES, "-n", "--games", help="How many episodes.")] = 1,
    seed: Annotated[int, number(bounds.SEED, help="Fixes every random choice but yours.")] = 0,
    wrappers: Wrappers = None,
    tools: Tools = None,
    options: Options = None,
    record: Annotated[Path | None, typer.Option("--out", help="Write the episodes to this JSONL file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out if it exists.")] = False,
) -> None:
    """Play: you against a trained policy, or policies against each other. Agents without a --seat play at random."""
    spec = read_scenario(scenario, options, wrappers, tools)
    policies = assign_seats(map(parse_assignment, seats or []), spec.inspect())
    spec = as_trained(spec, policies.values())
    seating = load_policies(policies, spec, human=person)
    human = any(isinstance(policy, HumanPolicy) for policy in seating.values())
    jobs = [Job(derive_seed(seed, "play", game), seating, str(game)) for game in range(games)]
    with export_target(record, force=force) if record else nullcontext() as draft:
        if draft:
            draft.touch()  # a file that cannot be written is an error before the first episode
        episodes = collect(spec.make, jobs, concurrency=1 if human else min(games, 256), warn=False)
        if draft:
            draft.write_text("".join(f"{to_json(episode)}\n" for episode in episodes), "utf-8")
    for episode in episodes:
        if episode.error:
            raise CommandFailed(f"game {episode.id} failed in {episode.error.origin}: {episode.error.message}")
        if human or games == 1:
            _show(episode, human)
    if games > 1:
        tallies = {agent: tally(episodes, agent) for agent in seating}
        show_tallies(tallies, f"{games} episodes", {agent: policy.name for agent, policy in seating.items()})


def _show(episode: Episode, human: bool) -> None:
    """One game as text: all of it, or for a person who took part only how it ended."""
    if not human:
        for turn in episode.turns:
            out.print(plain(as_text(turn.observation), "dim"))
            who, text = f" ({episode.models[turn.agent]}): ", turn.response.text
            out.print(Text.assemble(plain(turn.agent, "bold"), plain(who + text)))
    for agent, info in episode.final_infos.items():
        if human and episode.models.get(agent) == "human":
            out.print(plain(as_text(info["final_observation"])))
        if reason := info.get("illegal") or info.get("reason"):
            out.print(plain(f"{agent}: {reason}"))
    returns = ", ".join(f"{agent} {value:+g}" for agent, value in episode.returns.items())
    out.print(Text.assemble((episode.ending, "bold"), plain(f" after {len(episode.turns)} turns: {returns}")))
