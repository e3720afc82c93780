"""The rules of CONTRIBUTING.md that can be checked by reading the source files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("marl_gem", "selectors", "scenarios", "trainers")
UNCLEAR_NAMES = {
    *("told", "one", "place", "own", "said", "whole", "noes", "twin"),
    *("held", "owed", "ground", "book", "wit"),
}
"""Names that say nothing about what they hold."""


def sources(*folders: str) -> list[Path]:
    """The Python files of these folders. The links inside the package lead to files that are listed once."""
    files = {file.resolve() for folder in folders for file in (ROOT / folder).rglob("*.py")}
    return sorted(file for file in files if file.is_relative_to(ROOT))


def lines_of(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a module defines, and its line: variables, parameters, attributes, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def test_files_are_short() -> None:
    limits = dict.fromkeys(sources(*PRODUCT, "benchmarks", "examples"), 450)
    limits |= dict.fromkeys(sources("tests"), 600)
    long = {str(file.relative_to(ROOT)): lines_of(file) for file, limit in limits.items() if lines_of(file) > limit}
    assert not long, f"split these files (at most 450 lines, tests 600): {long}"


def test_functions_are_short() -> None:
    long = {}
    for file in sources(*PRODUCT):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                statements = node.body[1:] if ast.get_docstring(node) else node.body
                length = (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0
                if length > 70:
                    long[f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"] = length
    assert not long, f"split these functions (at most 70 lines below the docstring): {long}"


@pytest.mark.parametrize("folder", PRODUCT)
def test_names_say_what_they_hold(folder: str) -> None:
    unclear = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in sources(folder)
        for name, line in names_in(ast.parse(file.read_text("utf-8")))
        if name.strip("_").lower() in UNCLEAR_NAMES
    ]
    assert not unclear, "rename these:\n" + "\n".join(unclear)
