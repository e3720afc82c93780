"""Every field of a training configuration, from the comment that stands above it in `trainers/config.py`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from generate.markdown import Undocumented, code, escape, table

SOURCE = Path(__file__).parents[2] / "trainers" / "config.py"


class Field(NamedTuple):
    """One field: its name, type and default as they are written, and the comment above it as one line."""

    name: str
    type: str
    default: str
    comment: str


def structs(source: str) -> dict[str, tuple[str, list[Field]]]:
    """The configuration structs in a module's source: by name the docstring and the fields."""
    lines = source.splitlines()
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and any(_is_section(base) for base in node.bases):
            fields = [
                Field(
                    statement.target.id,
                    ast.unparse(statement.annotation),
                    ast.unparse(statement.value) if statement.value else "",
                    _comment_above(lines, statement.lineno - 1),
                )
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            ]
            if fields:
                found[node.name] = (ast.get_docstring(node) or "", fields)
    return found


def _is_section(base: ast.expr) -> bool:
    name = ast.unparse(base)
    return name.endswith(("Section", "Struct", "Config"))


def _comment_above(lines: list[str], index: int) -> str:
    comment: list[str] = []
    while index > 0 and (match := re.match(r"\s*# ?(.*)", lines[index - 1])):
        comment.insert(0, match[1])
        index -= 1
    return " ".join(comment)


def tables(source: str) -> dict[str, str]:
    """Where each struct stands in a configuration file: by class name the table, such as `self_play`."""
    from marl_gem.trainers import config

    found = {"TrainConfig": ""}
    pending: list[tuple[Any, str]] = [(config.TrainConfig, "")]
    while pending:
        struct, prefix = pending.pop()
        for field in msgspec.structs.fields(struct):
            for kind in _structs_in(field.type):
                name = f"{prefix}{field.encode_name}"
                if kind.__name__ not in found:
                    found[kind.__name__] = name
                    pending.append((kind, f"{name}."))
    return found


def _structs_in(kind: Any) -> list[Any]:
    arguments = getattr(kind, "__args__", ())
    nested = [struct for argument in arguments for struct in _structs_in(argument)]
    return ([kind] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []) + nested


def pages() -> dict[str, str]:
    """The page of all fields.

    Raises:
        Undocumented: a field has no comment above it.
    """
    source = SOURCE.read_text("utf-8")
    names = tables(source)
    sections = [INTRO]
    for struct, (docstring, fields) in sorted(structs(source).items(), key=lambda item: names.get(item[0], "")):
        if struct not in names:
            continue
        for field in fields:
            if not field.comment:
                raise Undocumented(f"{SOURCE.name}: {struct}.{field.name} has no comment above it")
        title = f"`[{names[struct]}]`" if names[struct] else "At the top"
        rows = [(code(f.name), code(f.type), code(f.default), escape(f.comment)) for f in fields]
        sections.append(f"## {title}\n\n{docstring}\n\n" + table(("field", "type", "default", "meaning"), rows))
    return {"config": "\n".join(sections)}


INTRO = """# Training configuration

A TOML file, or `--set TABLE.FIELD=VALUE` on the command line. Every field has a default except `scenario`, and an
unknown name is an error. `trainers/recipes/` holds the configurations that ship.
"""
