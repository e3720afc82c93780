"""The tests that hold each promise of the contract: those named `test_promise_N_...`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from generate.markdown import Undocumented

TESTS = Path(__file__).parents[2] / "tests"
_TEST = re.compile(r"^(?:async )?def (test_promise_(\d+)_\w+)\(", re.MULTILINE)


def tests_by_promise(folder: Path = TESTS) -> dict[int, list[tuple[str, str]]]:
    """For each promise the tests that hold it: file, below `folder`'s parent, and name of the function."""
    found: dict[int, list[tuple[str, str]]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        for name, number in _TEST.findall(file.read_text("utf-8")):
            found.setdefault(int(number), []).append((str(file.relative_to(folder.parent)), name))
    return found


class PromiseTests(SphinxDirective):
    """```` ```{promise-tests} 3 ```` lists the tests of promise 3; one without any fails the build."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        number = int(self.arguments[0])
        tests = tests_by_promise().get(number)
        if not tests:
            raise Undocumented(f"no test is named test_promise_{number}_...; a promise needs one")
        items: list[Any] = []
        for file, name in tests:
            text = name.removeprefix(f"test_promise_{number}_").replace("_", " ")
            paragraph = nodes.paragraph(
                "", "", nodes.Text(f"{text} ("), nodes.literal("", f"{file}::{name}"), nodes.Text(")")
            )
            items.append(nodes.list_item("", paragraph))
        return [nodes.bullet_list("", *items)]
