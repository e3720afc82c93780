"""Values as text: one by one on a command line, as in `training.updates=50`."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any

from marl_gem.errors import ConfigError

DEEPEST = 32
"""So deep lists, tables and sections may lie in each other. Each level costs those who read the value a call."""


def apply_overrides(values: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply assignments such as `training.updates=50` to nested values; gives a new dict.

    Raises:
        ConfigError: an assignment has no `=`, its name leads through a value that is no section, or it is too deep.
    """
    result = copy.deepcopy(values)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        *sections, last = name.strip().split(".")
        if not equals or not last:
            raise ConfigError(f"{assignment!r:.100} sets nothing; write name=value, as in training.updates=50")
        if len(sections) > DEEPEST:
            raise ConfigError(f"{assignment!r:.100}: a name has at most {DEEPEST} dots, not {len(sections)}")
        target = result
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ConfigError(f"{assignment!r:.100}: {section!r} is a value, not a section")
        target[last] = read_value(text)
    return result


def read_value(text: str) -> Any:
    """A value as TOML where the text is TOML (numbers, true, lists, quoted text), else the text itself.

    Raises:
        ConfigError: it is nested too deeply, or a number has too many digits.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
    except ValueError as error:  # from 4,300 digits on
        raise ConfigError(f"{text!r:.80} is no number that can be used: {error}") from error
    except RecursionError:
        raise ConfigError(_too_deep(text)) from None
    if _depth(value) > DEEPEST:
        raise ConfigError(_too_deep(text))
    return value


def split_call(text: str) -> tuple[str, list[tuple[str, Any]]]:
    """The name and the assignments in a text such as `name=value,option=value`, with values as `read_value` reads them.

    The option of the value that follows the name itself is empty.
    """
    first, *assignments = re.split(r",(?=\s*\w+\s*=)", text)
    name, equals, value = first.partition("=")
    pairs = [("", read_value(value))] if equals else []
    for assignment in assignments:
        option, _, value = assignment.partition("=")
        pairs.append((option.strip(), read_value(value)))
    return name.strip(), pairs


def _too_deep(text: str) -> str:
    return f"{text!r:.80}: lists and tables may lie {DEEPEST} deep in each other, not deeper"


def _depth(value: Any) -> int:
    """How deep lists and tables lie in each other; 0 for anything else."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (list, dict))]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def write_value(value: Any) -> str:
    """A text from which `read_value` gives a plain value back: numbers, booleans, text, lists and dicts."""
    if isinstance(value, str):
        return value if read_value(value) == value else json.dumps(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {_item(item)}" for name, item in value.items()) + "}"
    return _item(value)


def _item(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_item, value))}]"
    if isinstance(value, dict):
        return write_value(value)
    return json.dumps(value) if isinstance(value, str) else repr(value)
