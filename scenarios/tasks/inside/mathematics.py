"""math-verify inside a worker: whether an answer is what a gold answer is, however both are written."""

from __future__ import annotations

import functools
import logging

import math_verify
import math_verify.parser

from marl_gem.scenarios.tasks.inside.expressions import expression

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

math_verify.parser.parse_expr = expression
logging.disable(logging.WARNING)  # it warns that it has no time limit: the worker has one

MOST_CHARACTERS = 10_000
"""A longer answer is wrong."""


def same(golds: list[str], answer: str) -> bool:
    """Whether an answer is one of the gold answers: equal as text, or by what math-verify finds in both."""
    if len(answer) > MOST_CHARACTERS:
        return False
    if any(answer.strip() == gold.strip() for gold in golds):
        return True
    found = _parsed(answer)
    return bool(found) and any(
        math_verify.verify(gold, found, timeout_seconds=None) for gold in map(_parsed_gold, golds) if gold
    )


def _parsed(text: str) -> Any:
    return math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=None)


_parsed_gold = functools.lru_cache(1024)(_parsed)

same(["(x + 1)^2"], "x^2 + 2x + 1")  # what is loaded at the first use is loaded before workers are forked

FUNCTIONS = {"same": same}
