"""A domain's data: loaded once, shared by all episodes; a record is copied when an episode first writes to it.

    Database   the tables of a domain, never changed after loading
    Session    one episode's view of them, with its changes
    Table      a session's view of one table

A record is a dict of JSON values. Two states are equal if all records are equal as JSON with sorted keys, so 1 and 1.0
differ, as in the official benchmark. The JSON of each record is cached and made again only for records that a session
wrote, so neither a reset nor a comparison reads all data.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


class Database:
    """The tables of a domain, `{"orders": {"#W1": {...}, ...}, ...}`; all episodes share them, so never change them."""

    def __init__(self, tables: Mapping[str, Mapping[str, Record]]) -> None:
        self.tables = {name: dict(records) for name, records in tables.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Database:
        return self

    def session(self, corrected: bool = False) -> Session:
        """A fresh view, for one episode."""
        return Session(self, corrected)

    @cached_property
    def texts(self) -> dict[str, dict[str, str]]:
        """Each record as JSON with sorted keys."""
        return {
            name: {key: canonical(record) for key, record in records.items()} for name, records in self.tables.items()
        }

    @cached_property
    def lines(self) -> dict[str, dict[str, str]]:
        """Each record as it stands in the JSON of its table, by key, sorted."""
        return {name: {key: json_line(key, texts[key]) for key in sorted(texts)} for name, texts in self.texts.items()}

    @cached_property
    def hashes(self) -> list[hashlib._Hash]:
        """The official hash before each table, in the order of their names, and after the last."""
        hashes = [hashlib.sha256(b"{")]
        for index, name in enumerate(sorted(self.tables)):
            hashes.append(hashes[-1].copy())
            hashes[-1].update(table_json(index, name, self.lines[name]))
        return hashes

    @cached_property
    def indexes(self) -> dict[str, Any]:
        """A cache for indexes of the shared data; tools fill it."""
        return {}


class Session:
    """One episode's view of a database: tables by name, each like a dict of records.

    `copy.deepcopy` copies the records that it wrote and shares the others.

    Args:
        database: the shared data.
        corrected: whether tools do what `domain.CORRECTIONS` lists instead of the official behaviour.
    """

    def __init__(self, database: Database, corrected: bool = False) -> None:
        self.database, self.corrected = database, corrected
        self._tables: dict[str, Table] = {}

    def __getitem__(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(self.database, name)
        return table

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        copied = Session(self.database, self.corrected)
        copied._tables = {name: copy.deepcopy(table, memo) for name, table in self._tables.items()}
        return copied

    def differences(self, other: Session) -> list[tuple[str, str]]:
        """Table and key of every record in which two views of one database differ, sorted."""
        return sorted(
            (name, key)
            for name in self._tables.keys() | other._tables.keys()
            for key in self[name].written | other[name].written
            if self[name].text(key) != other[name].text(key)
        )

    def digest(self) -> str:
        """The official hash of all data, in hexadecimal: SHA-256 of `json.dumps(data, sort_keys=True)`."""
        names = sorted(self.database.tables)
        unchanged = next((index for index, name in enumerate(names) if self[name].written), len(names))
        sha = self.database.hashes[unchanged].copy()
        for index, name in enumerate(names[unchanged:], unchanged):
            lines = self.database.lines[name]
            if written := self[name].written:
                lines = lines | {key: json_line(key, self[name].text(key)) for key in written}
                lines = lines if len(lines) == len(self.database.lines[name]) else dict(sorted(lines.items()))
            sha.update(table_json(index, name, lines))
        sha.update(b"}")
        return sha.hexdigest()


class Table:
    """A session's view of one table. Records that are read are shared, so change only those that `edit` returns."""

    def __init__(self, database: Database, name: str) -> None:
        self._shared = database.tables[name]
        self._shared_texts = database.texts[name]
        self._written: dict[str, Record] = {}
        self._written_texts: dict[str, str] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._shared or key in self._written

    def __getitem__(self, key: str) -> Record:
        return self._written[key] if key in self._written else self._shared[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield from (key for key in self._written if key not in self._shared)

    def items(self) -> Iterator[tuple[str, Record]]:
        """Keys and records in the order of the data file, then the added ones."""
        return ((key, self[key]) for key in self)

    def edit(self, key: str) -> Record:
        """The session's copy of a record, to be changed in place."""
        if key not in self._written:
            self._written[key] = copy_json(self._shared[key])
        self._written_texts.pop(key, None)
        return self._written[key]

    def add(self, key: str, record: Record) -> None:
        """Add a record, or replace the one with this key."""
        self._written[key] = record
        self._written_texts.pop(key, None)

    @property
    def written(self) -> set[str]:
        """The keys of the records that this session may have changed."""
        return set(self._written)

    def text(self, key: str) -> str | None:
        """A record as JSON with sorted keys; None if there is none."""
        if key not in self._written:
            return self._shared_texts.get(key)
        if key not in self._written_texts:
            self._written_texts[key] = canonical(self._written[key])
        return self._written_texts[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        copied = Table.__new__(Table)
        copied._shared, copied._shared_texts = self._shared, self._shared_texts
        copied._written, copied._written_texts = copy_json(self._written), self._written_texts.copy()
        return copied


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON value; three times as fast as `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copy_json(part) for key, part in value.items()}
    return [copy_json(part) for part in value] if isinstance(value, list) else value


def json_line(key: str, text: str | None) -> str:
    """A record as it stands in the JSON of its table."""
    return f"{json.dumps(key)}: {text}"


def table_json(index: int, name: str, lines: Mapping[str, str]) -> bytes:
    """A table as it stands in the JSON of all, of which it is the table number `index`."""
    return f"{', ' if index else ''}{json.dumps(name)}: {{{', '.join(lines.values())}}}".encode()


def canonical(record: Record) -> str:
    """A record as JSON with sorted keys; the error's text, which equals no JSON, if it cannot be written."""
    try:
        return json.dumps(record, sort_keys=True)
    except (
        ValueError,
        RecursionError,
    ) as error:  # an integer of too many digits, or too deep for the stack
        return str(error)
