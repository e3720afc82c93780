"""What every command refuses before it begins: empty values, and options that are given twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command of marl-gem; pass it as `cls` when a function is registered."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words behind the command.

        Raises:
            typer.BadParameter: a value is empty, or an option that counts once is given twice. Python would take an
                empty path for the current folder, and of two values one would be lost.
        """
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(order).items():
            name = parameter.opts[-1] if parameter.param_type_name == "option" else (parameter.name or "").upper()
            values = given.get(parameter.name or "")
            if times > 1 and not parameter.multiple and not getattr(parameter, "is_flag", False):
                raise typer.BadParameter(f"it is given {times} times; give it once", ctx, param_hint=name)
            if any(value == "" for value in (values if isinstance(values, (list, tuple)) else [values])):
                raise typer.BadParameter("it is empty; write a value, or leave it out", ctx, param_hint=name)
        rest: list[str] = super().parse_args(ctx, args)
        return rest
