"""Every field of a training configuration, from the comment that stands above it in the source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

from generate.markdown import Undocumented, code, escape, table
from marl_gem.trainers.config_text import field_comments

INTRO = """# Training configuration

A TOML file, or `--set SECTION.FIELD=VALUE` on the command line. An unknown name is an error. Every field has a default,
except the scenario. The recipes in `trainers/recipes/` are configurations that ship.
"""


class Field(NamedTuple):
    """A field of a configuration: its name, type and default as they are written, and the comment above it."""

    name: str
    type: str
    default: str
    comment: str


def pages() -> dict[str, str]:
    """The page of all fields, and of the options of each algorithm.

    Raises:
        Undocumented: a field has no comment above it.
    """
    from marl_gem.trainers import algorithms, config

    text = INTRO
    for struct, name in _sections(config.TrainConfig):
        text += f"\n## {_title(name)}\n\n{inspect.getdoc(struct)}\n\n{_table(struct)}"
    for name in algorithms.algorithms():
        algorithm = algorithms.algorithm_class(name)
        text += f'\n## Options of the algorithm "{name}"\n\n{inspect.getdoc(algorithm)}\n\n'
        text += f"`[algorithm.options]`\n\n{_table(algorithm.Options)}" if fields(algorithm.Options) else "None.\n"
    return {"config": text}


def _title(name: str) -> str:
    return f"`[{name}]`" if name else "At the top"


def _table(struct: type[msgspec.Struct]) -> str:
    rows = [
        (code(field.name), code(field.type), code(field.default), escape(field.comment)) for field in fields(struct)
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _sections(struct: type[msgspec.Struct], name: str = "") -> list[tuple[type[msgspec.Struct], str]]:
    """A struct and those in its fields, each with its name in a file, such as `training`."""
    found = [(struct, name)]
    for field in msgspec.structs.fields(struct):
        for nested in _structs_in(field.type):
            found += _sections(nested, f"{name}.{field.encode_name}".strip("."))
    return found


def _structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    nested = [struct for argument in get_args(kind) for struct in _structs_in(argument)]
    return [kind, *nested] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else nested


def fields(struct: type[msgspec.Struct]) -> list[Field]:
    """The fields of a struct that are no sections of their own, in the order of its source, then inherited ones.

    Raises:
        Undocumented: one has no comment above it.
    """
    found: dict[str, Field] = {}
    for base in struct.__mro__:
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            for field in _own_fields(base):
                found.setdefault(field.name, field)
    return list(found.values())


def _own_fields(struct: type[msgspec.Struct]) -> list[Field]:
    source = textwrap.dedent(inspect.getsource(struct))
    comments = field_comments(struct)
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = []
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if isinstance(types[name], type) and issubclass(types[name], msgspec.Struct):
                continue  # a section of its own
            comment = comments[name]
            if not comment:
                raise Undocumented(f"{struct.__module__}.{struct.__qualname__}.{name} has no comment above it")
            default = ast.unparse(statement.value) if statement.value else ""
            found.append(Field(name, _type(types[name], statement.annotation), default, comment))
    return found


def _type(kind: Any, written: ast.expr) -> str:
    """A type as it is written; of a number with bounds, the bounds instead of their name."""
    if get_origin(kind) is not Annotated:
        return ast.unparse(written)
    base, *metas = get_args(kind)
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [
        f"{sign} {value}"
        for meta in metas
        for name, sign in signs.items()
        if (value := getattr(meta, name, None)) is not None
    ]
    return " ".join([base.__name__, ", ".join(bounds)]).strip()
