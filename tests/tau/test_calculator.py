"""The tool `calculate`: the answers of Python, within limits of time and memory."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from marl_gem.scenarios.tau.common import calculate
from marl_gem.scenarios.tau.database import Database
from marl_gem.scenarios.tau.tool import call


@given(st.text("0123456789+-*/(). ", max_size=12).filter(lambda text: "**" not in text))
@example("2 * (12.50 + 3)")
@example("1//0")
@example("()")
@example("..." * 3)
@example("2(3)")
@example("2(*3)")
@example("()(*())")
@example("1.5(*2.)")
@example(" 1")
@example("")
def test_it_says_what_python_would(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = str(round(float(eval(expression, {"__builtins__": {}}, {})), 2))
        except Exception as error:
            expected = f"Error: {error}"
    assert (
        call({"calculate": calculate}, Database({}).session(), "calculate", {"expression": expression}, "retail").text
        == expected
    )


def work_out(expression: Any) -> str:
    return call(
        {"calculate": calculate}, Database({}).session(), "calculate", {"expression": expression}, "retail"
    ).text


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("2**10", "1024.0"),
        ("9**0.5", "3.0"),
        ("2**-1", "0.5"),
        ("7//2", "3.0"),
        ("-0.0", "-0.0"),
        ("2(**(3))", "Error: 2 argument after ** must be a mapping, not int"),
        ("9**400/9**399", "9.0"),
        ("9**9**9", "Error: int too large to convert to float"),
        ("9**-9**9", "0.0"),
        ("9.0**9999", "Error: (34, 'Numerical result out of range')"),
        ("__import__('os')", "Error: invalid characters in expression"),
        ("1e5", "Error: invalid characters in expression"),
        ("1,000", "Error: invalid characters in expression"),
        (5, "Error: 'int' object is not iterable"),
        (["1", "+", "1"], "Error: eval() arg 1 must be a string, bytes or code object"),
    ],
)
def test_what_it_works_out(expression: Any, answer: str) -> None:
    assert work_out(expression) == answer


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9",
        "(9**49000//9**20000)" + "+(9**49000//9**20000)" * 500,
        "+".join(["(" + "+".join(["9**49000"] * 500) + ")"] * 100),
        "*".join(["9**9999"] * 1000),
        "9" * 1_000_000,
        "-" * 1_000_000 + "1",
        "(" * 1_000_000,
        "1+" * 500_000 + "1",
        " " * 1_000_000,
        "1 " * 500_000,
    ],
    ids=lambda expression: str(expression)[:20],
)
def test_what_would_take_long_is_refused(expression: str) -> None:
    assert work_out(expression).startswith("Error: ")


def test_it_warns_of_nothing_and_leaves_the_filters_of_warnings_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        assert work_out("2(3)") == "Error: 'int' object is not callable"
        assert work_out("(1)(2)(3)") == "Error: 'int' object is not callable"
        assert warnings.filters == before


@pytest.mark.parametrize("terms", [600, 2500])
def test_a_long_sum_does_not_depend_on_the_stack_of_the_caller(terms: int) -> None:
    def at_depth(frames: int) -> str:
        return at_depth(frames - 1) if frames else work_out("+".join(["1"] * terms))

    assert at_depth(0) == at_depth(600) == at_depth(850) == f"{terms}.0"


@pytest.mark.parametrize("expression", ["+".join(["1"] * 10_000), "-" * 50_000 + "1"], ids=["sum", "minuses"])
def test_what_is_too_long_is_the_same_error_at_any_depth(expression: str) -> None:
    def at_depth(frames: int) -> str:
        return at_depth(frames - 1) if frames else work_out(expression)

    assert at_depth(0).startswith("Error: ") and at_depth(0) == at_depth(850)
