"""The names of training metrics: those of older runs under today's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OLD_STAGES = {"warm-up": "imitation", "self-play": "training"}
OLD_NAMES = {"games": "episodes_played", "flat": "zero_variance", "divergence": "kl", "drift": "logprob_diff"}
"""Names in the rows of older runs, and what they are called now."""


def renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of an older run under today's names."""
    if "phase" not in row:
        return dict(row)
    stage = row["phase"]
    names = {}
    for name, value in row.items():
        base, slash, rest = name.partition("/")
        names[OLD_NAMES.get(base, base) + slash + rest] = value
    del names["phase"]
    return {**names, "stage": OLD_STAGES.get(stage, stage) if isinstance(stage, str) else stage}
