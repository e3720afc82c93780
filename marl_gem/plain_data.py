"""Plain data: text, finite numbers, booleans, None, lists, and dicts whose keys are text. JSON gives it back unchanged.

What scenarios and policies put into records is copied here, so that nothing is recorded that could not be written and
read back, and nothing changes after it was recorded. No method of a value's own class is called: a copy of an instance
of a subclass of `str`, `int`, `float`, `list` or `dict` is an instance of that base class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from math import isfinite
from typing import Any, NoReturn

from marl_gem.errors import RecordError
from marl_gem.faults import shown, type_name

MOST_LEVELS = 100
"""Lists and dicts within one another."""

MOST_BITS = 14_000
"""Of an integer: Python reads integers of up to 4,300 digits from text."""

ADVICE = "Put only text, finite numbers, booleans, None, lists and dicts with text keys into records"


class _NotPlain(Exception):
    """What is wrong with a value, and the keys that lead to it, the innermost first."""

    def __init__(self, problem: str, advice: str = ADVICE) -> None:
        self.problem = f"{problem}. {advice}"
        self.path: list[object] = []


class PlainCopier:
    """Copies values, up to a sum of sizes: a character counts 1, each element of a list or dict 16.

    Args:
        most: the greatest sum of sizes; None sets no limit.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most, self._left = most, float("inf") if most is None else most

    def copy(self, value: Any, *where: object) -> Any:
        """A copy of plain data. Text is shared; in it, two surrogates that make a character become that character.

        Args:
            value: what to copy.
            where: a name and the keys that lead to the value, for messages: `"infos", "player_0"`.

        Raises:
            RecordError: it is not plain data, or too large; the message says where, and names the type.
        """
        if type(value) is str and value.isascii() and len(value) <= self._left:  # what is usual
            self._left -= len(value)
            return value
        try:
            return self._copy(value, MOST_LEVELS)
        except _NotPlain as error:
            _refuse(error.problem, chain(where, reversed(error.path)))
        except RuntimeError as error:  # the dict or list changed meanwhile, in another thread
            _refuse(f"changed while it was read: {error}", where)

    def count(self, size: int, where: str) -> None:
        """Count a value that need not be copied.

        Raises:
            RecordError: the sum of sizes is too large.
        """
        try:
            self._count(size)
        except _NotPlain as error:
            _refuse(error.problem, (where,))

    def _copy(self, value: Any, levels: int) -> Any:
        kind = type(value)
        if kind is str:
            self._count(len(value))
            return value if value.isascii() else _paired(value)
        if value is None or kind is bool:
            return value
        if kind is float:
            if not isfinite(value):
                raise _NotPlain(f"is the float {value}, which JSON cannot hold")
            return value
        if kind is int:
            if value.bit_length() > MOST_BITS:
                raise _NotPlain(f"is an int of {value.bit_length():,} bits; {MOST_BITS:,} can be read back")
            return value
        if kind is dict or kind is list:
            if not levels:
                raise _NotPlain(f"lies within {MOST_LEVELS} lists or dicts, or holds itself")
            return self._copy_dict(value, levels - 1) if kind is dict else self._copy_list(value, levels - 1)
        for base, plain in _BASES.items():
            if issubclass(kind, base):
                return self._copy(plain(value), levels)
        raise _NotPlain(f"is a {type_name(value)}, not plain data")

    def _copy_dict(self, given: dict[Any, Any], levels: int) -> dict[str, Any]:
        size, copied = 16 * len(given), {}
        key: Any = None
        try:
            for key, part in given.items():
                if type(key) is not str or not key.isascii():
                    key = self._copy_key(key)
                size += len(key)
                copied[key] = self._copy(part, levels)
        except _NotPlain as error:
            if type(key) is str:
                error.path.append(key)
            raise
        self._count(size)
        return copied

    def _copy_key(self, key: object) -> str:
        if not issubclass(type(key), str):
            raise _NotPlain(f"has the key {shown(key)}; keys are text, not {type_name(key)}")
        return _paired(str.__str__(key))

    def _copy_list(self, given: list[Any], levels: int) -> list[Any]:
        self._count(16 * len(given))
        if set(map(type, given)) == {str}:
            text = "".join(given)
            self._count(len(text))
            return given.copy() if text.isascii() else list(map(_paired, given))
        copied: list[Any] = []
        try:
            for part in given:
                copied.append(self._copy(part, levels))
        except _NotPlain as error:
            error.path.append(len(copied))
            raise
        return copied

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _NotPlain(f"makes the record larger than {self._most:,} characters", "Limits(record=...) allows more")


_BASES: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    list: list.copy,
    dict: lambda value: dict(dict.items(value)),
}
"""How to make an instance of a base class from one of a subclass without calling any method of the subclass."""


def _paired(text: str) -> str:
    """Text as JSON gives it back: two surrogates that make a character are that character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _refuse(problem: str, where: Iterable[object]) -> NoReturn:
    name, *keys = where
    path = "".join(f"[{shown(key, 80)}]" for key in keys[:8])
    raise RecordError(f"{name}{path}{'[...]' if len(keys) > 8 else ''} {problem}")
