"""The calculator: exact arithmetic that no expression can break."""

from __future__ import annotations

import asyncio
import random

import pytest

from marl_gem.tools.calculator import calculator


def answer(expression: str) -> str:
    return asyncio.run(calculator.call({"expression": expression})).text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 + 4", "21"),
        ("2 + 3 * 4 - 1", "13"),
        ("-(2 + 3) * -4", "20"),
        ("2 ** 3 ** 2", "512"),
        ("-2 ** 2", "-4"),
        ("2 ** -2", "0.25"),
        ("7 // 2 + 7 % 4", "6"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "0.333333333333333 (exactly 1/3)"),
        ("1.5e3 / 2", "750"),
        ("2 ^ 10", "1024"),
        (".5 * 4", "2"),
        ("10 ** 1000 / 10 ** 999", "10"),
    ],
)
def test_values(expression: str, value: str) -> None:
    assert answer(expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "not complete"),
        ("1 +", "not complete"),
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("5 % 0", "division by zero"),
        ("9 ** 9 ** 9 ** 9", "too large"),
        ("10 ** 100000", "too large"),
        ("2 ** 0.5", "whole number"),
        ("(1", "not closed"),
        ("1)", "')' is not expected"),
        ("1 2", "'2' is not expected"),
        ("* 2", r"a number is missing before '*'"),
        ("__import__('os')", "is no number"),
        ("x + 1", "is no number"),
        ("1" * 1001, "at most 1000 characters"),
        ("(" * 400 + "1" + ")" * 400, "nested too deeply"),
        ("-" * 900 + "1", "nested too deeply"),
        ("1e999 * 1e999", "too large"),
    ],
)
def test_what_is_no_expression_says_why(expression: str, message: str) -> None:
    assert answer(expression).startswith("Error: ") and message in answer(expression)


def test_python_agrees() -> None:
    dice = random.Random(1)
    for _ in range(200):
        expression = str(dice.randrange(9))
        for _ in range(dice.randrange(6)):
            expression = dice.choice(["({} {} {})", "{} {} {}"]).format(
                expression, dice.choice(["+", "-", "*"]), dice.randrange(-9, 9)
            )
        assert answer(expression) == str(eval(expression))
