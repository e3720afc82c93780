"""Values set one by one on a command line, as in `self_play.updates=50`."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable
from typing import Any

from marl_gem.errors import ConfigError


def apply_overrides(values: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply assignments to nested values; gives a new dict.

    A value is read as TOML where it can be (numbers, true, lists), else taken as text.

    Raises:
        ConfigError: an assignment has no `=`, or goes through something that is no section.
    """
    result = copy.deepcopy(values)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        *sections, last = name.strip().split(".")
        if not equals or not last:
            raise ConfigError(f"{assignment!r} sets nothing; write name=value, as in self_play.updates=50")
        place = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{assignment!r}: {section!r} is a value, not a section")
        try:
            place[last] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            place[last] = text.strip()
    return result
