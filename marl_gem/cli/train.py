"""marl-gem train: self-play and co-evolution, watched and resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from marl_gem.cli.terminal import out, show_share, show_tallies, stop_on_interrupt
from marl_gem.errors import MarlGemError, MissingPackage
from marl_gem.evaluation.tally import Tally
from marl_gem.overrides import apply_overrides

if TYPE_CHECKING:
    from marl_gem.trainers.run import Run

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set one value, as in self_play.updates=50. May be repeated."),
]


def train(
    what: Annotated[
        str | None, typer.Argument(help="A recipe that ships (tictactoe, kuhn, desk), a TOML file, or a scenario id.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; by default what is trained, and a number.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes every random choice.")] = None,
    settings: Settings = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run's folder.")] = None,
    runs: Annotated[Path, typer.Option(help="Where runs lie.")] = Path("runs"),
) -> None:
    """Train by self-play or co-evolution. Ctrl-C stops after the update at hand; --resume goes on from there."""
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
        run = Run.resume(resume, parse(apply_overrides(values, assignments), "the command line"))
        out.print(f"resuming [bold]{escape(str(resume))}[/]")
    else:
        values = apply_overrides(read(what or ""), assignments)
        config = parse(values, what or "")
        run = Run.start(_folder(runs, name, what or ""), config)
    _work(run)


def _work(run: Run) -> None:
    """Let a run work, and tell what came of it."""
    out.print(f"[bold]{escape(run.config.scenario)}[/] in {escape(str(run.folder))}")
    try:
        _watch(run)
        if run.report is None:
            run.save()
    except KeyboardInterrupt:  # at once, and maybe in the middle of an update: what was saved before is what there is
        pass
    if run.report is None:
        out.print(f"stopped. What there is lies in {escape(str(run.folder))}; go on with:")
        out.print(f"  marl-gem train --resume {escape(str(run.folder))}", soft_wrap=True)
        sys.exit(130)
    _show_report(run, run.report)


def _watch(run: Run) -> None:
    """Show how a run goes, until it ends or somebody asks it to stop."""
    imitated = "others" if run.config.imitation.seats else "random play"
    labels = {"warm-up": f"imitating {imitated}", "self-play": "co-evolution" if run.config.seats else "self-play"}
    measuring = "measuring" if run.config.seats else "playing random"
    bar = Progress(
        TextColumn("{task.description:<21}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[told]}"),
        console=out,
    )
    with stop_on_interrupt() as stop, bar:
        tasks: dict[str, Any] = {}
        told: dict[str, dict[str, Any]] = {}
        for progress in run.work():
            newest = told.setdefault(progress.phase, {})
            newest |= progress.metrics
            if progress.phase not in tasks:
                label = labels.get(progress.phase, measuring)
                tasks[progress.phase] = bar.add_task(label, total=progress.total, told="")
            bar.update(tasks[progress.phase], completed=progress.done, told=_told(progress.phase, newest))
            if stop and progress.phase != "after":
                break


def _show_report(run: Run, report: dict[str, Any]) -> None:
    if run.config.seats:
        _show_seatings(report)
    else:
        for when in ("before", "after"):
            tallies = {agent: Tally(**counts) for agent, counts in report[when].items()}
            show_tallies(tallies, f"{when}, against random legal play")
    before, after, seconds = (report[key] for key in ("score_before", "score_after", "seconds"))
    what = "success" if run.config.seats else "win 1, draw 1/2"
    out.print(f"score [bold]{before:.3f}[/] -> [bold]{after:.3f}[/] ({what}) in {seconds:.0f} s of training")
    for file in ("report.json", "curve.png", "episodes.jsonl", "metrics.jsonl", "config.json", "checkpoints"):
        out.print(f"  {escape(str(run.folder / file))}", soft_wrap=True)
    out.print(_how_to_play(run, report), soft_wrap=True)


def _show_seatings(report: dict[str, Any]) -> None:
    """Who succeeded how often in which seat: before, at the end of the phase in which they sat so, and after."""
    phases = len(report["after"]) > 1
    moments = [report[when] for when in ("before", *["phase_ends"] * phases, "after")]
    table = Table(Column("who sits where", no_wrap=True), Column("success of", no_wrap=True))
    for moment in ("before", *["end of phase"] * phases, "after"):
        table.add_column(moment)
    for seating in zip(*moments, strict=True):
        for place, seat in enumerate(seating[-1]["success"]):
            seats = "\n".join(f"{agent}={who}" for agent, who in seating[-1]["seats"].items()) if place == 0 else ""
            shares = [show_share(one["success"][seat], one["games"]) for one in seating]
            table.add_row(escape(seats), escape(seat), *shares)
    out.print(table)


def _how_to_play(run: Run, report: dict[str, Any]) -> str:
    if not run.config.seats:
        return f"play it: marl-gem play {run.config.scenario} --seat {next(iter(report['after']))}={run.folder} ..."
    last = report["after"][-1]
    seats = " ".join(
        f"--seat {agent}={run.folder if agent in last['success'] else who}" for agent, who in last["seats"].items()
    )
    return f"watch them: marl-gem play {run.config.scenario} {seats}"


def _told(phase: str, metrics: dict[str, Any]) -> str:
    """The few numbers that fit behind a progress bar; the score is the newest there is."""
    names = {"warm-up": ("loss",), "self-play": ("score", "entropy")}.get(phase, ("score",))
    told = [f"{name} {metrics[name]:.3f}" for name in names if name in metrics]
    return "  ".join([*told, *([f"[red]{metrics['failed']} games failed[/]"] if metrics.get("failed") else [])])


def _folder(runs: Path, name: str | None, what: str) -> Path:
    """The run's folder: the name it was given, or a fresh one."""
    if name:
        return runs / name
    stem = Path(what).stem if what.endswith(".toml") else what.replace(":", "-")
    candidates = (f"{stem}-{number}" for number in range(1, 1_000_000))
    return runs / next(candidate for candidate in candidates if not (runs / candidate).exists())
