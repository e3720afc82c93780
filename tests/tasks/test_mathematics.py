"""Generated problems, pictures, math-verify in workers, and the forms of well-known data sets."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.errors import InvalidOption, RecordError, UnavailableScenario
from marl_gem.scenarios.tasks import Item, gem, register_dataset
from marl_gem.scenarios.tasks.exact import read_number
from marl_gem.scenarios.tasks.forms import any_form
from marl_gem.scenarios.tasks.mathematics import Problems, by_math_verify
from marl_gem.testing import Plan, check_env

SUBJECTS = ("algebra", "arithmetic", "charts", "figures", "geometry", "number-theory", "probability")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with registry.preserved():
        yield


def play(env: Any, answer: str) -> tuple[float, dict[str, Any]]:
    """The return of an episode of one answer, and its last info."""
    env.reset(seed=3)
    *_, infos = env.step({"solver": env.written(answer)})
    return env.returns["solver"], infos["solver"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", "7"),
        (" -3/4 ", "-3/4"),
        ("0.75", "3/4"),
        ("75%", "3/4"),
        (r"75\%", "3/4"),
        ("1,250", "1250"),
        ("12,50", None),
        (r"\frac{3}{4}", "3/4"),
        (r"-\dfrac{3}{4}", "-3/4"),
        (r"\frac34", "3/4"),
        ("2 1/2", "5/2"),
        ("x = 3", "3"),
        ("$-5$.", "-5"),
        ("1/0", None),
        (r"\frac{1}{0}", None),
        ("9**9**9", None),
        ("three", None),
        ("", None),
        ("٣", None),
        ("1" * 300, None),
        ("1e400", None),
    ],
)
def test_numbers_are_read_exactly(text: str, number: str | None) -> None:
    assert read_number(text) == (None if number is None else Fraction(number))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_problems_have_exact_answers_in_five_grades(subject: str) -> None:
    env = marl_gem.make(f"math:{subject}-v0", task=4)
    assert isinstance(env, Problems)
    assert [env.items[number].grade for number in range(6)] == ["1", "2", "3", "4", "5", "1"]
    prompts = {(env.items[number].prompt, env.items[number].images) for number in range(50)}
    assert len(prompts) > 40
    assert play(env, str(env.items[4].answer))[1]["success"]
    assert play(env, str(Fraction(str(env.items[4].answer)) + 1))[1]["failure"] == "wrong answer"
    assert play(env, "no idea")[1]["failure"] == "no number"
    test = marl_gem.make(f"math:{subject}-v0", split="test", size=50)
    assert isinstance(test, Problems)
    assert sum((item.prompt, item.images) in prompts for item in test.items) < 10


def test_answers_that_can_be_checked_another_way() -> None:
    """What a reader of the problem would compute, from the text alone."""
    env = marl_gem.make("math:arithmetic-v0")
    assert isinstance(env, Problems)
    for number in range(100):
        item = env.items[number]
        expression = item.prompt.removeprefix("What is ").partition("?")[0]
        exact = eval("".join(f"Fraction({part})" if part.isdigit() else part for part in _tokens(expression)))
        assert exact == Fraction(str(item.answer)), item


def _tokens(text: str) -> list[str]:
    import re

    return re.findall(r"\d+|.", text)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_contract_holds(subject: str) -> None:
    quick = Plan(seeds=(0, 1), steps=10, copies=3, seconds=0.2)
    only = ["plays", "seeding", "infos", "records", "purity", "forking", "reset", "metadata", "observations"]
    check_env(lambda: marl_gem.make(f"math:{subject}-v0"), quick, only=only).raise_if_failed()


def test_pictures_are_equal_bytes_for_equal_seeds() -> None:
    code = "import marl_gem; print(marl_gem.make('math:figures-v0').items[{}].images[0])"
    other = subprocess.run([sys.executable, "-c", code.format(3)], capture_output=True, text=True, check=True)
    env = marl_gem.make("math:figures-v0", task=3)
    observation = env.reset(seed=0)[0]["solver"]
    assert [part["type"] for part in observation] == ["image", "text"]
    assert observation[0]["url"] == other.stdout.strip()
    assert base64.b64decode(observation[0]["url"].partition(",")[2]).startswith(b"\x89PNG")


def test_all_subjects_at_once() -> None:
    env = marl_gem.make("math:all-v0", size=70)
    assert len(set(env.grades)) == 35 and {"algebra 1", "figures 5"} <= set(env.grades)
    assert play(marl_gem.make("math:all-v0", task=4), "none")[1]["success"] is False


def test_options_that_are_wrong() -> None:
    for options in ({"split": "dev"}, {"size": 0}, {"size": True}, {"task": "train-500"}, {"task": "test-1"}):
        with pytest.raises(InvalidOption):
            marl_gem.make("math:algebra-v0", **options)
    env = marl_gem.make("math:algebra-v0", task="train-7")
    assert env.reset(seed=0)[1]["solver"]["item"] == "train-7"


# math-verify


def verified(answer: str, *golds: str) -> tuple[bool, str]:
    score = asyncio.run(by_math_verify(answer, Item("0", "?", list(golds))))
    return score.passed, score.reason


def test_math_verify_compares_what_is_meant() -> None:
    pytest.importorskip("math_verify")
    assert verified(r"\frac{1}{2}", "0.5") == (True, "")
    assert verified("1,000", "1000") == (True, "")
    assert verified("x^2 + 2x + 1", "(x+1)^2") == (True, "")
    assert verified("(2,1)", "(1,2)") == (False, "wrong answer")
    assert verified("4", "3", "4") == (True, "")
    for rubbish in ("", "\\", "}{", "\ud800", "\0", "x" * 20_000, "{" * 2_000):
        assert not verified(rubbish, "3")[0]


def test_an_answer_is_never_run_as_python(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    for text in (
        f"__import__('os').system('touch {tmp_path / 'made'}')",
        f"open('{tmp_path / 'made'}', 'w')",
        "print(3)",
    ):
        assert not verified(text, "3")[0]
    assert list(tmp_path.iterdir()) == []


def test_answers_that_never_end_are_wrong_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify")
    monkeypatch.setattr("marl_gem.scenarios.tasks.mathematics.SECONDS", 0.5)
    assert verified("9^{9^{9^{9}}}", "3") == (False, "time-out")
    monkeypatch.undo()
    assert verified("3", "3.0") == (True, "")


def test_many_at_once_and_from_any_thread() -> None:
    pytest.importorskip("math_verify")

    async def all_scores() -> list[bool]:
        item = Item("0", "?", "12")
        answers = [str(number % 24) for number in range(480)]
        return [score.passed for score in await asyncio.gather(*(by_math_verify(answer, item) for answer in answers))]

    results: list[list[bool]] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(all_scores()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sum(result) for result in results] == [20, 20]


def test_a_worker_without_a_sandbox_scores_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify")
    from marl_gem.scenarios.tasks import workers

    monkeypatch.setattr(workers, "choose_backend", lambda: "unsafe")
    here = workers.Workers("math", ["mathematics"], ["math_verify"], "math")
    assert here.call_and_wait("same", ["1/2"], "0.5", seconds=60.0).value is True
    assert here.call_and_wait("same", ["3"], "9^{9^{9^{9}}}", seconds=0.3).problem == "timeout"
    assert here.call_and_wait("same", ["3"], "print(3)", seconds=60.0).value is False
    here.close()


# Forms of data sets

ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gsm8k": (
        {"question": "How many?", "answer": "She has 1 + 1 = <<1+1=2>>2.\n#### 1,234"},
        {"prompt": "How many?", "answer": "1234"},
    ),
    "math": (
        {"problem": "Sum?", "level": "Level 2", "type": "Algebra", "solution": r"It is $\boxed{\frac{1}{2}}$."},
        {"prompt": "Sum?", "answer": r"\frac{1}{2}", "grade": "Level 2"},
    ),
    "deepscaler": ({"problem": "Sum?", "answer": "3", "solution": "..."}, {"prompt": "Sum?", "answer": "3"}),
    "orz": (
        {"0": {"from": "human", "value": "Sum?"}, "1": {"from": "assistant", "ground_truth": {"value": "3"}}},
        {"prompt": "Sum?", "answer": "3"},
    ),
    "aime": ({"ID": "2024-I-1", "Problem": "Sum?", "Answer": 204}, {"prompt": "Sum?", "answer": 204, "id": "2024-I-1"}),
    "hotpotqa": (
        {"_id": "5a", "question": "Who?", "answer": "Ada", "level": "hard", "type": "bridge"},
        {"prompt": "Who?", "answer": "Ada", "id": "5a", "grade": "hard"},
    ),
    "nq": ({"question": "who", "golden_answers": ["Ada", "A. L."]}, {"prompt": "who", "answer": ["Ada", "A. L."]}),
    "triviaqa": (
        {"question": "who", "answer": {"value": "Ada", "aliases": ["Ada", "A. L."]}},
        {"prompt": "who", "answer": ["Ada", "A. L."]},
    ),
    "2wiki": ({"_id": "1", "question": "Who?", "answer": "yes"}, {"prompt": "Who?", "answer": "yes", "id": "1"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_forms_are_told_by_their_columns(name: str) -> None:
    row, expected = ROWS[name]
    shaped = any_form(row)
    assert {key: shaped.get(key) for key in expected} == expected


def test_geometry3k_has_pictures(tmp_path: Path) -> None:
    picture = bytes.fromhex("89504e470d0a1a0a") + b"picture"
    register_dataset(
        "my:G-v0",
        [{"images": [{"bytes": picture}], "problem": "<image>x?", "answer": "3"}],
        form=any_form,
        reward="math",
    )
    observation = marl_gem.make("my:G-v0").reset(seed=0)[0]["solver"]
    assert [part["type"] for part in observation] == ["image", "text"]


def test_a_form_without_question_or_answer() -> None:
    for number, row in enumerate([{"text": "?"}, {"question": "?"}, {"problem": "?", "solution": "no box"}]):
        register_dataset(f"my:W{number}-v0", [row], form=any_form)
        with pytest.raises(RecordError, match=r"row 0: there is no (question|answer); there are"):
            marl_gem.make(f"my:W{number}-v0")


def test_gems_sets_are_read_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableScenario, match=r"save axon-rl/GSM-8k of .* as \$MARL_GEM_DATA/math"):
        marl_gem.make("math:GSM8K")
    (tmp_path / "math").mkdir()
    (tmp_path / "math" / "GSM8K.jsonl").write_text(json.dumps({"problem": "1 + 1?", "answer": "2"}) + "\n")
    monkeypatch.setenv(gem.VARIABLE, str(tmp_path))
    assert gem.file_of("math:GSM8K") == tmp_path / "math" / "GSM8K.jsonl"
    env = gem.make("math:GSM8K")
    assert play(env, "2")[0] == 1.0


def test_the_table_of_gems_ids_is_as_generated() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gem-ids.md").read_text("utf-8")
    assert gem.table() in page, "python docs/generate/gem.py writes the page"
    assert len({one_id.id for one_id in gem.ids()}) == len(gem.ids()) > 180
