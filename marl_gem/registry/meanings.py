"""What the options of a scenario mean, and which values they choose from, as the code that makes it says."""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator
from typing import Literal

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


def option_types(id: str) -> dict[str, str]:
    """The type of each option as its code writes it, such as "int | None"; options without an annotation are left out.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    parameters = inspect.signature(resolve(find(id).entry_point)).parameters.values()
    annotated = [parameter for parameter in parameters if parameter.annotation is not inspect.Parameter.empty]
    return {
        parameter.name: parameter.annotation
        if isinstance(parameter.annotation, str)
        else inspect.formatannotation(parameter.annotation)
        for parameter in annotated
    }


def is_plain_option(id: str, name: str, value: object) -> bool:
    """Whether a value of an option can name nothing outside of the scenario, wherever the value comes from.

    So are numbers, true and false, and the texts that the option has to choose from: those of a
    `Literal` in its annotation, and its default. Any other text may be a server, a model, a file or a command.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    if isinstance(value, str):
        return value in _choices(resolve(find(id).entry_point), name)
    return value is None or (isinstance(value, (bool, int, float)) and math.isfinite(value))


def _choices(factory: Callable[..., object], name: str) -> list[object]:
    parameter = inspect.signature(factory).parameters.get(name)
    try:
        hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except (NameError, TypeError):  # of names that are imported for type checkers alone
        hints = {}
    return [*_literals(hints.get(name)), *([parameter.default] if parameter else [])]


def _literals(hint: object) -> Iterator[object]:
    """The values of all `Literal`s in an annotation."""
    if typing.get_origin(hint) is Literal:
        yield from typing.get_args(hint)
    else:
        for part in typing.get_args(hint):
            yield from _literals(part)


def _arguments(source: object) -> list[tuple[str, str]]:
    text = inspect.cleandoc(getattr(source, "__doc__", None) or "")
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
    return [(name, " ".join(meaning.split())) for names, meaning in entries for name in names.split(", ")]
