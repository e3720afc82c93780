"""marl-gem train: self-play, watched and resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from marl_gem.cli.terminal import out, show_tallies, stop_on_interrupt
from marl_gem.errors import MarlGemError, MissingPackage
from marl_gem.evaluate import Tally
from marl_gem.settings import override

if TYPE_CHECKING:
    from marl_gem.trainers.run import Run

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set one value, as in self_play.updates=50. May be repeated."),
]


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
    with stop_on_interrupt() as stop, bar:
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
        show_tallies(
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


def _folder(runs: Path, name: str | None, what: str) -> Path:
    """The run's folder: the name it was given, or a fresh one."""
    if name:
        return runs / name
    stem = Path(what).stem if what.endswith(".toml") else what.replace(":", "-")
    candidates = (f"{stem}-{number}" for number in range(1, 1_000_000))
    return runs / next(candidate for candidate in candidates if not (runs / candidate).exists())
