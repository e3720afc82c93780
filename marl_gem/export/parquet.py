"""Chat rows as a Parquet file, with the type of every column declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marl_gem.errors import MissingPackage

ROWS = 500
"""So many rows are written at once."""


@contextmanager
def parquet_writer(path: Path, native_calls: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that adds a row to a Parquet file; the last ones are written when the block ends.

    Raises:
        MissingPackage: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingPackage(error.name or "pyarrow", "parquet", "writing a Parquet file") from error
    schema = _schema(pyarrow, native_calls)
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, schema) as file:

        def write_rows() -> None:
            file.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            rows.clear()

        def write(row: dict[str, Any]) -> None:
            rows.append(row)
            if len(rows) >= ROWS:
                write_rows()

        yield write
        write_rows()


def _schema(pyarrow: Any, native_calls: bool) -> Any:
    """The columns of `marl_gem.export.chat`."""
    text, number, whole_number = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
    function = pyarrow.struct({"name": text, "arguments": text})
    call = pyarrow.struct({"id": text, "type": text, "function": function})
    message = {"role": text, "content": text, "reasoning_content": text, "name": text, "train": pyarrow.bool_()}
    if native_calls:
        message |= {"tool_calls": pyarrow.list_(call), "tool_call_id": text}
    names = ("run", "episode", "line", "scenario", "seed")
    columns = dict.fromkeys(names, text) | {"repeat": whole_number, "task": whole_number}
    columns |= dict.fromkeys(("grade", "agent", "model", "team", "role", "ending", "outcome"), text)
    columns |= {
        "return": number,
        "turns": pyarrow.list_(whole_number),
        "rewards": pyarrow.list_(number),
        "messages": pyarrow.list_(pyarrow.struct(message)),
        "tools": text,
        "images": pyarrow.list_(text),
        "input_ids": pyarrow.list_(whole_number),
        "loss_mask": pyarrow.list_(whole_number),
        "logprobs": pyarrow.list_(number),
    }
    return pyarrow.schema(columns)
