"""What stands in place of `eval` and of SymPy's `parse_expr` in a worker: literals and arithmetic, and nothing else."""

from __future__ import annotations

import ast

import sympy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_CHARACTERS = 20_000
"""A longer text is no answer that is to be evaluated."""

MATHEMATICS = frozenset(
    {
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "cbrt", "Abs", "abs", "sign", "erf"),
        *("Ei", "Si", "Ci", "li", "Rational"),
    }
)
"""The functions that an expression may call."""

_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call, ast.Load, ast.operator, ast.unaryop),
)

original = sympy.parse_expr


def literal(text: Any, *ignored: Any) -> Any:
    """The value of a literal.

    Raises:
        ValueError, SyntaxError: it is none.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise ValueError("no literal")
    return ast.literal_eval(text.strip())


def expression(text: Any, *arguments: Any, **named: Any) -> Any:
    """What `parse_expr` gives, for arithmetic with names and known functions.

    Raises:
        ValueError, SyntaxError: it is something else.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise ValueError("no expression")
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        is_number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
        is_name = not isinstance(node, ast.Name) or not node.id.startswith("_")
        is_known = not isinstance(node, ast.Call) or (
            isinstance(node.func, ast.Name) and node.func.id in MATHEMATICS and not node.keywords
        )
        if not (isinstance(node, _NODES) and is_number and is_name and is_known):
            raise ValueError(f"an expression holds no {type(node).__name__}")
    return original(text, *arguments, **named)
