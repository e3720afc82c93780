"""Which episodes of a run to show, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.entries import Entry, Summary, without_surrogates
from marl_gem.runs.outcomes import Outcome
from marl_gem.runs.reader import RunReader
from marl_gem.types import EpisodeError

if TYPE_CHECKING:
    from marl_gem.evaluation.report import Report

Filter = Callable[[Summary, Collection[str]], bool]

FILTERS: dict[str, Filter] = {
    "success": lambda episode, agents: any(outcome.success for outcome in _outcomes(episode, agents)),
    "failure": lambda episode, agents: any(not outcome.success for outcome in _outcomes(episode, agents)),
    "win": lambda episode, agents: any(outcome.result == "win" for outcome in _outcomes(episode, agents)),
    "draw": lambda episode, agents: any(outcome.result == "draw" for outcome in _outcomes(episode, agents)),
    "loss": lambda episode, agents: any(outcome.result == "loss" for outcome in _outcomes(episode, agents)),
    "error": lambda episode, agents: episode.error is not None,
    "illegal": lambda episode, agents: any(agent in agents for agent in episode.illegal),
    "truncated": lambda episode, agents: bool(episode.limit) or episode.ending == "truncated",
}
"""Conditions on an episode and some of its agents; the outcomes are explained in `marl_gem.runs.outcomes`."""

LINES = ("failed", "broken")
"""Conditions on a line: an attempt that failed because of infrastructure, or no episode at all."""

SORTS: dict[str, Callable[[Summary, Collection[str]], float]] = {
    "turns": lambda episode, agents: episode.turns,
    "tokens": lambda episode, agents: episode.tokens,
    "cost": lambda episode, agents: -1.0 if episode.cost is None else episode.cost,
    "seconds": lambda episode, agents: episode.seconds,
    "return": lambda episode, agents: next((episode.returns[a] for a in episode.returns if a in agents), 0.0),
    "seed": lambda episode, agents: episode.seed,
    "task": lambda episode, agents: -1 if episode.task is None else -episode.task,
}
"""Sort keys; "return" is that of the first agent that the query asks about, and "task" has the lowest number first."""


class Query(msgspec.Struct, frozen=True):
    """What to show. All conditions must hold.

    Args:
        filters: names from `FILTERS` and `LINES`. Outcomes are asked of the agents that `seat` and `model` select: an
            episode is a loss if one of these lost it.
        seat: an agent that must take part.
        model: a model that must take part, in that seat if one is given.
        text: must be in an observation, a response or its reasoning. Case does not matter.
        sort: a name from `SORTS`, the greatest value first; "" keeps the order of the file.
        reverse: the least value first; without `sort` the last line first.
        task: the number of a task.
        grade: the grade of a task, as the run's report has it.
        reason: why one of the agents did not succeed.

    Raises:
        RecordError: there is no such filter or sort key.
    """

    filters: frozenset[str] = frozenset()
    seat: str = ""
    model: str = ""
    text: str = ""
    sort: str = ""
    reverse: bool = False
    task: int | None = None
    grade: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if unknown := self.filters - FILTERS.keys() - set(LINES):
            raise RecordError(f"there is no filter {min(unknown)!r}; choose from {', '.join([*FILTERS, *LINES])}")
        if self.sort and self.sort not in SORTS:
            raise RecordError(f"episodes cannot be sorted by {self.sort!r}; choose from {', '.join(SORTS)}")


def select(run: RunReader, query: Query) -> list[Entry]:
    """The entries of a run that fit a query.

    Raises:
        RecordError: the run cannot be read.
    """
    grades = grades_of(run) if query.grade else {}
    found = [entry for entry in run.entries() if _fits(entry, query, grades)]
    if query.text:
        found = _containing(run, found, query.text)
    if not query.sort:
        return found[::-1] if query.reverse else found
    order = SORTS[query.sort]
    valued = [(order(entry.summary, _agents(entry.summary, query)), entry) for entry in found if entry.summary]
    valued.sort(key=lambda pair: pair[0], reverse=not query.reverse)
    return [entry for _, entry in valued] + [entry for entry in found if not entry.summary]


def _fits(entry: Entry, query: Query, grades: Mapping[int, str]) -> bool:
    if "failed" in query.filters and not entry.key.startswith("e"):
        return False
    if not (episode := entry.summary):
        asked = query.seat or query.model or query.task is not None or query.grade or query.reason
        return query.filters <= set(LINES) and not asked
    if "broken" in query.filters:
        return False
    agents = _agents(episode, query)
    if not agents and (query.seat or query.model):
        return False
    if query.task not in (None, episode.task):
        return False
    if query.grade and (episode.task is None or grades.get(episode.task) != query.grade):
        return False
    if query.reason and not any(outcome.reason == query.reason for outcome in _outcomes(episode, agents)):
        return False
    return all(FILTERS[name](episode, agents) for name in query.filters if name in FILTERS)


def grades_of(run: RunReader) -> dict[int, str]:
    """The grades of a run's tasks by their numbers, as its report has them, or as they were when it began; empty where
    there are none."""
    if (report := report_of(run)) is None:
        return run.grades
    return run.grades | {task.task: task.grade for match in report.matches for task in match.by_task if task.grade}


def report_of(run: RunReader) -> Report | None:
    """The report of an evaluation, a grid or a tournament; None if there is none that can be read."""
    if not (content := run.report):
        return None
    from marl_gem.evaluation.report import report_from  # all of evaluation, which a run without a report does not need

    try:
        return report_from(content)
    except (ValueError, msgspec.ValidationError):
        return None


def _agents(episode: Summary, query: Query) -> list[str]:
    """The agents that a query asks about."""
    return [
        agent
        for agent in episode.returns | episode.models
        if query.seat in ("", agent) and query.model in ("", episode.models.get(agent))
    ]


def _outcomes(episode: Summary, agents: Collection[str]) -> list[Outcome]:
    return [outcome for agent, outcome in episode.outcomes.items() if agent in agents]


# Searching for text


class _Response(msgspec.Struct, gc=False):
    text: str = ""
    reasoning: str = ""


class _Turn(msgspec.Struct, gc=False):
    observation: Any = ""
    response: _Response = msgspec.field(default_factory=_Response)


class _FinalInfo(msgspec.Struct, gc=False):
    final_observation: Any = ""


class _Texts(msgspec.Struct, gc=False):
    """The texts of an episode that a search looks at; not its roles, which mostly are the same in all episodes."""

    id: str = ""
    turns: list[_Turn] = []
    error: EpisodeError | None = None
    final_infos: dict[str, _FinalInfo] = {}


_decode = msgspec.json.Decoder(_Texts).decode


def _containing(run: RunReader, entries: list[Entry], text: str) -> list[Entry]:
    """The entries with this text."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in text).lower().split()
    probe, wanted = max(words, key=len, default="").encode(), text.lower()
    found = []
    for file in run.files:
        for entry, line in file.lines([entry for entry in entries if run.file_of(entry) is file]):
            if probe in line.lower() and _contains(line, wanted):  # most lines need not be decoded
                found.append(entry)
    return found


def _contains(line: bytes, wanted: str) -> bool:
    try:
        episode = _decode(line)
    except (msgspec.DecodeError, RecursionError):  # it may have lone surrogates, or be no episode
        try:
            episode = _decode(without_surrogates(line))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return wanted in line.decode("utf-8", "replace").lower()
    return any(wanted in text.lower() for text in _texts(episode))


def _texts(episode: _Texts) -> Iterator[str]:
    yield episode.id
    if episode.error:
        yield f"{episode.error.type}: {episode.error.message}"
    for turn in episode.turns:
        yield from _texts_of(turn.observation)
        yield turn.response.reasoning
        yield turn.response.text
    for info in episode.final_infos.values():
        yield from _texts_of(info.final_observation)


def _texts_of(observation: Any) -> Iterator[str]:
    if isinstance(observation, str):
        yield observation
    elif isinstance(observation, list):
        parts = [part for part in observation if isinstance(part, dict)]
        yield from (part[name] for part in parts for name in ("name", "text") if isinstance(part.get(name), str))
