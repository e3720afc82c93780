"""Docstrings are plain text with indented examples and tables; reStructuredText wants `::` before these."""

from __future__ import annotations

import re
from typing import Any

_SECTION = re.compile(r"(Args|Arguments|Returns|Raises|Yields|Attributes|Note|Notes|Example|Examples|Warning):$")
_LIST = re.compile(r"([-*]|\d+\.) ")


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Sphinx's hook `autodoc-process-docstring`: changes `lines` in place."""
    if what == "module" and obj.__doc__:  # Sphinx takes away an indent that all lines but the first have
        lines[:] = obj.__doc__.splitlines()
    lines[:] = literal_blocks(lines)
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # napoleon would take what stands before a colon in the first line for a type


def literal_blocks(lines: list[str]) -> list[str]:
    """Mark each indented block as code, except in sections and lists, and set it apart by empty lines."""
    result: list[str] = []
    before = ""  # the last line that is not indented
    in_block = marked = False
    for index, line in enumerate(lines):
        indented = line.startswith((" ", "\t"))
        if line and not indented:
            result += [""] if marked and result[-1] else []
            before, in_block, marked = line, False, False
        elif line and not in_block:
            in_block = True
            marked = bool(index) and not (_SECTION.match(before) or _LIST.match(before) or before.endswith("::"))
            result += ["", "::", ""] if marked else []
        result.append(line)
    return result
