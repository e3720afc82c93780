"""The tools that every domain offers: a calculator, a place to think, and handing the customer over."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from typing import Any

from marl_gem.scenarios.tau.database import Session
from marl_gem.scenarios.tau.tool import Refused, tool

_ALLOWED = "0123456789+-*/(). "
_BITS = 200_000
"""Whole numbers above so many bits are not worked out; as no float holds them, the answer is the same."""

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


@tool
def calculate(db: Session, expression: str) -> str:
    """Work out an arithmetic expression.

    Args:
        expression: Numbers, + - * / and parentheses, such as '2 * (12.50 + 3)'.
    """
    if not all(character in _ALLOWED for character in expression):
        raise Refused("invalid characters in expression")
    if not isinstance(expression, str):
        raise Refused("eval() arg 1 must be a string, bytes or code object")
    return str(round(float(_evaluate(expression)), 2))


@tool
def think(db: Session, thought: str) -> str:
    """Think something over. Nobody sees it, and nothing changes.

    Args:
        thought: What goes through your mind.
    """
    return ""


@tool
def transfer_to_human_agents(db: Session, summary: str) -> str:
    """Hand the customer over to a human colleague, if policy says so or no tool can do what is needed.

    Args:
        summary: The customer's problem, for the colleague.
    """
    return "Transfer successful"


def _evaluate(expression: str) -> Any:
    """What Python makes of the expression, without running it: errors are those of `eval`."""
    expression = expression.lstrip(" \t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about `2(3)`, which is an error below
        compile(expression, "<string>", "eval")  # errors that only the compiler sees
        return _value(ast.parse(expression, "<string>", "eval").body)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand)
        return -operand if isinstance(node.op, ast.USub) else +operand
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(left, int) and isinstance(right, int):
            _guard(node.op, left, right)
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.Call):
        called, _ = _value(node.func), [_value(argument) for argument in node.args]
        raise TypeError(f"{type(called).__name__!r} object is not callable")
    if isinstance(node, ast.Starred):
        raise TypeError(f"Value after * must be an iterable, not {type(_value(node.value)).__name__}")
    return tuple(_value(element) for element in getattr(node, "elts", ()))


def _guard(how: ast.operator, left: int, right: int) -> None:
    bits = left.bit_length() * right if isinstance(how, ast.Pow) and abs(left) > 1 else left.bit_length()
    if bits + right.bit_length() * isinstance(how, ast.Mult) > _BITS:
        raise OverflowError("int too large to convert to float")
