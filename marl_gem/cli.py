"""marl-gem: train, play, list.

Every command does its work through the library; this file reads options and shows results.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import marl_gem.registry
from marl_gem.agents import HumanPolicy, as_text
from marl_gem.errors import MarlGemError, MissingPackage
from marl_gem.evaluate import Tally, tally, wilson
from marl_gem.rollout import Job, collect
from marl_gem.seats import options_of, parse_seats, policy
from marl_gem.seeding import derive_seed
from marl_gem.settings import override
from marl_gem.types import Episode, to_json

if TYPE_CHECKING:
    from marl_gem.trainers.run import Run

app = typer.Typer(
    help="A multi-agent gym for language-model agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set one value, as in self_play.updates=50. May be repeated."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the scenario. May be repeated."),
]


def main() -> None:
    """The entry point: errors that marl_gem raises on purpose are told in one line."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of transformers, in the middle of ours
    try:
        app()
    except MarlGemError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("stopped")
        sys.exit(130)


@app.command(name="list")
def list_scenarios(
    family: Annotated[str | None, typer.Argument(help="Only this family, for instance ta.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that cannot work here, with the reason.")
    ] = False,
) -> None:
    """Show the scenarios that can be made."""
    scenarios = marl_gem.registry.list(family)
    if not scenarios:
        raise MarlGemError(f"there is no family {family!r}; `marl-gem list` shows all scenarios")
    shown = [scenario for scenario in scenarios if everything or not scenario.unavailable]
    table = Table("scenario", "agents", "what it is", box=None, header_style="bold", pad_edge=False)
    for scenario in shown:
        low, high = scenario.agents
        note = f"[yellow]cannot work here:[/] {escape(scenario.unavailable)}" if scenario.unavailable else ""
        table.add_row(
            scenario.id, f"{low}" if low == high else f"{low} to {high}", note or escape(scenario.description)
        )
    out.print(table)
    if hidden := len(scenarios) - len(shown):
        out.print(f"[dim]{hidden} more cannot work on this machine; --all tells why.[/]")


@app.command()
def train(
    what: Annotated[
        str | None, typer.Argument(help="A recipe that ships (tictactoe, kuhn), a TOML file, or a scenario id.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; by default what is trained, and a number.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes every random choice.")] = None,
    settings: Settings = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run's folder.")] = None,
    runs: Annotated[Path, typer.Option(help="Where runs lie.")] = Path("runs"),
) -> None:
    """Train a policy by self-play. Ctrl-C stops after the update at hand; --resume goes on from there."""
    try:
        from marl_gem.trainers.config import parse, read
        from marl_gem.trainers.run import Run, read_config
    except ImportError as error:
        raise MissingPackage(error.name or "torch", "train", "training") from error
    assignments = [*(settings or []), *([f"seed={seed}"] if seed is not None else [])]
    if what is None and resume is None:
        raise MarlGemError("what should be trained? Try: marl-gem train tictactoe, or marl-gem train --help")
    if resume is not None:
        import msgspec

        values = read(what) if what else msgspec.to_builtins(read_config(resume))
        run = Run.resume(resume, parse(override(values, assignments), "the command line"))
        out.print(f"resuming [bold]{escape(str(resume))}[/]")
    else:
        values = override(read(what or ""), assignments)
        config = parse(values, what or "")
        run = Run.start(_folder(runs, name, what or ""), config)
    _work(run)


@app.command()
def play(
    scenario: Annotated[str, typer.Argument(help="A scenario id; marl-gem list shows them.")],
    seats: Annotated[
        list[str] | None,
        typer.Option("--seat", metavar="AGENT=WHO", help="WHO is human, random, or a run's folder. May be repeated."),
    ] = None,
    games: Annotated[int, typer.Option("-n", "--games", min=1, help="How many games.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Fixes every random choice but yours.")] = 0,
    options: Options = None,
    record: Annotated[Path | None, typer.Option("--out", help="Write the episodes to this JSONL file.")] = None,
) -> None:
    """Play: you against a trained policy, or policies against each other. Seats that nobody takes play at random."""
    made_with = {**options_of(seats or [], scenario), **_plain(options or [])}

    def make() -> marl_gem.MultiAgentEnv:
        return marl_gem.registry.make(scenario, **made_with)

    seating = parse_seats(seats or [], make(), lambda who: policy(who, scenario, lambda: HumanPolicy(_show, _ask)))
    human = any(isinstance(seated, HumanPolicy) for seated in seating.values())
    jobs = [Job(derive_seed(seed, "play", game), seating, str(game)) for game in range(games)]
    with _interruptible():
        episodes = collect(make, jobs, concurrency=1 if human else min(games, 256))
    if record is not None:
        record.write_text("".join(f"{to_json(episode)}\n" for episode in episodes), "utf-8")
    for episode in episodes:
        if episode.error:
            raise MarlGemError(f"game {episode.id} failed in {episode.error.origin}: {episode.error.message}")
        if human or games == 1:
            _tell(episode, human)
    if games > 1:
        agents = list(seating)
        _table({f"{agent} ({seating[agent].name})": tally(episodes, agent) for agent in agents}, f"{games} games")


def _work(run: Run) -> None:
    """Let a run work, and show how it goes."""
    labels = {"warm-up": "imitating random play", "before": "playing random", "self-play": "self-play"}
    bar = Progress(
        TextColumn("{task.description:<21}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[told]}"),
        console=out,
    )
    out.print(f"[bold]{escape(run.config.scenario)}[/] in {escape(str(run.folder))}")
    with _stop_on_interrupt() as stop, bar:
        tasks: dict[str, Any] = {}
        told: dict[str, Any] = {}
        for progress in run.work():
            told |= progress.metrics
            if progress.phase not in tasks:
                label = labels.get(progress.phase, "playing random")
                tasks[progress.phase] = bar.add_task(label, total=progress.total, told="")
            bar.update(tasks[progress.phase], completed=progress.done, told=_told(progress.phase, told))
            if stop and progress.phase != "after":
                break
    if run.report is None:
        run.save()
        out.print(f"stopped. What there is lies in {escape(str(run.folder))}; go on with:")
        out.print(f"  marl-gem train --resume {escape(str(run.folder))}", soft_wrap=True)
        sys.exit(130)
    for when in ("before", "after"):
        _table(
            {agent: Tally(**counts) for agent, counts in run.report[when].items()}, f"{when}, against random legal play"
        )
    before, after, seconds = (run.report[key] for key in ("score_before", "score_after", "seconds"))
    out.print(f"score [bold]{before:.3f}[/] -> [bold]{after:.3f}[/] (win 1, draw 1/2) in {seconds:.0f} s of training")
    for file in ("report.json", "curve.png", "episodes.jsonl", "metrics.jsonl", "config.json", "checkpoints"):
        out.print(f"  {escape(str(run.folder / file))}", soft_wrap=True)
    seat = next(iter(run.report["after"]))
    out.print(f"play it: marl-gem play {run.config.scenario} --seat {seat}={run.folder} ...", soft_wrap=True)


def _told(phase: str, metrics: dict[str, Any]) -> str:
    """The few numbers that fit behind a progress bar; the score is the newest there is."""
    names = {"warm-up": ("loss",), "self-play": ("score", "entropy")}.get(phase, ("score",))
    return "  ".join(f"{name} {metrics[name]:.3f}" for name in names if name in metrics)


def _table(tallies: dict[str, Tally], title: str) -> None:
    table = Table("seat", "win", "draw", "loss", "illegal", "score", title=title, title_justify="left")
    for seat, counts in tallies.items():
        shares = [_share(count, counts.games) for count in (counts.win, counts.draw, counts.loss, counts.illegal)]
        low, high = counts.score_interval
        table.add_row(escape(seat), *shares, f"{counts.score:.3f} [dim]{low:.3f}-{high:.3f}[/]")
    out.print(table)


def _share(count: int, games: int) -> str:
    low, high = wilson(count, games)
    return f"{100 * count / games:.1f}% [dim]{100 * low:.1f}-{100 * high:.1f}[/]"


def _tell(episode: Episode, human: bool) -> None:
    """One game as text: all of it, or for a person who was there only how it ended."""
    if not human:
        for turn in episode.turns:
            out.print(f"[dim]{escape(as_text(turn.observation))}[/]")
            out.print(
                f"[bold]{escape(turn.agent)}[/] ({escape(episode.models[turn.agent])}): {escape(turn.response.text)}"
            )
    for agent, info in episode.final_infos.items():
        if human and episode.models.get(agent) == "human":
            out.print(escape(as_text(info["final_observation"])))
        if told := info.get("illegal") or info.get("reason"):
            out.print(f"{escape(agent)}: {escape(str(told))}")
    returns = ", ".join(f"{agent} {value:+g}" for agent, value in episode.returns.items())
    out.print(f"[bold]{episode.ending}[/] after {len(episode.turns)} turns: {escape(returns)}")


def _show(text: str) -> None:
    out.print(escape(text))


def _ask(prompt: str) -> str:
    return out.input(f"[bold]{escape(prompt)}[/]")


def _plain(options: list[str]) -> dict[str, Any]:
    return override({}, options)


def _folder(runs: Path, name: str | None, what: str) -> Path:
    """The run's folder: the name it was given, or a fresh one."""
    if name:
        return runs / name
    stem = Path(what).stem if what.endswith(".toml") else what.replace(":", "-")
    candidates = (f"{stem}-{number}" for number in range(1, 1_000_000))
    return runs / next(candidate for candidate in candidates if not (runs / candidate).exists())


@contextmanager
def _stop_on_interrupt() -> Iterator[list[bool]]:
    """The first Ctrl-C asks to stop (the list is no longer empty), the second stops at once."""
    asked: list[bool] = []

    def handle(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        err.print("[yellow]stopping after this update; Ctrl-C again stops at once[/]")

    with _handler(handle):
        yield asked


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C interrupts at once, also while a person is asked inside the event loop."""

    def handle(*_: object) -> None:
        raise KeyboardInterrupt

    with _handler(handle):
        yield


@contextmanager
def _handler(handle: Any) -> Iterator[None]:
    earlier = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


if __name__ == "__main__":
    main()
