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


def literal_blocks(lines: list[str]) -> list[str]:
    """Mark each indented block behind an empty line as code, as Markdown does, except in sections and lists."""
    result: list[str] = []
    before = ""  # the last line that is not indented
    in_block = False
    for index, line in enumerate(lines):
        indented = line.startswith((" ", "\t"))
        if line and not indented:
            before, in_block = line, False
        elif line and not in_block:
            plain = not _SECTION.match(before) and not _LIST.match(before) and not before.endswith("::")
            if plain and index and not lines[index - 1]:
                result += ["::", ""]
            in_block = True
        result.append(line)
    return result
