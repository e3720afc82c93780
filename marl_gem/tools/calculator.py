"""The tool `calculator`: arithmetic, by a parser of its own, with numbers of bounded size."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fractions import Fraction

from marl_gem.tools.functions import tool
from marl_gem.tools.result import ToolError

MOST_CHARACTERS = 1000
MOST_BITS = 4000
"""No number may have a larger numerator or denominator."""

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?|\.\d+)|(\*\*|//|[-+*/%^()]))")
_SIGNS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": lambda left, right: Fraction(left // right),
    "%": operator.mod,
}
_LEVELS = (("+", "-"), ("*", "/", "//", "%"))


@tool(in_thread=False)
def calculator(expression: str) -> str:
    """Calculate the value of an expression, exactly.

    Args:
        expression: Numbers, + - * / // % ** and parentheses, as in "(3 + 4) * 2 ** 10 / 7".
    """
    if len(expression) > MOST_CHARACTERS:
        raise ToolError(f"an expression has at most {MOST_CHARACTERS} characters, not {len(expression):,}")
    return _written(_Parser(_tokens(expression)).value())


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ToolError(f"{text[position : position + 20]!r} is no number, sign or parenthesis")
        tokens.append(token[1] or token[2])
        position = token.end()
    return tokens


class _Parser:
    """Reads tokens from left to right, the weakest signs first."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._position = 0
        self._depth = 0

    def value(self) -> Fraction:
        value = self._sum(0)
        if self._next:
            raise ToolError(f"{self._next!r} is not expected there")
        return value

    @property
    def _next(self) -> str:
        return self._tokens[self._position]

    def _take(self) -> str:
        self._position += 1
        return self._tokens[self._position - 1]

    def _sum(self, level: int) -> Fraction:
        if level == len(_LEVELS):
            return self._signed()
        value = self._sum(level + 1)
        while self._next in _LEVELS[level]:
            sign, right = self._take(), self._sum(level + 1)
            if sign in ("/", "//", "%") and not right:
                raise ToolError("division by zero")
            value = _bounded(_SIGNS[sign](value, right))
        return value

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > 100:
            raise ToolError("the expression is nested too deeply")
        try:
            if self._next in ("+", "-"):
                return self._signed() if self._take() == "+" else -self._signed()
            return self._power()
        finally:
            self._depth -= 1

    def _power(self) -> Fraction:
        base = self._atom()
        if self._next not in ("**", "^"):
            return base
        self._take()
        return _power(base, self._signed())

    def _atom(self) -> Fraction:
        token = self._take()
        if token == "(":
            value = self._sum(0)
            if self._take() != ")":
                raise ToolError("a parenthesis is not closed")
            return value
        if not token or not (token[0].isdigit() or token[0] == "."):
            raise ToolError(f"a number is missing before {token!r}" if token else "the expression is not complete")
        return _bounded(Fraction(token))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ToolError("an exponent must be a whole number")
    if not base and exponent < 0:
        raise ToolError("division by zero")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) not in (0, 1) and abs(exponent) * bits > 2 * MOST_BITS:
        raise ToolError("the result is too large")
    return _bounded(base ** int(exponent))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise ToolError("the result is too large")
    return value


def _written(value: Fraction) -> str:
    """A whole number, or a decimal number, with the fraction where that is not exact."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    try:
        decimal = f"{float(value):.15g}"
    except OverflowError:
        return str(value)
    exact = rest == 1 and Fraction(decimal) == value
    return decimal if exact else f"{decimal} (exactly {value})"
