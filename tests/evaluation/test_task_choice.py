"""Which tasks are played: named ones, drawn ones, all grades in proportion."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from marl_gem.errors import ConfigError, ScenarioFault
from marl_gem.evaluation import evaluate
from marl_gem.evaluation.task_choice import ordered, read_tasks, write_tasks
from marl_gem.policies import ScriptedPolicy
from marl_gem.specs import ScenarioSpec
from tests.evaluation.helpers import Answer

GRADES = ("easy",) * 12 + ("hard",) * 4


class Graded(Answer):
    """Twelve easy tasks, then four hard ones."""

    tasks = 16
    grades = GRADES


def played(*, out: Path | None = None, resume: bool = False, **numbers: object) -> list[int]:
    result = evaluate(Graded, ScriptedPolicy(lambda *_: "1"), out=out, resume=resume, **numbers)  # type: ignore[arg-type]
    return [task.task for task in result.report.matches[0].by_task]


@pytest.mark.parametrize("n", [4, 8, 12])
def test_grades_are_played_in_proportion_and_fewer_tasks_are_among_more(n: int) -> None:
    order = ordered(16, "by grade", GRADES)
    assert sorted(order) == list(range(16))
    assert Counter(GRADES[task] for task in order[:n]) == {"easy": 3 * n // 4, "hard": n // 4}
    assert played(n=n) == sorted(order[:n])
    assert played(n=n, order="listed") == list(range(n))


def test_drawn_tasks_depend_on_the_seed_alone() -> None:
    assert played(n=6, order="shuffled", seed=1) == played(n=6, order="shuffled", seed=1)
    assert played(n=6, order="shuffled", seed=1) != played(n=6, order="shuffled", seed=2)
    assert set(played(n=6, order="shuffled")) < set(played(n=9, order="shuffled"))


def test_named_tasks_are_the_same_episodes_as_among_all(tmp_path: Path) -> None:
    named = evaluate(Graded, ScriptedPolicy(lambda *_: "1"), tasks=(3, 15), repeats=2)
    every = {(e.id, e.seed): e.returns for e in evaluate(Graded, ScriptedPolicy(lambda *_: "1"), repeats=2).episodes}
    assert {(e.id, e.seed): e.returns for e in named.episodes}.items() < every.items()
    assert [(task.task, task.grade) for task in named.report.matches[0].by_task] == [(3, "easy"), (15, "hard")]


def test_a_run_is_continued_with_its_tasks(tmp_path: Path) -> None:
    assert played(tasks=(3, 15), out=tmp_path / "named") == [3, 15]
    assert played(out=tmp_path / "named", resume=True) == [3, 15]
    drawn = played(n=3, order="shuffled", out=tmp_path / "drawn")
    assert set(drawn) < set(played(n=5, out=tmp_path / "drawn", resume=True))
    with pytest.raises(ConfigError, match="another configuration: tasks"):
        played(tasks=(3, 14), out=tmp_path / "named", resume=True)


def test_the_report_has_a_row_for_each_grade(tmp_path: Path) -> None:
    played(n=8, out=tmp_path / "run")
    report = (tmp_path / "run" / "report.md").read_text("utf-8")
    assert "8 tasks of all grades in proportion" in report
    assert "| easy | 6 |" in report and "| hard | 2 |" in report


def test_numbers_that_make_no_sense() -> None:
    for numbers, message in (
        ({"tasks": (1, 16, 17)}, "has the tasks 0 to 15, and not 16-17"),
        ({"tasks": ()}, "at least one"),
        ({"tasks": (1, 1)}, "each once"),
        ({"tasks": (1,), "n": 3}, "go without n"),
    ):
        with pytest.raises(ConfigError, match=message):
            played(**numbers)
    with pytest.raises(ConfigError, match="have no grades"):
        evaluate(Answer, ScriptedPolicy(lambda *_: "1"), n=2, order="by grade")


def test_tasks_as_text() -> None:
    assert read_tasks("3,7-9, 1") == (3, 7, 8, 9, 1)
    assert write_tasks(read_tasks("3,7-9,1,2")) == "3,7-9,1-2"
    for text in ("", "3,", "9-7", "-1", "a", "1-99999999", "1.5"):
        with pytest.raises(ConfigError, match="tasks"):
            read_tasks(text)


def test_grades_that_are_not_one_text_a_task() -> None:
    for wrong in (("easy",), "easy and hard!!!!", (1,) * 16, 7):
        env = type("Wrong", (Graded,), {"grades": wrong})
        with pytest.raises(ScenarioFault, match="grades must hold a text for each of its tasks"):
            ScenarioSpec.parse(env).inspect()
