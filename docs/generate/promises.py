"""What the contract promises, from the docstring of `MultiAgentEnv`, with the tests that hold each promise.

The tests of promise 3 are those named `test_promise_3_...`.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from generate.markdown import Undocumented
from marl_gem import MultiAgentEnv

TESTS = Path(__file__).parents[2] / "tests"
_TEST = re.compile(r"^(?:async )?def (test_promise_(\d+)_\w+)\(", re.MULTILINE)
_PROMISE = re.compile(r"^ *(\d+)\. (.+?)(?=\n *\d+\. |\n\n|\Z)", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """The promises as Markdown, for docs/contract.md.

    Raises:
        Undocumented: a promise has no test, or tests are of a promise that is not made.
    """
    promises, tests = promised(), tests_by_promise()
    if missing := sorted(promises.keys() ^ tests.keys()):
        raise Undocumented(f"promises {missing}: the docstring of MultiAgentEnv and test_promise_N_... must agree")
    return {"promises": "\n".join(_section(number, text, tests[number]) for number, text in promises.items())}


def promised() -> dict[int, str]:
    """The numbered list in the docstring of `MultiAgentEnv`."""
    found = _PROMISE.findall(inspect.getdoc(MultiAgentEnv) or "")
    return {int(number): " ".join(text.split()) for number, text in found}


def tests_by_promise(folder: Path = TESTS) -> dict[int, list[tuple[str, str]]]:
    """For each promise the tests that hold it: file, below `folder`'s parent, and name of the function."""
    found: dict[int, list[tuple[str, str]]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        for name, number in _TEST.findall(file.read_text("utf-8")):
            found.setdefault(int(number), []).append((str(file.relative_to(folder.parent)), name))
    return found


def _section(number: int, text: str, tests: list[tuple[str, str]]) -> str:
    lines = [f"## Promise {number}", "", text, ""]
    for file in dict.fromkeys(file for file, _ in tests):
        names = [name for there, name in tests if there == file]
        lines += [f"Tests in `{file}`:", "", *(f"- `{name}`" for name in names), ""]
    return "\n".join(lines)
