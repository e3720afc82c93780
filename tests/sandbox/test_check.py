"""Programs are judged from outside, and cannot pass but by being right."""

from __future__ import annotations

import pytest

from marl_gem.tools.sandbox import Case, Limits, check
from tests.sandbox.machine import confined

pytestmark = confined

SHORT = Limits(wall=1.0)
ADD = "def add(a, b):\n    return a + b"
TEST = "assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'"

EQUAL = "class Any{base}:\n    def __eq__(self, other): return True\ndef add(a, b):\n    return Any()"

CHEATS = {
    "says that it passed": "def add(a, b):\n    print('passed'); print('OK'); return 0",
    "exits with 0": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "exits in a call": "import os\ndef add(a, b):\n    os._exit(0)",
    "raises SystemExit in a call": "def add(a, b):\n    raise SystemExit(0)",
    "is equal to everything": EQUAL.format(base="(int)"),
    "returns an object": EQUAL.format(base=""),
    "replaces what tests compare with": "def isinstance(*a): return True\nabs = isinstance\ndef add(a, b): return 0",
    "answers before it is asked": 'import os\nos.write(202, b\'{"names": ["add"]}\\n\' * 9)\nos._exit(0)',
    "sends what is no message": "import os\nos.write(202, b'\\xff\\n')",
    "sends a pickle": "import os, pickle\nos.write(202, pickle.dumps(print) + b'\\n')",
    "sends without end": "import os\nwhile True: os.write(202, b'x' * 65536)",
    "closes the channel": "import os\nos.close(202)\ndef add(a, b): return 3",
    "kills": "import os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)",
    "asserts": "def add(a, b):\n    raise AssertionError",
}


def test_a_right_program_passes() -> None:
    assert [verdict.outcome for verdict in check(ADD, [TEST, "assert add(1, 1) == 2"])] == ["passed", "passed"]


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_does_not_pass(cheat: str) -> None:
    test = "assert add(1, 2) == 3 and add('a', 'b') == 'ab' and abs(add(2, 2) - 4) == 0 and isinstance(add(1, 1), int)"
    (verdict,) = check(CHEATS[cheat], [test + "\nassert add(5, 5) == 10"], SHORT)
    assert not verdict.passed


@pytest.mark.parametrize(
    ("code", "test", "outcome", "detail"),
    [
        ("def add(a, b):\n    return 0", TEST, "failed", "AssertionError in line 1 of the tests"),
        ("def add(a, b):\n    return 1 / 0", TEST, "error", "ZeroDivisionError: division by zero"),
        ("def add(a, b):", TEST, "syntax", "IndentationError"),
        ("def add(a, b):\n    return print", TEST, "error", "only plain data"),
        ("def add(a, b):\n    while True: pass", TEST, "timeout", ""),
        ("while True: pass", TEST, "timeout", ""),
        ("def add(a, b):\n    while True: print('x' * 1000)", TEST, "output", ""),
        ("1 / 0", TEST, "error", "ZeroDivisionError"),
        ("import os\nos.kill(os.getpid(), 11)", TEST, "killed", ""),
        ("", TEST, "error", "NameError"),
        (ADD, "assert add(1, 2) ==", "error", "SyntaxError"),
    ],
)
def test_what_is_wrong_is_told_apart(code: str, test: str, outcome: str, detail: str) -> None:
    (verdict,) = check(code, [test], SHORT if outcome == "timeout" else None)
    assert (verdict.outcome, detail in verdict.detail) == (outcome, True), verdict


def test_plain_data_goes_both_ways() -> None:
    test = """
import math
values = [None, True, 1, 2 ** 100, 1.5, "\u00e4\\0", b"a", (1, (2,)), [1, []], {1, 2}, 1j]
values += [{(1, 2): {"a": [1]}}, frozenset([1])]
for value in values:
    assert same(value) == value and type(same(value)) is type(value), value
assert math.isnan(same(math.nan)) and same(x=3) == 3
try:
    fail("no")
except ValueError as error:
    assert str(error) == "no"
"""
    code = "def same(x): return x\ndef fail(text): raise ValueError(text)"
    assert check(code, [test])[0] == ("passed", "")


def test_programs_with_input_and_output() -> None:
    code = "print(sum(map(int, input().split())))"
    cases = [Case("1 2", "3"), Case("1 2", " 3 \n\n"), Case("1 2", "4"), Case("x", "")]
    verdicts = check(code, cases)
    assert [verdict.outcome for verdict in verdicts] == ["passed", "passed", "failed", "error"]
    assert verdicts[2].detail == "printed '3\\n', expected '4'"
    assert "ValueError" in verdicts[3].detail
    assert check("print(", [Case("", "")])[0].outcome == "syntax"
    assert check("while True: pass", [Case("", "")], SHORT)[0].outcome == "timeout"
    assert check("print(1); import os; os._exit(1)", [Case("", "1")])[0].outcome == "error"
