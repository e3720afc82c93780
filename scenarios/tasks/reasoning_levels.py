"""The names and levels of ReasoningGym's tasks, as `reasoning.json` has them."""

from __future__ import annotations

import functools
import json
from pathlib import Path


@functools.cache
def highest_levels() -> dict[str, int]:
    """The 105 names, with the highest level of each; -1 for those without levels."""
    levels: dict[str, int] = json.loads(Path(__file__).with_name("reasoning.json").read_text("utf-8"))
    return levels
