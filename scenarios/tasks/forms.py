"""Forms of well-known data sets: a row of theirs becomes one with the columns of `register_dataset`.

register_dataset("my:GSM-v0", "gsm8k.jsonl", form=any_form, reward="math")
"""

from __future__ import annotations

import re
from typing import Any

from marl_gem.scenarios.tasks.rows import Row
from marl_gem.wrappers.parse import boxed

_LEFT_OVER = re.compile(r"####\s*(.+?)\s*$")


def any_form(row: Row) -> Row:
    """A row of a data set of questions, told by its columns.

    The prompt is in `prompt`, `problem`, `question`, `Problem` or `Question`; the answer in one of

    - `answer`, `Answer`, `golden_answers` (NQ in Search-R1's form), `answers`, `final_answer`, `target`;
      what stands after "####" where there is that (GSM8K).
    - `solution`: what is boxed in it (MATH).

    ORZ's rows are a list of two messages; DeepScaleR, AIME and Geometry3K have `problem` and `answer`, with `images`;
    HotpotQA, 2Wiki and NQ have `question` and `answer`. The grade is `level` or `difficulty`; the id `id`, `_id`,
    `unique_id` or `ID`.

    Raises:
        ValueError: there is no question or no answer.
    """
    if "0" in row and "1" in row and isinstance(row["0"], dict):  # ORZ
        return {"prompt": row["0"].get("value"), "answer": row["1"].get("ground_truth", {}).get("value")}
    prompt = _first(row, "prompt", "problem", "question", "Problem", "Question")
    if prompt is None:
        raise ValueError(f"there is no question; there are {', '.join(map(str, row))}")
    answer = _first(row, "answer", "Answer", "golden_answers", "answers", "final_answer", "target")
    if answer is None:
        answer = boxed().find(str(row.get("solution", "")))
    if answer is None:
        raise ValueError(f"there is no answer; there are {', '.join(map(str, row))}")
    if isinstance(answer, dict):  # NQ as `datasets` has it
        answer = answer.get("aliases") or answer.get("text") or answer.get("value")
    if isinstance(answer, str) and (found := _LEFT_OVER.search(answer)):
        answer = found[1].replace(",", "")
    shaped: dict[str, Any] = {"prompt": prompt, "answer": answer}
    for name, columns in {
        "id": ("id", "_id", "unique_id", "ID"),
        "grade": ("grade", "level", "difficulty"),
        "images": ("images", "image"),
        "split": ("split",),
    }.items():
        if (value := _first(row, *columns)) is not None:
            shaped[name] = value if name != "grade" else str(value)
    known = {*("prompt", "problem", "question", "answer", "golden_answers"), *shaped}
    return shaped | {name: value for name, value in row.items() if name not in known}


def _first(row: Row, *columns: str) -> Any:
    return next((row[column] for column in columns if row.get(column) is not None), None)
