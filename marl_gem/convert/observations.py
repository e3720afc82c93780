"""Observations of other libraries as text, and infos as plain data."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from marl_gem.errors import ConversionError

_FEW_PLANES = 10
"""Up to so many planes are all written out or drawn as one picture."""


def describe(value: Any, space: Any = None) -> str:
    """An observation in words and numbers: dicts by their keys, arrays in rows, floats in four digits.

    How planes (arrays with three axes) are written depends on the space alone, so that an env's observations
    always have the same form: a board of up to 10 planes that hold nothing but 0 and 1 is one picture, with a
    letter for each plane; up to 10 other planes are all written out; more than 10 are written out, too, except
    that planes which hold the same number everywhere are named in one line.

    Args:
        value: the observation.
        space: the space it belongs to (a dict or a sequence of spaces will do), or None if that is unknown.
    """
    if isinstance(value, Mapping):
        inner: Any = space if isinstance(space, Mapping) else {}
        return "\n".join(_labelled(str(key), describe(part, inner.get(key))) for key, part in value.items())
    if isinstance(value, np.ndarray):
        return _array(value, _is_binary(space))
    if isinstance(value, list | tuple):
        known = isinstance(space, Sequence) and len(space) == len(value)
        inner = space if known else [None] * len(value)
        parts = [describe(part, its_space) for part, its_space in zip(value, inner, strict=True)]
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
    """Refuse spaces of images, and of more than 20,000 numbers.

    Raises:
        ConversionError: the space holds such observations.
    """
    for part in _parts(space):
        if isinstance(part, spaces.Box):
            picture = part.dtype == np.uint8 and len(part.shape) > 1 and min(part.shape[:2]) >= 32
            if picture or math.prod(part.shape) > 20_000:
                raise ConversionError(
                    f"observations of {'pixels' if picture else 'so many numbers'}, {part.dtype} of shape "
                    f"{part.shape}, cannot be written as numbers. Put it in words: describe=a function of agent and "
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


def _is_binary(space: object) -> bool:
    """Whether nothing but the whole numbers 0 and 1 belongs to the space."""
    if isinstance(space, spaces.Box) and not np.issubdtype(space.dtype, np.floating):
        return bool((space.low >= 0).all() and (space.high <= 1).all())
    return isinstance(space, spaces.MultiBinary)


def _array(array: np.ndarray[Any, Any], binary: bool) -> str:
    if array.dtype.kind == "b":
        array = array.astype(np.int8)  # truth as 0 and 1
    if array.ndim == 0:
        return describe(array.item())
    if array.ndim == 1:
        return _vector(array)
    if array.ndim == 2:
        return _grid([_cells(row) for row in array])
    if array.ndim == 3:
        return _planes(array, binary)
    return "\n".join(_labelled(f"({n})", _array(part, binary)) for n, part in enumerate(array, 1))


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, all as wide as the widest."""
    width = max((len(cell) for row in rows for cell in row), default=0)
    return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in rows)


def _cells(row: np.ndarray[Any, Any]) -> list[str]:
    return [_number(cell) if isinstance(cell, float) else str(cell) for cell in row.tolist()]


def _vector(vector: np.ndarray[Any, Any]) -> str:
    """A row of numbers. A long row of whole numbers, most of them 0, is written as the positions of the others."""
    zeros = np.count_nonzero(vector == 0)
    if len(vector) < 16 or 2 * zeros < len(vector) or not (vector == np.round(vector)).all():
        return " ".join(_cells(vector))
    values = [f"{_number(value)} at {_runs(np.flatnonzero(vector == value))}" for value in np.unique(vector) if value]
    return "; ".join([f"{len(vector)} numbers, 0 to {len(vector) - 1}", *values, "else 0"])


def _runs(indices: np.ndarray[Any, Any]) -> str:
    """Indices in order, with runs as `3-7`."""
    runs = np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _planes(array: np.ndarray[Any, Any], binary: bool) -> str:
    """Planes lie along the last axis, as PettingZoo's boards have them, or the first if the other two are equal."""
    if array.shape[0] != array.shape[1] == array.shape[2]:
        array = np.moveaxis(array, 0, -1)
    planes = [array[..., number] for number in range(array.shape[-1])]
    if len(planes) > _FEW_PLANES:
        return _many_planes(planes)
    if binary:
        return _picture(planes)
    return "\n".join(f"plane {number}:\n{_array(plane, binary)}" for number, plane in enumerate(planes))


def _picture(planes: Sequence[np.ndarray[Any, Any]]) -> str:
    """Planes of 0 and 1 in one grid: each cell holds the letters of the planes that are set there."""
    letters = string.ascii_uppercase[: len(planes)]
    names = ", ".join(f"{letter} is plane {number}" for number, letter in enumerate(letters))
    rows = [
        ["".join(itertools.compress(letters, cell)) or "." for cell in zip(*row, strict=True)]
        for row in zip(*(plane.tolist() for plane in planes), strict=True)
    ]
    return f"{names}, . is none:\n{_grid(rows)}"


def _many_planes(planes: Sequence[np.ndarray[Any, Any]]) -> str:
    """All planes written out, except that those which hold one number everywhere are named together at the end."""
    numbers: dict[str, list[int]] = {}  # of planes, by the number that they hold everywhere
    lines = []
    for index, plane in enumerate(planes):
        if plane.size and (plane == plane.flat[0]).all():
            numbers.setdefault(_number(plane.flat[0]), []).append(index)
        else:
            lines.append(f"plane {index}:\n{_array(plane, False)}")
    for number, indices in numbers.items():
        lines.append(f"all {number}: plane{'s' if len(indices) > 1 else ''} {_runs(np.array(indices))}")
    return "\n".join(lines)
