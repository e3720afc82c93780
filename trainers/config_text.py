"""A configuration as TOML, complete and with the meaning of each field, which reads back equal."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from marl_gem.errors import ConfigError
from marl_gem.trainers.sections import TrainConfig

WIDTH = 118
"""Of a line of comments."""


def to_toml(config: TrainConfig) -> str:
    """A configuration as TOML: `config.parse` of it is equal to the configuration.

    Raises:
        ConfigError: it holds a text that no file can.
    """
    text = "\n".join(_table(config, "")).strip() + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the configuration holds a text that cannot be written: {error.reason}") from error
    return text


def field_comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The comment above each field of a struct in its source, inherited fields included; empty where there is none."""
    found: dict[str, str] = {}
    for base in struct.__mro__:
        if not (issubclass(base, msgspec.Struct) and base is not msgspec.Struct):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        (definition,) = ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found.setdefault(statement.target.id, _comment_above(source.splitlines(), statement.lineno - 1))
    return found


def _comment_above(lines: list[str], index: int) -> str:
    comment: list[str] = []
    while index > 0 and (match := re.match(r"\s*# ?(.*)", lines[index - 1])):
        comment.insert(0, match[1])
        index -= 1
    return " ".join(comment)


def _table(section: msgspec.Struct, name: str) -> Iterator[str]:
    """The lines of a section: its values, then the sections in it."""
    comments = field_comments(type(section))
    inner: list[tuple[str, Any]] = []
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if _holds_sections(value):
            inner.append((f"{name}.{field}".strip("."), value))
        elif value is not None:  # not set, which TOML has no word for
            yield from ("", *(f"# {line}" for line in textwrap.wrap(comments[field], WIDTH)))
            yield f"{field} = {_value(msgspec.to_builtins(value))}"
    for path, value in inner:
        if isinstance(value, msgspec.Struct):
            yield from ("", f"[{path}]", *_table(value, path))
        elif isinstance(value, Mapping):
            for key, part in value.items():
                quoted = f"{path}.{_key(key)}"
                yield from ("", f"[{quoted}]", *_table(part, quoted))
        else:
            for part in value:
                yield from ("", f"[[{path}]]", *_table(part, path))


def _holds_sections(value: Any) -> bool:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else [value]
    return any(isinstance(item, msgspec.Struct) for item in items)


def _value(value: Any) -> str:
    """Plain data as TOML in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        items = [f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None]
        return "{ " + ", ".join(items) + " }" if items else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _value(key)
