"""Observations of other libraries as text, and infos as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from marl_gem.errors import ConversionError


def describe(value: Any) -> str:
    """An observation in words and numbers: dicts by their keys, arrays in rows, floats in four digits.

    A board that is given as planes, of which at most one is set at each place, is drawn as one picture.
    """
    if isinstance(value, Mapping):
        return "\n".join(_labelled(str(key), describe(part)) for key, part in value.items())
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, list | tuple):
        parts = [describe(part) for part in value]
        simple = not any("\n" in part for part in parts) and not any(isinstance(part, list | tuple) for part in value)
        return " ".join(parts) if simple else "\n".join(_labelled(f"({n})", part) for n, part in enumerate(parts, 1))
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return _number(value) if isinstance(value, float | np.floating) else str(value)


def plain(value: Any) -> Any:
    """As plain data, fit for JSON. What JSON cannot hold, such as NaN or a surface, becomes its name."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    return value if value is None or isinstance(value, bool | int) else f"<{type(value).__name__}>"


def require_readable(space: gymnasium.Space[Any]) -> None:
    """Refuse observations that are pictures, or too large to be read.

    Raises:
        ConversionError: the space holds such.
    """
    for part in _parts(space):
        if isinstance(part, spaces.Box):
            picture = part.dtype == np.uint8 and len(part.shape) > 1 and min(part.shape[:2]) >= 32
            if picture or math.prod(part.shape) > 20_000:
                raise ConversionError(
                    f"observations of {'pixels' if picture else 'so many numbers'}, {part.dtype} of shape "
                    f"{part.shape}, cannot be told as numbers. Say it in words: describe=a function of agent and "
                    'observation that gives a text or content parts, or describe="render" if the env renders text'
                )


def _parts(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    """A space and all that it is made of."""
    yield space
    inner: Any = space.values() if isinstance(space, spaces.Dict) else space if isinstance(space, spaces.Tuple) else ()
    for part in inner:
        yield from _parts(part)


def _labelled(label: str, text: str) -> str:
    return f"{label}:\n{text}" if "\n" in text else f"{label}: {text}"


def _number(number: Any) -> str:
    return f"{float(number) + 0.0:.4g}"  # no -0


def _array(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.kind == "b":
        array = array.astype(np.int8)  # truth as 0 and 1
    if array.ndim == 0:
        return describe(array.item())
    if array.ndim == 1:
        return _vector(array)
    if array.ndim == 2:
        width = max(map(len, _cells(array.ravel())), default=0)
        return "\n".join(" ".join(cell.rjust(width) for cell in _cells(row)) for row in array)
    if array.ndim == 3:
        return _planes(array)
    return "\n".join(_labelled(f"({n})", _array(part)) for n, part in enumerate(array, 1))


def _cells(row: np.ndarray[Any, Any]) -> list[str]:
    return [_number(cell) if isinstance(cell, float) else str(cell) for cell in row.tolist()]


def _vector(vector: np.ndarray[Any, Any]) -> str:
    """A row of numbers. Long rows of whole numbers, most of them 0, are told by where the others are."""
    zeros = np.count_nonzero(vector == 0)
    if len(vector) < 16 or 2 * zeros < len(vector) or not (vector == np.round(vector)).all():
        return " ".join(_cells(vector))
    told = [f"{_number(value)} at {_runs(np.flatnonzero(vector == value))}" for value in np.unique(vector) if value]
    return "; ".join([f"{len(vector)} numbers, 0 to {len(vector) - 1}", *told, "else 0"])


def _runs(places: np.ndarray[Any, Any]) -> str:
    """Places in order, with runs as `3-7`."""
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _planes(array: np.ndarray[Any, Any]) -> str:
    """Planes lie along the last axis, as PettingZoo's boards have them, or the first if the other two are equal."""
    if array.shape[0] != array.shape[1] == array.shape[2]:
        array = np.moveaxis(array, 0, -1)
    count = array.shape[-1]
    one_hot = count <= 10 and np.isin(array, (0, 1)).all() and (array.sum(axis=-1) <= 1).all()
    if one_hot:
        marks = np.where(array.any(axis=-1), array.argmax(axis=-1).astype(str), ".")
        return f"planes 0 to {count - 1} in one picture, . for none:\n" + "\n".join(
            " ".join(row) for row in marks.tolist()
        )
    uniform = {n: array.flat[n] for n in range(count) if array.size and (array[..., n] == array[0, 0, n]).all()}
    told = [f"plane {n}:\n{_array(array[..., n])}" for n in range(count) if n not in uniform]
    return "\n".join([*told, *_uniform(uniform)])


def _uniform(planes: Mapping[int, Any]) -> Iterator[str]:
    """Planes that hold one number all over, those of the same number together."""
    numbers = [_number(value) for value in planes.values()]
    for number in dict.fromkeys(numbers):
        which = np.array([n for n, other in zip(planes, numbers, strict=True) if other == number])
        yield f"all {number}: plane{'s' if len(which) > 1 else ''} {_runs(which)}"
