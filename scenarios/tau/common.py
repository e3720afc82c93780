"""The tools that every official domain has: a calculator, a note for thoughts, and a transfer to a human."""

from __future__ import annotations

import ast
import operator
import re
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from marl_gem.scenarios.tau.database import Session
from marl_gem.scenarios.tau.tool import Refused, tool

_ALLOWED = "0123456789+-*/(). "
_LONGEST = 100_000
"""The most characters of an expression: the parser needs about 250 times their memory."""
_BITS = 200_000
"""The most bits of an integer: larger ones are not computed, as they do not fit into a float."""
_ALL_BITS = 10_000_000
"""The most bits of all integers of an expression together; bounds the time to about a second."""
_CALL = re.compile(r"[\d.)] *\(")

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
    if len(expression) > _LONGEST:
        raise Refused("expression too long")
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
    """The value of an expression as in Python, computed without `eval`; errors are those of `eval`.

    It runs in a new thread: the depth of nesting that the parser and the compiler accept depends on the stack they are
    called from, and the result must not depend on the caller's.
    """
    result: list[Any] = []

    def work() -> None:
        try:
            result.extend((_parse_and_evaluate(expression.lstrip(" \t")), None))
        except Exception as error:
            result.extend((None, error))

    thread = threading.Thread(target=work, name="marl_gem-calculate")
    thread.start()
    thread.join()
    value, error = result
    if error is not None:
        raise error
    return value


def _parse_and_evaluate(expression: str) -> Any:
    if not _CALL.search(expression):  # the compiler warns of calls of numbers, which fail anyway
        compile(expression, "<string>", "eval")  # for its limit on nesting
    return _Calculator().value(ast.parse(expression, "<string>", "eval").body)


class _Calculator:
    """Evaluates one expression; raises OverflowError if its integers exceed the limits above."""

    def __init__(self) -> None:
        self._bits = 0

    def value(self, node: ast.expr) -> Any:
        """The value of a node. Nesting to the left, as in a long sum, is evaluated without recursion."""
        outer: list[ast.BinOp | ast.UnaryOp] = []
        while isinstance(node, (ast.BinOp, ast.UnaryOp)):
            outer.append(node)
            node = node.left if isinstance(node, ast.BinOp) else node.operand
        value = self._atom(node)
        for operation in reversed(outer):
            if isinstance(operation, ast.UnaryOp):
                value = -value if isinstance(operation.op, ast.USub) else +value
                continue
            right = self.value(operation.right)
            if isinstance(value, int) and isinstance(right, int):
                self._check_size(operation.op, value, right)
            value = _BINARY[type(operation.op)](value, right)
        return value

    def _atom(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Call):
            self._fail_to_call(node)
        return tuple(self.value(element) for element in getattr(node, "elts", ()))

    def _fail_to_call(self, node: ast.Call) -> NoReturn:
        """Raise Python's error for `2(3)`, `2(*3)` or `2(**3)`; without commas there is only one argument."""
        called = self.value(node.func)
        for argument in node.args:
            value = self.value(argument.value if isinstance(argument, ast.Starred) else argument)
            if isinstance(argument, ast.Starred) and not isinstance(value, tuple):
                raise TypeError(f"{called} argument after * must be an iterable, not {type(value).__name__}")
        for keyword in node.keywords:
            given = type(self.value(keyword.value)).__name__
            raise TypeError(f"{called} argument after ** must be a mapping, not {given}")
        raise TypeError(f"{type(called).__name__!r} object is not callable")

    def _check_size(self, how: ast.operator, left: int, right: int) -> None:
        size, other = left.bit_length(), right.bit_length()
        if isinstance(how, ast.Mult):
            size += other
        elif isinstance(how, ast.Pow) and abs(left) > 1:
            size *= max(right, 0)
        self._bits += size + other
        if size > _BITS or self._bits > _ALL_BITS:
            raise OverflowError("int too large to convert to float")
