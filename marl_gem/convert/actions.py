"""Text as actions of other libraries' spaces, and back.

A number is written in brackets, `[3]`; a text as it is; everything else as JSON, for instance `[0.5, -1]` or
`{"steer": 0.5, "gear": 2}`.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from marl_gem.convert.observations import plain
from marl_gem.errors import ConversionError, InvalidOption

Names: TypeAlias = Mapping[int, str] | Sequence[str]
Mask: TypeAlias = Any
"""Which actions are legal, as the space's own `sample(mask)` takes it."""

LONGEST = 100_000
"""The greatest length in characters of a text in which an action is looked for."""

MOST = 1_000
"""The greatest number of legal actions that are listed; where there are more, none are."""

_IN_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_UNBOUNDED = 1e30
_TRIES = 100
"""The greatest number of positions in a text at which JSON is looked for."""


class Actions:
    """How the actions of one space are written and read.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box, Text, or Tuple, Dict and Sequence of these.
        names: of the actions of a Discrete space, in order or by number.

    Raises:
        ConversionError: the space cannot be written as text.
        InvalidOption: the names do not fit the space.
    """

    def __init__(self, space: gymnasium.Space[Any], names: Names | None = None) -> None:
        self._space = copy.deepcopy(space)  # `draw` seeds it, which must not change the other library's space
        self._phrase = _phrase(space)
        self._names = {} if names is None else _checked(names, space)
        self._numbers = {_folded(name): number for number, name in self._names.items()}
        self.verbatim = _is_text(space)
        self._all = self._listed(None)

    @property
    def instructions(self) -> str:
        """How to write an action, in words."""
        if self.verbatim:
            return f"Your answer, as it is, is your action: {self._phrase}."
        if isinstance(self._space, spaces.Discrete):
            return f"Write your action in brackets: {self._choices(self._space)}."
        return f"Write your action as JSON: {self._phrase}. For instance: {self._example()}"

    def write(self, action: Any) -> str:
        """An action as text that `read` understands."""
        if self.verbatim:
            return str(action)
        if isinstance(self._space, spaces.Discrete):
            return f"[{self._names.get(int(action), int(action))}]"
        return json.dumps(plain(action))

    def read(self, text: str, mask: Mask = None) -> Any:
        """The action in a text: the first that belongs to the space.

        Raises:
            ValueError: there is none, or it is not legal; the message says what to write.
        """
        for value in self._values(text):
            try:
                action = _member(self._space, value)
            except (ValueError, OverflowError):
                continue
            if not self._is_legal(action, mask):
                raise ValueError(f"{self.write(action)} is not legal now")
            return action
        raise ValueError(f"{text[:80]!r} holds no action. {self.instructions}")

    def listed(self, mask: Mask = None) -> list[str] | None:
        """Every legal action as text, if there are not too many to list them."""
        return self._all if mask is None or not self._options(mask) else self._listed(mask)

    def draw(self, dice: random.Random, mask: Mask = None) -> Any:
        """A legal action, drawn uniformly."""
        options = self._options(mask) or self._options(None)
        if options:
            return self._assemble([dice.choice(option) for option in options])
        self._space.seed(dice.getrandbits(31))
        return self._space.sample()

    def _example(self) -> str:
        written = self.write(self.draw(random.Random(0)))
        return json.dumps(json.loads(written, parse_float=lambda digits: round(float(digits), 2)))

    def _choices(self, space: spaces.Discrete[Any]) -> str:
        named = [f"[{name}]" for name in self._names.values()]
        if len(named) == space.n:
            return " or ".join(named)
        return f"{self._phrase}, such as [{space.start}]" + (f", or {' or '.join(named)}" if named else "")

    def _values(self, text: str) -> Iterator[Any]:
        """The parts of a text that may be an action, as plain data."""
        if self.verbatim:
            yield text
        elif len(text) > LONGEST:
            return
        elif isinstance(self._space, spaces.Discrete):
            for written in _IN_BRACKETS.findall(text) or [text]:
                word = written.strip()
                if _folded(word) in self._numbers:
                    yield self._numbers[_folded(word)]
                elif _NUMBER.fullmatch(word):
                    yield int(word)
        else:
            yield from _json_values(text)

    def _options(self, mask: Mask) -> list[Sequence[int]] | None:
        """The numbers that each part of an action may be; None if they cannot be listed or the mask leaves none."""
        space = self._space
        if isinstance(space, spaces.Discrete):
            options = [_left(space.n, space.start, mask)]
        elif isinstance(space, spaces.MultiDiscrete):
            masks = [None] * space.nvec.size if mask is None else mask
            options = [_left(*part) for part in zip(space.nvec.flat, np.ravel(space.start), masks, strict=True)]
        elif isinstance(space, spaces.MultiBinary) and mask is None:
            options = [range(2)] * math.prod(space.shape)
        else:
            return None
        return options if all(map(len, options)) else None

    def _listed(self, mask: Mask) -> list[str] | None:
        options = self._options(mask)
        if options is None or math.prod(map(len, options)) > MOST:
            return None
        return [self.write(self._assemble(numbers)) for numbers in itertools.product(*options)]

    def _assemble(self, numbers: Sequence[int]) -> Any:
        """An action of its parts."""
        if isinstance(self._space, spaces.Discrete):
            return self._space.dtype.type(numbers[0])
        return np.array(numbers, dtype=self._space.dtype).reshape(self._space.shape)

    def _is_legal(self, action: Any, mask: Mask) -> bool:
        options = None if mask is None else self._options(mask)
        return not options or all(
            number in option for number, option in zip(np.ravel(action).tolist(), options, strict=True)
        )


def _left(n: int, start: int, mask: Mask) -> Sequence[int]:
    """Which of `n` numbers from `start` a mask leaves."""
    if mask is None:
        return range(int(start), int(start) + int(n))
    return [int(number) for number in np.flatnonzero(mask) + start]


# Spaces in words


def _phrase(space: gymnasium.Space[Any]) -> str:
    """What a member of the space is, in words."""
    if isinstance(space, spaces.Discrete):
        return f"a whole number {_range(space.start, space.start + space.n - 1)}"
    if isinstance(space, spaces.MultiDiscrete):
        return f"{_shape(space.shape, 'whole number')}{_ranges(space.start, space.start + space.nvec - 1)}"
    if isinstance(space, spaces.MultiBinary):
        return f"{_shape(space.shape, 'number')}, each 0 or 1"
    if isinstance(space, spaces.Box):
        integers = not np.issubdtype(space.dtype, np.floating)
        return f"{_shape(space.shape, 'whole number' if integers else 'number')}{_ranges(space.low, space.high)}"
    if isinstance(space, spaces.Text):
        return f"a text of {space.min_length} to {space.max_length} of the characters {space.characters}"
    if _is_text(space):
        return "a text"
    if isinstance(space, spaces.Tuple):
        return f"a list of {len(space)} parts, " + ", ".join(f"({n}) {_phrase(s)}" for n, s in enumerate(space, 1))
    if isinstance(space, spaces.Dict):
        return "an object with " + ", ".join(f"{json.dumps(str(key))}: {_phrase(s)}" for key, s in space.items())
    if isinstance(space, spaces.Sequence) and not space.stack:
        return f"a list of any length, each part {_phrase(space.feature_space)}"
    raise ConversionError(
        f"actions of {space} cannot be written as text. Discrete, MultiDiscrete, MultiBinary, Box, Text, and Tuple, "
        "Dict and Sequence of these can: wrap the env so that it takes one of them"
    )


def _shape(shape: tuple[int, ...], noun: str) -> str:
    if not shape:
        return f"a {noun}"
    return f"a list of {' lists of '.join(map(str, shape))} {noun}{'s' if shape[-1] != 1 else ''}"


def _ranges(low: Any, high: Any) -> str:
    """The bounds of an array's members, in words; of each member if there are a few."""
    low, high = np.ravel(low).tolist(), np.ravel(high).tolist()
    pairs = list(dict.fromkeys(zip(low, high, strict=True)))
    if len(pairs) == 1:
        return f" {_range(*pairs[0])}".rstrip()
    if len(low) > 20:
        return f" {_range(min(low), max(high))}, and each within its own bounds"
    return ": " + ", ".join(_range(*pair) or "any" for pair in zip(low, high, strict=True))


def _range(low: float, high: float) -> str:
    above, below = low > -_UNBOUNDED, high < _UNBOUNDED
    if above and below:
        return f"from {low:.6g} to {high:.6g}"
    return f"from {low:.6g} up" if above else f"up to {high:.6g}" if below else ""


def _is_text(space: gymnasium.Space[Any]) -> bool:
    return isinstance(space, spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


# Names of actions


def _checked(names: Names, space: gymnasium.Space[Any]) -> dict[int, str]:
    """The name of each action that has one."""
    if not isinstance(space, spaces.Discrete):
        raise InvalidOption(f"actions of {space} have no names; leave out actions=..., or use a Discrete space")
    first, last = int(space.start), int(space.start + space.n - 1)
    if not isinstance(names, Mapping) and len(names) != space.n:
        raise InvalidOption(f"actions={names!r} gives {len(names)} names for the {space.n} actions of {space}")
    named = dict(names) if isinstance(names, Mapping) else dict(enumerate(names, first))
    if strange := [number for number in named if number not in range(first, last + 1)]:
        raise InvalidOption(f"actions={names!r} names {strange}; the actions of {space} go from {first} to {last}")
    for name in named.values():
        if not name.strip() or set(name) & set("[]") or _NUMBER.fullmatch(name.strip()):
            raise InvalidOption(f"{name!r} is no name for an action: a name has no brackets and is not a number")
    if len({_folded(name) for name in named.values()}) < len(named):
        raise InvalidOption(f"actions={names!r} gives two actions the same name")
    return named


def _folded(name: str) -> str:
    """A name without regard to case and spaces."""
    return " ".join(name.split()).casefold()


# Text as actions


def _json_values(text: str) -> Iterator[Any]:
    """The text as JSON, or else the JSON values that begin at its brackets."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    try:
        yield decoder.decode(text)
    except (ValueError, RecursionError):
        for bracket in itertools.islice(re.finditer(r"[\[{]", text), _TRIES):
            try:
                value, _ = decoder.raw_decode(text, bracket.start())
            except (ValueError, RecursionError):
                continue
            yield value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def _member(space: gymnasium.Space[Any], value: Any) -> Any:
    """Plain data as a member of the space.

    Raises:
        ValueError, OverflowError: it does not belong to the space.
    """
    member: Any
    if isinstance(space, spaces.Discrete):
        if type(value) is not int:
            raise ValueError
        member = space.dtype.type(value)
    elif isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
        member = _array_of(_flat(value, space.shape), space)
    elif isinstance(space, spaces.Tuple):
        member = tuple(_member(part, given) for part, given in zip(space, _require(list, value), strict=True))
    elif isinstance(space, spaces.Dict):
        if _require(dict, value).keys() != set(map(str, space)):
            raise ValueError
        member = {key: _member(part, value[str(key)]) for key, part in space.items()}
    elif isinstance(space, spaces.Sequence):
        member = tuple(_member(space.feature_space, given) for given in _require(list, value))
    else:
        member = _require(str, value)
    if not space.contains(member):
        raise ValueError
    return member


def _require(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError
    return value


def _flat(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """The numbers in nested lists of this shape. Where there is only one, it may stand alone."""
    if not isinstance(value, list):
        if math.prod(shape) != 1:
            raise ValueError
        return [value]
    if not shape or len(value) != shape[0]:
        raise ValueError
    return [number for part in value for number in _flat(part, shape[1:])]


def _array_of(numbers: list[Any], space: gymnasium.Space[Any]) -> Any:
    assert space.dtype is not None and space.shape is not None
    switches = isinstance(space, spaces.MultiBinary) or space.dtype.kind == "b"
    kinds = (int,) if space.dtype.kind in "iub" else (int, float)
    for number in numbers:
        if not isinstance(number, kinds) or (isinstance(number, bool) and not switches):
            raise ValueError
    with np.errstate(over="ignore"):
        array = np.array(numbers, dtype=space.dtype).reshape(space.shape)
    if not np.isfinite(array).all():
        raise ValueError
    return array
