"""What the commands share: the two streams, options that several take, tables of results."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from traceback import format_exception
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from marl_gem import bounds
from marl_gem.bounds import Range
from marl_gem.overrides import apply_overrides, write_value
from marl_gem.printable import printable

if TYPE_CHECKING:  # help and version need none of these, which take long to import
    from marl_gem.evaluation.tally import Tally
    from marl_gem.policies import HumanPolicy
    from marl_gem.specs import PolicySpec, ScenarioSpec


class SafeConsole(Console):
    """A console whose texts, in lines, tables and progress bars, are `printable`: only rich itself styles and moves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before the text is laid out

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            if control is None:
                text = printable(text)
                style = style.update_link(None) if style and style.link else style  # a link is an escape sequence
            yield Segment(text, style, control)

    def on_broken_pipe(self) -> None:
        """Called while a write fails: it is an error like that of a full disk."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


out = SafeConsole()
err = SafeConsole(stderr=True)


def plain(text: str, style: str = "") -> Text:
    """A text of others, exactly as it is but printable; rich's markup and `escape` would lose some backslashes."""
    return Text(printable(text), style)


def print_safely() -> None:
    """Make printable what this process prints without `out` and `err`: warnings, log lines, a bug's traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal shows "ü" as "\\xfc"
    formatted = warnings.formatwarning
    warnings.formatwarning = lambda *args, **options: printable(formatted(*args, **options))
    if logging.lastResort:
        logging.lastResort.setFormatter(_PrintableFormatter())
    unraisable = sys.unraisablehook  # Ctrl-C may reach Python while it frees an object, where nothing can be raised
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else unraisable(lost)
    sys.excepthook = lambda *error: err.print(plain("".join(format_exception(*error))), soft_wrap=True, end="")


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def show_error(message: str) -> None:
    """Print an error in the form that all commands share."""
    err.print(Text.assemble(("error:", "bold red"), plain(f" {message}")))


def number(within: Range, *flags: str, help: str) -> Any:
    """An option for a number in a range."""
    low, high = (int(end) if within.integer else end for end in (within.low, within.high))

    def check(value: float | None) -> float | None:
        if value is not None and value not in within:  # nan is neither less nor greater than the ends
            raise typer.BadParameter(f"it is {within}, not {value}")
        return value

    return typer.Option(*flags, min=low, max=high, callback=check, help=help)


Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the scenario. May be repeated."),
]

Wrappers = Annotated[
    list[str] | None,
    typer.Option(
        "--wrap",
        metavar="NAME[=VALUE][,NAME=VALUE...]",
        help="A wrapper around the scenario, as in time_limit=20. May be repeated, the innermost first.",
    ),
]


ResetOptions = Annotated[
    list[str] | None,
    typer.Option("--reset", metavar="NAME=VALUE", help="An option of every episode's reset. May be repeated."),
]


Wait = Annotated[
    float | None,
    number(
        bounds.SECONDS,
        help="Seconds that a model's server that cannot be reached is waited for, as while it starts; by default 60.",
    ),
]


def read_reset(options: list[str] | None) -> dict[str, Any]:
    """The options that `reset` gets in every episode."""
    return apply_overrides({}, options or [])


Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME[:NAME=VALUE,...]",
        help="A tool for all agents, as in calculator or search:corpus=notes.jsonl. May be repeated.",
    ),
]


def read_scenario(
    scenario: str, options: list[str] | None, wrappers: list[str] | None, tools: list[str] | None
) -> ScenarioSpec:
    """The scenario that a command line names."""
    from marl_gem.specs import ScenarioSpec

    return ScenarioSpec.parse(scenario, apply_overrides({}, options or []), wrappers or [], tools or [])


def as_trained(spec: ScenarioSpec, policies: Iterable[PolicySpec], stored: Mapping[str, Any] = {}) -> ScenarioSpec:
    """The scenario with the options that the runs among the policies were trained with, which is told in a line.

    Options that the command line or a stored run has set count more.
    """
    from marl_gem.specs import training_options

    given = {**stored, **spec.options}
    taken = training_options(policies, spec.id, given)
    if taken:
        values = " ".join(f"{name}={write_value(value)}" for name, value in taken.items())
        err.print(Text(f"options as in training: {values} (-o sets others)"))
    return spec.with_options({**taken, **given})


def bounds_text(low: int, high: int) -> str:
    """A number of agents, or the least and the greatest."""
    return f"{low}" if low == high else f"{low} to {high}"


def person() -> HumanPolicy:
    """The person at this terminal."""
    from marl_gem.policies import HumanPolicy

    return HumanPolicy(lambda text: out.print(plain(text)), lambda prompt: out.input(plain(prompt, "bold")))


def show_tallies(tallies: Mapping[str, Tally], title: str, players: Mapping[str, str] | None = None) -> None:
    """A table with a row for each seat: games won, drawn and lost, or successes of tasks, and mean returns.

    Args:
        tallies: of each seat.
        title: stands above the table.
        players: who plays each seat, where that is shown. Seats that are alike share a row if there are many.
    """
    from marl_gem.cli.fitted_table import FittedTable
    from marl_gem.evaluation.seat_groups import seat_groups

    tallies = {seat: counts for seat, counts in tallies.items() if counts.games}
    groups = seat_groups({seat: (players or {}).get(seat, "") for seat in tallies})
    contest = any(counts.is_contest for counts in tallies.values())
    shares = {"won": "win", "drawn": "draw", "lost": "loss"} if contest else {"success": "success"}
    shares |= {"illegal": "illegal"}
    table = FittedTable("seat", *["player"] * bool(players), *shares, *["score"] * contest, "mean return", title=title)
    for name, agents in groups.items():
        every = [tallies[agent] for agent in agents]
        row = [show_shares([(getattr(counts, field), counts.games) for counts in every]) for field in shares.values()]
        row += [_show_mean([counts.score for counts in every], every[0].score_interval)] if contest else []
        row.append(_show_mean([counts.mean_return for counts in every], every[0].return_interval))
        table.add_row(name, *([players[agents[0]]] if players else []), *row)
    out.print(table)
    if len(groups) < len(tallies):
        out.print("Seats that are alike are counted together: their mean, and the least and the greatest of them.")


def show_share(count: int, games: int) -> Text:
    """A share in percent, with its 95% interval."""
    from marl_gem.evaluation.estimates import wilson

    low, high = wilson(count, games)
    return Text.assemble(f"{100 * count / games:.1f}% ", (f"{100 * low:.1f}-{100 * high:.1f}", "dim"))


def show_shares(counted: Sequence[tuple[int, int]]) -> Text:
    """The share of a seat, or the mean of the shares of several, with the least and the greatest."""
    if len(counted) == 1:
        return show_share(*counted[0])
    shares = [100 * count / games for count, games in counted]
    return Text.assemble(f"{sum(shares) / len(shares):.1f}% ", (f"{min(shares):.1f}-{max(shares):.1f}", "dim"))


def _show_mean(means: Sequence[float], interval: tuple[float, float] | None) -> Text:
    """The mean of a seat with its 95% interval, if there is one, or that of several seats with the least and the
    greatest."""
    if len(means) == 1 and interval is None:
        return Text(f"{means[0]:.3f}")
    low, high = interval if interval and len(means) == 1 else (min(means), max(means))
    return Text.assemble(f"{sum(means) / len(means):.3f} ", (f"{low:.3f} to {high:.3f}", "dim"))
