"""A run in a few numbers: how each seat fared, what failed, what it took."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from marl_gem.runs.index import Entry


class Seat(msgspec.Struct):
    """How an agent fared in all finished episodes that were played to an end. `models` counts who sat there."""

    agent: str
    models: dict[str, int] = {}
    won: int = 0
    drew: int = 0
    lost: int = 0
    illegal: int = 0
    mean_return: float = 0.0


class Overview(msgspec.Struct):
    """Counts of a run's lines, and sums over its finished episodes.

    `episodes` are finished, `errors` of these broke off, `cut` were ended by a limit, `illegal` saw an illegal
    move. `failed` counts attempts that failed for no fault of their own, `owed` the episodes that still have no
    other; `broken` lines are no episodes. `cost` is in US dollars;
    `unpriced` episodes have none that is known, and do not count in it.
    """

    episodes: int = 0
    errors: int = 0
    cut: int = 0
    illegal: int = 0
    failed: int = 0
    owed: int = 0
    broken: int = 0
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0
    scenarios: list[str] = []
    seats: list[Seat] = []


def overview(entries: Iterable[Entry]) -> Overview:
    """Sum up a run."""
    told = Overview()
    seats: dict[str, Seat] = {}
    finished, failed = set(), set()
    for entry in entries:
        if (episode := entry.summary) is None:
            told.broken += 1
            continue
        if entry.key.startswith("e"):
            told.failed += 1
            failed.add((episode.id, episode.repeat))
            continue
        finished.add((episode.id, episode.repeat))
        told.episodes += 1
        told.errors += episode.error is not None
        told.cut += bool(episode.limit) or episode.ending == "truncated"
        told.illegal += bool(episode.illegal)
        told.turns += episode.turns
        told.tokens += episode.tokens
        told.cost += episode.cost or 0.0
        told.unpriced += episode.cost is None
        told.seconds += episode.seconds
        if episode.scenario not in told.scenarios:
            told.scenarios.append(episode.scenario)
        for agent, value in episode.returns.items():
            seat = seats.setdefault(agent, Seat(agent))
            if model := episode.models.get(agent):
                seat.models[model] = seat.models.get(model, 0) + 1
            if outcome := episode.outcomes.get(agent):
                setattr(seat, outcome, getattr(seat, outcome) + 1)
                seat.mean_return += value
            seat.illegal += agent in episode.illegal
    for seat in seats.values():
        seat.mean_return /= max(1, seat.won + seat.drew + seat.lost)
    told.owed = len(failed - finished)
    told.seats = list(seats.values())
    return told
