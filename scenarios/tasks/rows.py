"""Rows of a data set: JSONL, JSON and parquet files, `datasets` objects, lists of dicts, functions that give them.

Every row comes with where it stands, for messages: "gsm8k.jsonl, line 7".
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from marl_gem.errors import MissingPackage, RecordError
from marl_gem.faults import foreign_code, message_of, type_name
from marl_gem.types import read_json

Row: TypeAlias = Mapping[str, Any]
Located: TypeAlias = tuple[str, Row]
Source: TypeAlias = str | Path | Iterable[Row] | Mapping[str, Any] | Callable[..., Any]
"""A file, a `datasets` object, rows, or a function that gives one of these; or a dict of these by split."""


def splits_of(source: Source, column: str = "split") -> dict[str, list[Located]]:
    """The rows of each split.

    Args:
        source: a file or rows; or a dict of these by split. A function is called, with the name of the split if it has
            a parameter `split`, and then gives one split after the other for the names in its default, a tuple.
        column: the column that names a row's split, where rows have it and the source is no dict.

    Returns:
        the rows by split; the only split is "all" where nothing names splits.

    Raises:
        RecordError: a file cannot be read, or holds what is no row; the message says where.
        MissingPackage: parquet is to be read, and pyarrow is not installed.
    """
    if isinstance(source, Mapping):
        if not source:
            raise RecordError("the data set has no splits")
        return {str(split): list(rows_of(part, str(split))) for split, part in source.items()}
    if callable(source):
        with foreign_code("the function that gives the data set failed", RecordError):
            return splits_of(source(), column)
    splits: dict[str, list[Located]] = {}
    for where, row in rows_of(source):
        split = row.get(column, "all")
        if not isinstance(split, str):
            raise RecordError(f"{where}: {column} is a text, not {type_name(split)}")
        splits.setdefault(split, []).append((where, row))
    return splits


def rows_of(source: Any, name: str = "") -> Iterator[Located]:
    """The rows of a file or an iterable, with where they stand. See `splits_of`."""
    if callable(source):
        with foreign_code("the function that gives the data set failed", RecordError):
            source = source()
    if isinstance(source, (str, Path)):
        yield from _rows_of_file(Path(source))
        return
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise RecordError(f"a data set is a file, rows or a function that gives rows, not {type_name(source)}")
    prefix = f"{name}, row" if name else "row"
    for number, row in enumerate(source):
        yield _as_row(f"{prefix} {number}", row)


def _rows_of_file(path: Path) -> Iterator[Located]:
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    if path.suffix not in readers:
        raise RecordError(f"{path}: a data set is a file that ends in .jsonl, .json or .parquet")
    try:
        yield from readers[path.suffix](path)
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or message_of(error)}") from error


def _jsonl(path: Path) -> Iterator[Located]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    yield _as_row(where, read_json(text))
            except ValueError as error:
                raise RecordError(f"{where}: no JSON: {error}") from error


def _json(path: Path) -> Iterator[Located]:
    try:
        rows = read_json(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise RecordError(f"{path}: no JSON: {error}") from error
    if not isinstance(rows, list):
        raise RecordError(f"{path}: a list of rows is expected, not {type_name(rows)}")
    for number, row in enumerate(rows):
        yield _as_row(f"{path}, row {number}", row)


def _parquet(path: Path) -> Iterator[Located]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackage("pyarrow", "parquet", f"reading {path}") from error
    numbers = itertools.count()
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    yield f"{path}, row {next(numbers)}", row
    except pyarrow.ArrowException as error:
        raise RecordError(f"{path}: no parquet: {message_of(error)}") from error


def _as_row(where: str, row: Any) -> Located:
    if not isinstance(row, Mapping):
        raise RecordError(f"{where}: a row is an object with named columns, not {type_name(row)}")
    return where, row


def text_in(row: Row, column: str, where: str) -> str:
    """A column that holds text, not an empty one.

    Raises:
        RecordError: there is no such column, or it holds something else.
    """
    value = value_in(row, column, where)
    if not isinstance(value, str) or not value.strip():
        raise RecordError(f"{where}: {column} is a text that is not empty, not {_shown(value)}")
    return value


def value_in(row: Row, column: str, where: str) -> Any:
    """A column.

    Raises:
        RecordError: there is no such column.
    """
    if column not in row:
        raise RecordError(f"{where}: there is no column {column!r}; there are {', '.join(map(str, row)) or 'none'}")
    return row[column]


def answer_of(value: Any, where: str, column: str) -> str | list[str]:
    """An answer, or several: numbers are written as texts.

    Raises:
        RecordError: it is something else.
    """
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, Sequence) and value:
        answers = [answer_of(part, where, column) for part in value]
        if all(isinstance(answer, str) for answer in answers):
            return answers  # type: ignore[return-value]
    raise RecordError(f"{where}: {column} is a text, a number or a list of them, not {_shown(value)}")


def _shown(value: Any) -> str:
    return repr(value)[:80] if isinstance(value, (str, int, float, bool, type(None))) else type_name(value)


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters; none where they cannot be known."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()
