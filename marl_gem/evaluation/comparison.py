"""Two runs side by side, paired by task and seed: what differs, by how much, and which episodes turned out otherwise.

    comparison = compare(RunReader(Path("runs/before")), RunReader(Path("runs/after")))
    comparison.subjects[0].success.difference

Runs are evaluations, cells of a grid, tournaments and training runs, whose last measurement counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from marl_gem.errors import RecordError
from marl_gem.evaluation.estimates import Estimate, estimate
from marl_gem.evaluation.summary import total_cost
from marl_gem.runs.entries import Entry, Summary
from marl_gem.runs.reader import RunReader
from marl_gem.seeding import derive_seed

_MEASURED = re.compile(r"measured-(\d+)-(.+)")
"""The id of an episode that a training run has measured: after how many updates, and which of them."""


class Difference(msgspec.Struct, frozen=True):
    """One number in two runs."""

    before: Estimate | None
    after: Estimate | None
    # After less before, with its 95% interval: over the pairs where there are any, else of two independent samples.
    difference: Estimate | None


class Flip(msgspec.Struct, frozen=True):
    """An episode that succeeded in one run alone: its id, and its key in each run, see `RunReader.find`."""

    id: str
    before: str
    after: str


class SubjectComparison(msgspec.Struct, frozen=True):
    """What differs for one agent; in a tournament, for one player; in a training run, for one policy."""

    name: str
    # How many episodes are in both runs, with the same task and seed.
    pairs: int
    success: Difference
    return_: Difference = msgspec.field(name="return")
    # The episodes that succeed only in the second run, and those only in the first.
    gained: tuple[Flip, ...] = ()
    lost: tuple[Flip, ...] = ()


class RunTotals(msgspec.Struct, frozen=True):
    """What the episodes of a run took together."""

    name: str
    episodes: int
    tokens: int
    # US dollars; None if any price is unknown.
    cost: float | None
    # The mean number of turns.
    turns: float


class Comparison(msgspec.Struct, frozen=True):
    """Two runs side by side."""

    before: RunTotals
    after: RunTotals
    subjects: tuple[SubjectComparison, ...]


_Key: TypeAlias = tuple[str, int, str]
"""What pairs two episodes: task and repeat, as their id says; the seed; the scenario."""


def compare(before: RunReader, after: RunReader, seed: int = 0) -> Comparison:
    """Compare two runs.

    Args:
        before, after: the runs.
        seed: fixes the resamples of the intervals.

    Raises:
        RecordError: a run cannot be read, or has no finished episode; or they have no scenario or no agent in common.
    """
    runs = [_episodes(run) for run in (before, after)]
    scenarios = [{scenario for _, _, scenario in run} for run in runs]
    if not scenarios[0] & scenarios[1]:
        played = " and ".join(
            f"{run.name}: {', '.join(sorted(s))}" for run, s in zip((before, after), scenarios, strict=True)
        )
        raise RecordError(f"these runs have no scenario in common ({played})")
    tournament = all(run.config.get("kind") == "tournament" for run in (before, after))
    values = [_values(run, tournament) for run in runs]
    names = [name for name in values[0] if name in values[1]]
    if not names:
        agents = " and ".join(
            f"{run.name}: {', '.join(found)}" for run, found in zip((before, after), values, strict=True)
        )
        raise RecordError(f"these runs have no {'player' if tournament else 'agent'} in common ({agents})")
    return Comparison(
        _totals(before, runs[0]),
        _totals(after, runs[1]),
        tuple(_subject(name, values[0][name], values[1][name], seed) for name in names),
    )


def _episodes(run: RunReader) -> dict[_Key, Entry]:
    """The finished episodes that count, by what pairs them; of a training run those of its last measurement."""
    finished = [entry for entry in run.entries() if entry.summary and not entry.summary.error]
    measured = {}
    for entry in finished:
        if entry.summary and (found := _MEASURED.fullmatch(entry.summary.id)):
            measured[entry.key] = (int(found[1]), found[2])
    if measured:
        last = max(updates for updates, _ in measured.values())
        entries = {measured[entry.key][1]: entry for entry in finished if measured.get(entry.key, (-1,))[0] == last}
    else:
        entries = {entry.summary.id: entry for entry in finished if entry.summary}
    if not entries:
        raise RecordError(f"{run.name} has no finished episode to compare")
    return {(id, entry.summary.seed, entry.summary.scenario): entry for id, entry in entries.items() if entry.summary}


class _Value(msgspec.Struct, frozen=True):
    """What one episode came to for one subject, in one of its seats."""

    entry: str
    success: bool
    return_: float


def _values(episodes: Mapping[_Key, Entry], tournament: bool) -> dict[str, dict[tuple[_Key, str], _Value]]:
    """By subject, by episode and seat."""
    values: dict[str, dict[tuple[_Key, str], _Value]] = {}
    for key, entry in episodes.items():
        assert isinstance(entry.summary, Summary)
        subjects = _subjects(entry.summary, key[0].partition(":")[0].split(",") if tournament else ())
        for agent, outcome in entry.summary.outcomes.items():
            if agent in subjects:
                found = values.setdefault(subjects[agent], {})
                found[key, agent] = _Value(entry.key, outcome.success, outcome.return_)
    return values


def _subjects(summary: Summary, players: Sequence[str]) -> dict[str, str]:
    """Who is compared, by agent: a tournament's `players`; of a training run's measurement the policies that it trains,
    which sit in each seat in turn, and not their opponents; else the agents."""
    agents = list(summary.outcomes)
    if players:
        return {agent: players[index] if index < len(players) else agent for index, agent in enumerate(agents)}
    if found := _MEASURED.fullmatch(summary.id):
        version = f"@{found[1]}"
        models = {agent: summary.models.get(agent, "") for agent in agents}
        trained = {agent: model.removesuffix(version) for agent, model in models.items() if model.endswith(version)}
        if trained:
            return trained
    return {agent: agent for agent in agents}


def _subject(
    name: str, before: Mapping[tuple[_Key, str], _Value], after: Mapping[tuple[_Key, str], _Value], seed: int
) -> SubjectComparison:
    both = [key for key in before if key in after]
    flips: dict[bool, list[Flip]] = {True: [], False: []}
    for key in both:
        if before[key].success != after[key].success:
            flips[after[key].success].append(Flip(key[0][0], before[key].entry, after[key].entry))
    return SubjectComparison(
        name,
        len(both),
        _difference(_by_task(before, "success"), _by_task(after, "success"), True, seed, name, "success"),
        _difference(_by_task(before, "return_"), _by_task(after, "return_"), False, seed, name, "return"),
        tuple(flips[True]),
        tuple(flips[False]),
    )


_ByTask: TypeAlias = dict[int, dict[tuple[_Key, str], float]]
"""Values by seed, which is a task, and by what pairs them."""


def _by_task(values: Mapping[tuple[_Key, str], _Value], field: str) -> _ByTask:
    tasks: _ByTask = {}
    for key, value in values.items():
        tasks.setdefault(key[0][1], {})[key] = float(getattr(value, field))
    return tasks


def _difference(before: _ByTask, after: _ByTask, share: bool, seed: int, *parts: str) -> Difference:
    seed = derive_seed(seed, "compare", *parts)
    each = [estimate([[*task.values()] for task in tasks.values()], seed, share) for tasks in (before, after)]
    pairs = [
        [after[task][key] - value for key, value in found.items() if key in after.get(task, {})]
        for task, found in before.items()
    ]
    paired = [found for found in pairs if found]
    difference = estimate(paired, seed, within=(-1.0, 1.0) if share else None) if paired else _independent(*each)
    return Difference(each[0], each[1], difference)


def _independent(before: Estimate | None, after: Estimate | None) -> Estimate | None:
    """The difference of two independent estimates, its interval from theirs.

    Source: Zou and Donner, "Construction of confidence limits about effect measures", Statistics in Medicine 27, 2008.
    """
    if before is None or after is None:
        return None
    difference, n = after.mean - before.mean, before.n + after.n
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return Estimate(difference, None, None, n)
    down = math.hypot(after.mean - after.low, before.high - before.mean)
    up = math.hypot(after.high - after.mean, before.mean - before.low)
    return Estimate(difference, difference - down, difference + up, n)


def _totals(run: RunReader, episodes: Mapping[_Key, Entry]) -> RunTotals:
    found: Sequence[Summary] = [entry.summary for entry in episodes.values() if entry.summary]
    return RunTotals(
        run.name,
        len(found),
        sum(summary.tokens for summary in found),
        total_cost(summary.cost for summary in found),
        sum(summary.turns for summary in found) / len(found),
    )
