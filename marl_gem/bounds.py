"""The ranges of the numbers that people give, on a command line and in Python.

What is no number, not finite or out of range is an error that names the number and the range, before anything begins.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from marl_gem.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """A range of numbers, both ends included; `above` leaves out the lower end."""

    low: float
    high: float
    integer: bool = True
    above: bool = False

    def check(self, name: str, value: object) -> None:
        """Compare a value with the range.

        Raises:
            ConfigError: it is no such number; the message opens with `name`.
        """
        if value not in self:
            raise ConfigError(f"{name} is {self}, not {value!r:.80}")

    def __contains__(self, value: object) -> bool:
        try:
            number = operator.index(value) if self.integer else float(value)  # type: ignore[arg-type,call-overload]
        except (TypeError, ValueError, OverflowError):
            return False
        if isinstance(value, (bool, str)):
            return False
        low = self.low < number if self.above else self.low <= number  # not a number is neither
        return bool(low and number <= self.high)

    def __str__(self) -> str:
        kind = "a whole number" if self.integer else "a number"
        return f"{kind} {'above' if self.above else 'from'} {self.low:,} {'up ' if self.above else ''}to {self.high:,}"


def check_all(prefix: str, values: object, ranges: Mapping[str, Range]) -> None:
    """Compare fields of an object with their ranges; a field that is None is not compared.

    Raises:
        ConfigError: one is out of its range; the message opens with `prefix` and the field's name.
    """
    for name, allowed in ranges.items():
        if (value := getattr(values, name)) is not None:
            allowed.check(f"{prefix}{name}", value)


SEED = Range(0, 2**63 - 1)
UPDATES = Range(0, 1_000_000)
TASKS = Range(1, 10_000_000)
GAMES = Range(1, 1_000_000)
REPEATS = Range(1, 1_000_000)
EPISODES = Range(0, 10_000_000)
CONCURRENCY = Range(1, 100_000)
PROCESSES = Range(0, 1024)
TURNS = Range(1, 10**9)
TOKENS = Range(1, 10**15)
RUN_TOKENS = Range(0, 10**15)
SECONDS = Range(0, 10**9, integer=False)
TIMEOUT = Range(0, 10**9, integer=False, above=True)
DOLLARS = Range(0, 10**9, integer=False)
PORT = Range(0, 65_535)
AGENTS = Range(1, 1_000_000)
SHOWN = Range(0, 10**9)
ANSWER_TOKENS = Range(1, 10**9)
TEMPERATURE = Range(0, 100, integer=False)
PROBABILITY = Range(0, 1, integer=False, above=True)
