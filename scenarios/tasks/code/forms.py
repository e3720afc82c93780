"""Rows of well-known data sets of programming tasks, by their columns.

    taco           question, input_output, solutions, starter_code, difficulty: TACO and APPS
    codecontests   description, public_tests, private_tests, generated_tests, solutions, time_limit, memory_limit_bytes
    mbpp           text or prompt, code, test_list, test_setup_code or test_imports, task_id
    livecodebench  question_content, public_test_cases, private_test_cases, metadata, starter_code, difficulty
    humaneval      prompt, entry_point, test, canonical_solution, task_id
    tests          prompt or problem or question, tests: ours and GEM's {"inputs": [...], "outputs": [...]}

Most of these write lists as JSON within texts; both are read. Nothing of a row is evaluated.
"""

from __future__ import annotations

import base64
import pickletools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.faults import type_name
from marl_gem.scenarios.tasks.question import Item
from marl_gem.types import read_json

Row = Mapping[str, Any]

_PYTHON3 = 3
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
_AROUND_TEXTS = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP")
"""Opcodes of a pickle: a text, and what stands around one."""
"""The number of Python 3 in CodeContests."""
_MIB = 1 << 20


def item_of(row: Row, where: str, number: int) -> Item:
    """The item that a row is.

    Args:
        row: its columns.
        where: for messages, such as "taco.jsonl, line 7".
        number: of the row, which is the item's id where it has none.

    Raises:
        RecordError: it has the columns of no form, or a column holds something else than it should.
    """
    for columns, read in FORMS:
        if all(any(name in row for name in column.split("|")) for column in columns):
            try:
                item = read(row, str(number))
            except RecordError as error:
                raise RecordError(f"{where}: {error}") from error
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RecordError(f"{where}: not as the other rows of this form: {error!r:.200}") from error
            if not item.fields["tests"]:
                raise RecordError(f"{where}: there are no tests")
            return item
    forms = "; ".join(", ".join(columns) for columns, _ in FORMS)
    raise RecordError(f"{where}: the columns {', '.join(map(str, row))} are of no known form. Known are: {forms}")


def _taco(row: Row, number: str) -> Item:
    io_pairs = _json(row["input_output"])
    solutions = _json(row.get("solutions") or [])
    prompt = str(row["question"])
    if row.get("starter_code"):
        prompt += f"\n\nBegin with:\n```python\n{row['starter_code']}\n```"
    return Item(
        str(row.get("id", row.get("problem_id", number))),
        prompt,
        str(solutions[0]) if solutions else None,
        str(row.get("difficulty") or "").lower(),
        fields={"tests": _pairs(io_pairs)},
    )


def _pairs(pairs: Row) -> list[dict[str, Any]]:
    """Tests from {"inputs": [...], "outputs": [...], "fn_name": ...}."""
    inputs, outputs, name = pairs["inputs"], pairs["outputs"], pairs.get("fn_name")
    if len(inputs) != len(outputs):
        raise RecordError(f"{len(inputs)} inputs, but {len(outputs)} outputs")
    if name:
        # The outputs of APPS are lists with the result in them, those of TACO the result.
        boxed = all(isinstance(output, list) and len(output) == 1 for output in outputs)
        results = [output[0] for output in outputs] if boxed else outputs
        calls = zip(inputs, results, strict=True)
        return [{"call": name, "arguments": _json(given), "output": output} for given, output in calls]
    return [{"input": _text(given), "output": _text(output)} for given, output in zip(inputs, outputs, strict=True)]


def _codecontests(row: Row, number: str) -> Item:
    tests = []
    for column in ("public_tests", "private_tests", "generated_tests"):
        part = _json(row.get(column) or {"input": [], "output": []})
        pairs = zip(part["input"], part["output"], strict=True)
        tests += [{"input": _text(given), "output": _text(output)} for given, output in pairs]
    solutions = _json(row.get("solutions") or {"language": [], "solution": []})
    programs = zip(solutions["language"], solutions["solution"], strict=True)
    python = [text for language, text in programs if language in (_PYTHON3, "PYTHON3")]
    limit = row.get("time_limit")
    fields: dict[str, Any] = {"tests": tests}
    if isinstance(limit, Mapping):
        fields["time"] = float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9
    elif limit:
        fields["time"] = float(limit)
    if row.get("memory_limit_bytes"):
        fields["memory"] = max(64, int(row["memory_limit_bytes"]) // _MIB)
    grade = str(row["difficulty"]) if row.get("difficulty") not in (None, "", 0) else ""
    return Item(
        str(row.get("name", number)), str(row["description"]), python[0] if python else None, grade, fields=fields
    )


def _mbpp(row: Row, number: str) -> Item:
    tests = _json(row["test_list"])
    setup = row.get("test_setup_code") or "\n".join(_json(row.get("test_imports") or []))
    text = str(row["text"] if "text" in row else row["prompt"])
    prompt = f"{text}\n\nThe function must pass tests such as:\n{tests[0]}"
    coded = [{"code": f"{setup}\n{test}".strip()} for test in tests]
    return Item(str(row.get("task_id", number)), prompt, row.get("code"), fields={"tests": coded})


def _livecodebench(row: Row, number: str) -> Item:
    cases = [*_json(row["public_test_cases"]), *_hidden(row.get("private_test_cases") or [])]
    name = (_json(row.get("metadata") or {}) or {}).get("func_name")
    tests: list[dict[str, Any]] = []
    for case in cases:
        if case.get("testtype", "stdin") == "stdin":
            tests.append({"input": _text(case["input"]), "output": _text(case["output"])})
        else:
            arguments = [read_json(line) for line in case["input"].splitlines() if line.strip()]
            tests.append({"call": str(name), "arguments": arguments, "output": read_json(case["output"])})
    prompt = str(row["question_content"])
    if row.get("starter_code"):
        prompt += f"\n\nBegin with:\n```python\n{row['starter_code']}\n```"
    return Item(
        str(row.get("question_id", number)), prompt, None, str(row.get("difficulty") or ""), fields={"tests": tests}
    )


def _hidden(value: Any) -> list[Any]:
    """LiveCodeBench's private tests: JSON, or JSON within a pickle, compressed, in base64."""
    if not isinstance(value, str):
        return list(value)
    try:
        return list(read_json(value))
    except ValueError:
        pass
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(value, validate=True), 1 << 28)
        text = _pickled_text(data)
    except (ValueError, zlib.error) as error:  # of base64, too
        raise RecordError(f"private_test_cases: neither JSON nor LiveCodeBench's form of it: {error}") from error
    return list(read_json(text))


def _pickled_text(data: bytes) -> str:
    """The text of a pickle that holds nothing else. It is parsed and not loaded, since loading may run code.

    Raises:
        ValueError: it holds something else, or is none.
    """
    found = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data)]
    texts = [str(argument) for name, argument in found if name in _TEXTS]
    if others := sorted({name for name, _ in found} - {*_TEXTS, *_AROUND_TEXTS}):
        raise ValueError(f"it holds {' and '.join(others)}, not a text alone")
    if len(texts) != 1:
        raise ValueError(f"it holds {len(texts)} texts, not one")
    return texts[0]


def _humaneval(row: Row, number: str) -> Item:
    name, prompt = str(row["entry_point"]), str(row["prompt"])
    solution = row.get("canonical_solution")
    return Item(
        str(row.get("task_id", number)),
        f"Complete this function:\n\n```python\n{prompt.strip()}\n```",
        f"{prompt}{solution}" if solution is not None else None,
        fields={
            "tests": [{"code": f"{row['test']}\ncheck({name})"}],
            # Functions of the prompt are there also for a program that repeats only the last of them.
            "prefix": f"{prompt}\n    pass\n\n",
        },
    )


def _with_tests(row: Row, number: str) -> Item:
    prompt = next(str(row[name]) for name in ("prompt", "problem", "question") if name in row)
    given = _json(row["tests"])
    tests = _pairs(given) if isinstance(given, Mapping) else [dict(test) for test in given]
    fields = {"tests": tests, **{name: row[name] for name in ("time", "memory", "prefix") if row.get(name)}}
    answer = row.get("answer", row.get("solution"))
    return Item(
        str(row.get("id", number)), prompt, str(answer) if answer else None, str(row.get("grade") or ""), fields=fields
    )


def _json(value: Any) -> Any:
    """A value that may be written as JSON within a text."""
    return read_json(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    """An input or output: a text, or a list of its lines."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if not isinstance(value, (str, int, float)):
        raise RecordError(f"an input or output is a text, not {type_name(value)}")
    return str(value)


FORMS: tuple[tuple[tuple[str, ...], Callable[[Row, str], Item]], ...] = (
    (("question", "input_output"), _taco),
    (("description", "public_tests|private_tests|generated_tests"), _codecontests),
    (("text|prompt", "test_list"), _mbpp),
    (("question_content", "public_test_cases"), _livecodebench),
    (("prompt", "entry_point", "test"), _humaneval),
    (("prompt|problem|question", "tests"), _with_tests),
)
"""Columns (with | between those of which one is enough) and what reads a row that has them; the first fits."""


def items_of(rows: Iterator[tuple[str, Row]]) -> list[Item]:
    """The items of rows with where they stand; grades are left out unless all rows have one."""
    return [item_of(row, where, number) for number, (where, row) in enumerate(rows)]
