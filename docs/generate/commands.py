"""Every command of `marl-gem` with its arguments and options, from Typer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from generate.markdown import Undocumented, code, escape, table
from marl_gem.cli import app

VALUES = {"str": "TEXT", "text": "TEXT", "int": "INTEGER", "integer": "INTEGER", "float": "NUMBER", "path": "PATH"}


def pages() -> dict[str, str]:
    """One page with all commands.

    Raises:
        Undocumented: a command or an option has no help.
    """
    root: Any = typer.main.get_command(app)
    sections = [
        section for name, command in root.commands.items() for section in _sections(f"marl-gem {name}", command)
    ]
    intro = "# Commands\n\n`marl-gem COMMAND --help` shows the same in a terminal.\n\n"
    return {"commands": intro + "\n".join(sections)}


def _sections(name: str, command: Any) -> list[str]:
    if hasattr(command, "commands"):
        return [section for part, sub in command.commands.items() for section in _sections(f"{name} {part}", sub)]
    if not command.help:
        raise Undocumented(f"the command {name!r} has no docstring")
    rows = [_row(name, parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    usage = " ".join([name, *(_usage(parameter) for parameter in command.params)]).replace("  ", " ")
    help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    return [f"## `{name}`\n\n{help}\n\n```text\n{usage}\n```\n\n" + table(("option", "default", "what it does"), rows)]


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _argument(parameter) if parameter.required else f"[{_argument(parameter)}]"
    return f"{parameter.opts[-1]} {_value(parameter)}" if parameter.required else ""


def _row(command: str, parameter: Any) -> tuple[str, str, str]:
    if not parameter.help:
        raise Undocumented(f"{parameter.name!r} of {command!r} has no help text")
    if parameter.param_type_name == "argument":
        name = _argument(parameter)
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
        name += "" if parameter.is_flag else f" {_value(parameter)}"
    return code(name), _default(parameter), escape(parameter.help)


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name).upper()


def _value(parameter: Any) -> str:
    """What stands for the value of an option, as `--help` shows it."""
    if parameter.metavar:
        return str(parameter.metavar)
    descriptor = getattr(parameter, "type_descriptor", None)  # Typer's own; releases before 0.20 have click's `type`
    kind = getattr(descriptor.annotation, "__name__", "") if descriptor else parameter.type.name
    return VALUES.get(kind.lower(), "VALUE")


def _default(parameter: Any) -> str:
    default = parameter.default
    return code(str(default)) if default and isinstance(default, str | int | float | Path) else ""
