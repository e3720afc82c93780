"""marl-gem play: a person against a policy, or policies against each other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from marl_gem import bounds
from marl_gem.cli.exit_codes import CommandFailed, ExitCode
from marl_gem.cli.played import Rounds, show_end, show_episode
from marl_gem.cli.terminal import (
    Options,
    ResetOptions,
    Tools,
    Wait,
    Wrappers,
    as_trained,
    err,
    number,
    out,
    person,
    plain,
    read_reset,
    read_scenario,
    show_tallies,
)
from marl_gem.evaluation.tally import tally
from marl_gem.export.target import export_target
from marl_gem.llm.models import Models
from marl_gem.policies import HumanPolicy, Policy
from marl_gem.policies.human import HELP, InputEnded, Interrupted, PersonLeft
from marl_gem.rollout import Job, stream
from marl_gem.seeding import derive_seed
from marl_gem.specs import ScenarioSpec, assign_seats, load_policies, parse_assignment
from marl_gem.types import Episode, to_json


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
    count: Annotated[int, number(bounds.GAMES, "-n", "--games", help="How many episodes.")] = 1,
    seed: Annotated[int, number(bounds.SEED, help="Fixes every random choice but yours.")] = 0,
    wrappers: Wrappers = None,
    tools: Tools = None,
    options: Options = None,
    reset: ResetOptions = None,
    wait: Wait = None,
    record: Annotated[Path | None, typer.Option("--out", help="Write the episodes to this JSONL file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out if it exists.")] = False,
) -> None:
    """Play: you against a trained policy, or policies against each other. Agents without a --seat play at random.

    Whoever plays as human calls tools as /NAME argument=value and leaves with /quit; --out keeps what was played.
    """
    spec = read_scenario(scenario, options, wrappers, tools)
    policies = assign_seats(map(parse_assignment, seats or []), spec.inspect())
    spec = as_trained(spec, policies.values())
    seating = load_policies(policies, spec, models=Models(wait=wait), human=person)
    people = [agent for agent, policy in seating.items() if isinstance(policy, HumanPolicy)]
    if people:
        out.print(plain(HELP, "dim"))
    jobs = [Job(derive_seed(seed, "play", index), seating, str(index), read_reset(reset)) for index in range(count)]
    with export_target(record, force=force) if record else nullcontext() as draft:
        if draft:
            draft.touch()  # a file that cannot be written is an error before the first episode
        episodes, interrupted = _play(spec, jobs, people)
        if interrupted and not episodes:
            raise KeyboardInterrupt
        if draft:
            draft.write_text("".join(f"{to_json(episode)}\n" for episode in episodes), "utf-8")
    _show(episodes, seating, people, count)
    if record and len(episodes) < count:
        err.print(plain(f"{len(episodes)} of {count} episodes are in {record}"), soft_wrap=True)
    if interrupted:
        sys.exit(ExitCode.INTERRUPTED)
    if any(_left(episode) == InputEnded.__name__ for episode in episodes):
        sys.exit(ExitCode.FAILED)


def _play(spec: ScenarioSpec, jobs: list[Job], people: list[str]) -> tuple[list[Episode], bool]:
    """The episodes in the order of the jobs, and whether Ctrl-C ended them early; a person may end them early too."""
    played: list[Episode] = []

    async def play_all() -> None:
        make = (lambda: Rounds(spec.make(), people)) if people else spec.make
        async with aclosing(stream(make, jobs, concurrency=1 if people else min(len(jobs), 256))) as episodes:
            async for episode in episodes:
                played.append(episode)
                if _left(episode):
                    return

    interrupted = False
    try:
        asyncio.run(play_all())
    except KeyboardInterrupt:
        interrupted = True
    interrupted |= any(_left(episode) == Interrupted.__name__ for episode in played)
    return sorted(played, key=lambda episode: int(episode.id)), interrupted


def _left(episode: Episode) -> str:
    """How a person left the episode, as the name of an exception; empty if nobody did."""
    names = {kind.__name__ for kind in (PersonLeft, InputEnded, Interrupted)}
    return episode.error.type if episode.error and episode.error.type in names else ""


def _show(episodes: list[Episode], seating: Mapping[str, Policy], people: list[str], count: int) -> None:
    """The episode, how each ended in which a person took part, or counts of many.

    Raises:
        CommandFailed: an episode failed, for another reason than that a person left.
    """
    finished = []
    for episode in episodes:
        if episode.error and _left(episode):
            err.print(plain(f"after {len(episode.turns)} turns {episode.error.message}"), soft_wrap=True)
        elif episode.error:
            raise CommandFailed(f"episode {episode.id} failed in {episode.error.origin}: {episode.error.message}")
        else:
            finished.append(episode)
            if people:
                show_end(episode, people)
            elif count == 1:
                show_episode(episode)
    if count > 1 and finished:
        tallies = {agent: tally(finished, agent) for agent in seating}
        names = {agent: policy.name for agent, policy in seating.items()}
        show_tallies(tallies, f"{len(finished)} episodes", names)
