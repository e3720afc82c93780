"""What the options of a scenario mean: one line each, from the docstrings of what makes it."""

from __future__ import annotations

import inspect
import re
import typing

from marl_gem.registry.scenarios import find
from marl_gem.registry.tables import resolve


def option_meanings(id: str) -> dict[str, str]:
    """The meaning of each option that the docstrings of a scenario give under `Args:`, by name.

    The docstrings are those of the class and, where a function makes its envs, of that function, which count more.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    factory = resolve(find(id).entry_point)
    sources: list[object] = [factory]
    if inspect.isclass(factory):
        sources.append(factory.__init__)
    else:
        sources.insert(0, typing.get_type_hints(factory).get("return"))
    return {name: text for source in sources for name, text in _arguments(source)}


def _arguments(source: object) -> list[tuple[str, str]]:
    text = inspect.cleandoc(getattr(source, "__doc__", None) or "")
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
    return [(name, " ".join(meaning.split())) for names, meaning in entries for name in names.split(", ")]
