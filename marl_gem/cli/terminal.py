"""What the commands share: the two streams, options that several take, tables of results, Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from marl_gem.evaluation.estimates import wilson
from marl_gem.evaluation.tally import Tally
from marl_gem.overrides import apply_overrides
from marl_gem.policies import HumanPolicy
from marl_gem.specs import ScenarioSpec

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

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


def person() -> HumanPolicy:
    """The person at this terminal."""
    return HumanPolicy(lambda text: out.print(escape(text)), lambda prompt: out.input(f"[bold]{escape(prompt)}[/]"))


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


@contextmanager
def stop_on_interrupt(after: str = "this update") -> Iterator[list[bool]]:
    """The first Ctrl-C asks to stop after what is at hand (the list is no longer empty), the second stops at once."""
    asked: list[bool] = []

    def handle(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        err.print(f"[yellow]stopping after {after}; Ctrl-C again stops at once[/]")

    with _handler(handle):
        yield asked


@contextmanager
def interruptible() -> Iterator[None]:
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
