"""What the commands share: the two streams, options that several take, tables of results."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from traceback import format_exception
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from marl_gem.bounds import Range
from marl_gem.evaluation.estimates import wilson
from marl_gem.evaluation.tally import Tally
from marl_gem.overrides import apply_overrides, write_value
from marl_gem.policies import HumanPolicy
from marl_gem.printable import printable
from marl_gem.specs import PolicySpec, ScenarioSpec, training_options


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


def read_scenario(scenario: str, options: list[str] | None, wrappers: list[str] | None) -> ScenarioSpec:
    """The scenario that a command line names."""
    return ScenarioSpec.parse(scenario, apply_overrides({}, options or []), wrappers or [])


def as_trained(spec: ScenarioSpec, policies: Iterable[PolicySpec], stored: Mapping[str, Any] = {}) -> ScenarioSpec:
    """The scenario with the options that the runs among the policies were trained with, which is told in a line.

    Options that the command line or a stored run has set count more.
    """
    given = {**stored, **spec.options}
    taken = training_options(policies, spec.id, given)
    if taken:
        values = " ".join(f"{name}={write_value(value)}" for name, value in taken.items())
        err.print(Text(f"options as in training: {values} (-o sets others)"))
    return spec.with_options({**taken, **given})


def person() -> HumanPolicy:
    """The person at this terminal."""
    return HumanPolicy(lambda text: out.print(plain(text)), lambda prompt: out.input(plain(prompt, "bold")))


def show_tallies(tallies: dict[str, Tally], title: str) -> None:
    """A table with a row for each seat: wins, draws and losses of contests, successes of tasks, and mean returns."""
    contest = any(counts.is_contest for counts in tallies.values())
    shares = ("win", "draw", "loss", "illegal") if contest else ("success", "illegal")
    table = Table("seat", *shares, *["score"] * contest, "mean return", title=title, title_justify="left")
    for seat, counts in tallies.items():
        row = [show_share(getattr(counts, name), counts.games) for name in shares]
        row += [_show_mean(counts.score, counts.score_interval)] if contest else []
        table.add_row(escape(seat), *row, _show_mean(counts.mean_return, counts.return_interval))
    out.print(table)


def show_share(count: int, games: int) -> str:
    """A share in percent, with its 95% interval."""
    low, high = wilson(count, games)
    return f"{100 * count / games:.1f}% [dim]{100 * low:.1f}-{100 * high:.1f}[/]"


def _show_mean(mean: float, interval: tuple[float, float]) -> str:
    """A mean with its 95% interval."""
    low, high = interval
    return f"{mean:.3f} [dim]{low:.3f} to {high:.3f}[/]"
