"""Seats that are alike, counted together in tables of many agents."""

from __future__ import annotations

import re
from collections.abc import Mapping

MANY = 8
"""Tables have a column or a row for each of so many agents; of more, those that are alike share one."""

_NUMBER = re.compile(r"(?<=.)[ _-]?\d+$")


def seat_groups(players: Mapping[str, str]) -> dict[str, list[str]]:
    """Agents by what a table calls them: each alone if there are up to `MANY`, else those of a role together.

        seat_groups({"wolf": "random", "villager_1": "tiny", "villager_2": "tiny", ...})
        {"wolf": ["wolf"], "villager (8)": ["villager_1", "villager_2", ...]}

    Agents share a role whose names differ in the number at the end alone, and that have the same player.

    Args:
        players: who plays each agent.
    """
    if len(players) <= MANY:
        return {agent: [agent] for agent in players}
    alike: dict[tuple[str, str], list[str]] = {}
    for agent, who in players.items():
        alike.setdefault((_NUMBER.sub("", agent), who), []).append(agent)
    roles = [role for role, _ in alike]
    groups = {}
    for (role, who), agents in alike.items():
        count = f"{len(agents)} × {who}" if roles.count(role) > 1 else str(len(agents))
        groups[f"{role} ({count})" if len(agents) > 1 else agents[0]] = agents
    return groups


def spread_text(values: list[float], digits: int, unit: str = "") -> str:
    """The mean of several seats' values and, in brackets, the least and the greatest."""
    mean = sum(values) / len(values)
    return f"{mean:.{digits}f}{unit} ({min(values):.{digits}f}–{max(values):.{digits}f})"
