"""marl-gem train: self-play and co-evolution, watched and resumed."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from marl_gem import bounds
from marl_gem.cli.exit_codes import ExitCode
from marl_gem.cli.fitted_table import FittedTable
from marl_gem.cli.interrupts import stop_on_interrupt
from marl_gem.cli.terminal import (
    Options,
    ResetOptions,
    Tools,
    Wait,
    Wrappers,
    number,
    out,
    plain,
    show_shares,
    show_tallies,
)
from marl_gem.errors import MarlGemError, MissingPackage
from marl_gem.overrides import apply_overrides, write_value
from marl_gem.runs.folder import fresh_folder

if TYPE_CHECKING:
    from marl_gem.evaluation.tally import Tally
    from marl_gem.trainers.measurement import Measurement
    from marl_gem.trainers.run import TrainingReport, TrainingRun

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set one value, as in training.updates=50. May be repeated."),
]


def train(
    what: Annotated[
        str | None,
        typer.Argument(help="A recipe (tictactoe, kuhn, desk, calculator, ...), a TOML file, or a scenario."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; by default what is trained, and a number.")] = None,
    seed: Annotated[int | None, number(bounds.SEED, help="Fixes every random choice.")] = None,
    updates: Annotated[
        int | None, number(bounds.UPDATES, help="How many updates; with --resume, how many the run is to have in all.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="What to start from, without a warm start: a transformers model, or RUN[@UPDATES]."
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(metavar="in_process|vllm|URL", help="Who answers: this process, or a vLLM server (started here)."),
    ] = None,
    options: Options = None,
    wrappers: Wrappers = None,
    tools: Tools = None,
    reset: ResetOptions = None,
    wait: Wait = None,
    settings: Settings = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Go on with this run's folder; RUN@120 with --name goes on from there in a new folder."
        ),
    ] = None,
    trackers: Annotated[
        list[str] | None,
        typer.Option(
            "--tracker", metavar="NAME", help="Send metrics to tensorboard, trackio or wandb too. May be repeated."
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the complete configuration as TOML, and do nothing else.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Where runs lie.")] = Path("runs"),
) -> None:
    """Train by self-play or co-evolution. Ctrl-C stops after the update at hand; --resume goes on from there."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and _serves():  # torchrun has started several processes
        return
    if not what and resume is None:
        raise MarlGemError("what should be trained? Try: marl-gem train tictactoe, or marl-gem train --help")
    if resume is None and updates is not None:
        settings = [f"training.updates={updates}", *(settings or [])]
    if trackers:
        settings = [f"trackers={write_value(trackers)}", *(settings or [])]
    source, checkpoint = _resumed(resume) if resume else (None, None)
    values = _values(
        what,
        source,
        _assignments(settings, seed, policy, sampler, options, reset, wait),
        {"wrappers": wrappers, "tools": tools},
    )
    if print_config:
        _print_config(values, updates if source else None)
        return
    try:  # torch takes seconds to import, so it comes after what can be said without it
        from marl_gem.trainers.config import parse
        from marl_gem.trainers.run import TrainingRun
    except ImportError as error:
        raise MissingPackage(error.name or "torch", "train", "training") from error
    if source is not None:
        folder = source if checkpoint is None else _branched(source, checkpoint, runs, name)
        run = TrainingRun.resume(folder, parse(values, "the command line"), updates=updates)
        out.print(f"resuming [bold]{escape(str(folder))}[/]")
    else:
        run = TrainingRun.start(_folder(runs, name, what or ""), parse(values, what or ""))
    _work(run)


def _serves() -> bool:
    """Join the other processes of torchrun; all but the first compute what that one says, until it ends."""
    from marl_gem.trainers.backends import ranks

    if ranks.begin() == 0:
        atexit.register(ranks.end)
        return False
    from marl_gem.trainers.backends.sharded import serve

    serve()
    ranks.end()
    return True


def _print_config(values: dict[str, Any], updates: int | None) -> None:
    """Print a configuration as it would run."""
    from marl_gem.trainers.config import check
    from marl_gem.trainers.config_text import to_toml

    if updates is not None:
        values = apply_overrides(values, [f"training.updates={updates}"])
    sys.stdout.write(to_toml(check(values, "the command line")))


def _resumed(text: Path) -> tuple[Path, int | None]:
    """The folder of the run to go on with, and after how many updates; None after the newest checkpoint's."""
    before, _, updates = str(text).rpartition("@")
    if before and updates.isdecimal() and not text.is_dir():
        return Path(before), int(updates)
    return text, None


def _branched(source: Path, updates: int, runs: Path, name: str | None) -> Path:
    """The folder where a run goes on from one of its checkpoints: a copy, unless that is its newest."""
    from marl_gem.trainers.checkpoint import find, newest
    from marl_gem.trainers.run import branch

    if not name:
        if find(source, updates) == newest(source):
            return source
        raise MarlGemError(
            f"{source} has gone on after {updates} updates, and stays as it is; give a name to the run that goes on "
            f"from there, as in marl-gem train --resume {source}@{updates} --name NAME"
        )
    branch(source, updates, runs / name)
    return runs / name


Around: TypeAlias = Mapping[str, list[str] | None]
"""The wrappers and the tools that the command line adds, under these names."""


def _values(what: str | None, resume: Path | None, assignments: list[str], around: Around) -> dict[str, Any]:
    """The configuration as plain data, after what can be checked of it without torch."""
    from marl_gem import registry
    from marl_gem.trainers.config import check, read

    if resume is not None:
        return _stored_values(what, resume, assignments, around)
    values = _with_added(apply_overrides(read(what or ""), assignments), around)
    for scenario in check(values, what or "").scenarios:
        registry.find(scenario.id)
    return values


def _assignments(
    settings: list[str] | None,
    seed: int | None,
    policy: str | None,
    sampler: str | None,
    options: list[str] | None,
    reset: list[str] | None,
    wait: float | None,
) -> list[str]:
    """What the command line sets, as assignments to the configuration; `--set` counts last."""
    assignments = [f"options.{option}" for option in options or []]
    assignments += [f"reset.{option}" for option in reset or []]
    if wait is not None:
        assignments.append(f"wait={wait}")
    if seed is not None:
        assignments.append(f"seed={seed}")
    if policy is not None:
        played = _played_as(policy) or {"view": "chat", "max_tokens": 512}
        assignments += [f"policy.start_from={write_value(policy)}", "imitation.steps=0"]
        assignments += [f"policy.{field}={write_value(value)}" for field, value in played.items()]
    if sampler is not None:
        assignments.append(f"sampler={write_value(sampler)}")
    return [*assignments, *(settings or [])]


def _played_as(policy: str) -> dict[str, Any]:
    """How the policy of a run is asked to answer; nothing for a model's folder."""
    from marl_gem.errors import AgentError, ConfigError
    from marl_gem.runs.folder import read_config
    from marl_gem.specs import PolicySpec

    try:
        folder = Path(PolicySpec.parse(policy).name)
        config = read_config(folder.parent.parent if (folder / "state.json").exists() else folder)
    except (AgentError, ConfigError):  # said with the rest of the configuration
        return {}
    stored = config.get("policy")
    fields = ("view", "max_tokens", "temperature", "keep_reasoning", "chat_template_kwargs")
    return {field: stored[field] for field in fields if field in stored} if isinstance(stored, dict) else {}


def _with_added(values: dict[str, Any], around: Around) -> dict[str, Any]:
    """The values with more wrappers and tools after theirs; what is no list is refused with the rest of the values."""
    lists = {name: (values.get(name, []), more) for name, more in around.items() if more}
    return values | {name: [*given, *more] for name, (given, more) in lists.items() if isinstance(given, list)}


def _stored_values(what: str | None, folder: Path, assignments: list[str], around: Around) -> dict[str, Any]:
    """The configuration the caller has in mind: what is named, or the run's own, with what the command line sets."""
    import msgspec

    from marl_gem.trainers.config import read, read_config

    if what:
        return _with_added(apply_overrides(read(what), assignments), around)
    values = msgspec.to_builtins(read_config(folder))
    if len(values["scenarios"]) == 1:  # in the short form, in which these can be set
        table = values.pop("scenarios")[0]
        values |= {"scenario": {key: table[key] for key in ("id", "weight", "seats")}}
        values |= {key: table[key] for key in ("options", "test_options", "reset")}
        values |= {key: list(table[key]) for key in ("wrappers", "tools")}
    return _with_added(apply_overrides(values, assignments), around)


def _work(run: TrainingRun) -> None:
    """Let a run work, and show what came of it."""
    out.print(f"[bold]{escape(run.config.title)}[/] in {escape(str(run.folder))}", soft_wrap=True)
    for line in run.memory.lines() if run.memory else ():
        out.print(escape(line), soft_wrap=True)
    again = f"marl-gem train --resume {run.folder}"
    with stop_on_interrupt("this update", again) as stop:
        _watch(run, stop)
        if run.report is None:
            run.save()
    if run.report is None:
        out.print(f"stopped. What there is lies in {escape(str(run.folder))}; go on with:")
        out.print(f"  {escape(again)}", soft_wrap=True)
        sys.exit(ExitCode.INTERRUPTED)
    _show_report(run, run.report)


def _watch(run: TrainingRun, stop: Sequence[bool]) -> None:
    """Show how a run goes, until it ends or somebody asks it to stop."""
    imitated = "others" if run.config.imitation.seats else "random play"
    learning = "self-play" if run.config.is_self_play else "co-evolution"
    labels = {"imitation": f"imitating {imitated}", "training": learning, "server": "starting vLLM"}
    bar = Progress(
        TextColumn("{task.description:<21}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[summary]}", table_column=Column(overflow="fold")),  # wraps where others would be cut
        console=out,
    )
    with bar:
        tasks: dict[str, Any] = {}
        newest: dict[str, dict[str, Any]] = {}
        for progress in run.work():
            metrics = newest.setdefault(progress.stage, {})
            metrics |= progress.metrics
            if progress.stage not in tasks:
                label = labels.get(progress.stage, "measuring")
                tasks[progress.stage] = bar.add_task(label, total=progress.total, summary="")
            bar.update(tasks[progress.stage], completed=progress.done, summary=_summary(progress.stage, metrics))
            if stop and progress.stage != "after":
                break


def _summary(stage: str, metrics: dict[str, Any]) -> str:
    """The few numbers that fit behind a progress bar; the score is the newest there is."""
    names = {"imitation": ("loss",), "training": ("score", "entropy")}.get(stage, ("score",))
    parts = [f"{name} {metrics[name]:.3f}" for name in names if name in metrics]
    return "  ".join([*parts, *([f"[red]{metrics['failed']} episodes failed[/]"] if metrics.get("failed") else [])])


def _show_report(run: TrainingRun, report: TrainingReport) -> None:
    before, after = report.before, report.after
    contest = any(counts.is_contest for matchup in after.matchups for counts in matchup.agents.values())
    if contest:
        for when, moment in (("before", before), ("after", after)):
            for opponents, tallies in _by_opponents(moment).items():
                show_tallies(tallies, f"{when}, against {opponents}" if opponents else when)
    else:
        _show_success(report)
    for line in _analysis_lines(report):
        out.print(line)
    out.print(
        f"score [bold]{before.score:.3f}[/] -> [bold]{after.score:.3f}[/] "
        f"({'win 1, draw 1/2' if contest else 'success'}), mean return {_number(before.mean_return)} -> "
        f"{_number(after.mean_return)}, in {report.seconds:.0f} s of training"
    )
    for file in ("report.json", "curve.png", "episodes.jsonl", "metrics.jsonl", "config.json", "checkpoints"):
        out.print(f"  {escape(str(run.folder / file))}", soft_wrap=True)
    out.print(_how_to_play(run, report), soft_wrap=True)


def _by_opponents(moment: Measurement) -> dict[str, dict[str, Tally]]:
    """The tallies of each seat, by who held the other seats."""
    found: dict[str, dict[str, Tally]] = {}
    several = len({matchup.scenario for matchup in moment.matchups}) > 1
    for matchup in moment.matchups:
        others = ", ".join(dict.fromkeys(who for seat, who in matchup.seats.items() if seat not in matchup.agents))
        for seat, counts in matchup.agents.items():
            found.setdefault(others, {})[f"{matchup.scenario} {seat}" if several else seat] = counts
    return found


def _show_success(report: TrainingReport) -> None:
    """How often each policy succeeded: before, at the end of the phase in which they sat so, and after.

    Seats that are alike share a row if there are many.
    """
    from marl_gem.evaluation.seat_groups import seat_groups

    phases = len(report.phase_ends) > 1
    moments = ["before", *["end of phase"] * phases, "after"]
    table, seatings = FittedTable("seating", "success of", *moments), list[str]()
    before = [*report.before.matchups, *report.before.partners]
    for index, last in enumerate([*report.after.matchups, *report.after.partners]):
        ends = [end for end in report.phase_ends if (end.scenario, end.seats) == (last.scenario, last.seats)]
        measured = [before[index], *(ends[-1] if ends else None for _ in range(phases)), last]
        seats = (f"{name}={last.seats[agents[0]]}" for name, agents in seat_groups(last.seats).items())
        seatings.append(f"seating {index + 1}: {', '.join(seats)}")
        for name, agents in seat_groups({agent: last.seats[agent] for agent in last.agents}).items():
            shares = [
                show_shares([(m.agents[agent].success, m.agents[agent].games) for agent in agents]) if m else "-"
                for m in measured
            ]
            table.add_row(str(index + 1), name, *shares)
    out.print(table)
    for seating in seatings:
        out.print(plain(seating))


def _analysis_lines(report: TrainingReport) -> Sequence[str]:
    """What the scenarios' exact analyses say, before and after."""
    lines = []
    for scenario, numbers in report.after.analyses.items():
        before = report.before.analyses.get(scenario, {})
        parts = [
            f"{escape(name)} {_number(before.get(name))} -> [bold]{value:.3f}[/]" for name, value in numbers.items()
        ]
        lines.append(f"{escape(scenario)}, computed exactly: {', '.join(parts)}")
    return lines


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _how_to_play(run: TrainingRun, report: TrainingReport) -> str:
    if run.config.is_self_play:
        first = report.after.matchups[0]
        return f"play it: marl-gem play {first.scenario} --seat {next(iter(first.agents))}={run.folder} ..."
    last = report.after.matchups[-1]
    seats = " ".join(
        f"--seat {agent}={run.folder if agent in last.agents else who}" for agent, who in last.seats.items()
    )
    return f"watch them: marl-gem play {last.scenario} {seats}"


def _folder(runs: Path, name: str | None, what: str) -> Path:
    """The run's folder: the name it was given, or a fresh one."""
    stem = Path(what.partition(":")[0]).stem if what.endswith(".toml") or ".py:" in what else what.replace(":", "-")
    return runs / name if name else fresh_folder(runs, stem.replace("/", "-"))
