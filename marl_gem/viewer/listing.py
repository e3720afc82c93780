"""The runs of a library as rows of a list, from what each run says of itself. No episode is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from marl_gem.errors import MarlGemError
from marl_gem.runs.files import is_regular, open_inside
from marl_gem.runs.folder import CONFIG, METRICS, REPORT
from marl_gem.runs.lock import is_locked
from marl_gem.runs.reader import RunReader
from marl_gem.types import read_json
from marl_gem.viewer.query import report_of

if TYPE_CHECKING:
    from marl_gem.evaluation.estimates import Estimate
    from marl_gem.evaluation.report import MatchReport, Report

Kind: TypeAlias = Literal["evaluation", "grid", "tournament", "training", "played"]
"""What a run is; "played" are episodes that no evaluation or training wrote."""

Status: TypeAlias = Literal["running", "finished", "interrupted", "failed", "empty"]
"""Whether a process works on a run; whether all is there that was asked for, a part, no episode that counts because
all failed, or nothing at all."""

KINDS: dict[str, Kind] = {"eval": "evaluation", "cell": "evaluation", "grid": "grid", "tournament": "tournament"}

SEATS = 3
"""The most seats of a run that a row names."""

SHORT = 300
"""The most characters of a reason."""

TAIL = 64 * 1024
"""So many bytes at the end of a file of metrics are searched for the last score."""

_UNTRIED = ("random", "human", "scripted:", "replay:")
"""Beginnings of policies that are mostly not what an evaluation is about."""


class Score(msgspec.Struct, frozen=True):
    """The main number of a run, with its 95% interval where there is one.

    `of` says whose it is, `what` what it is: "success rate", "win rate", "score" (shares from 0 to 1) or "rating".
    """

    of: str
    what: str
    value: float
    low: float | None = None
    high: float | None = None


class RunRow(msgspec.Struct, kw_only=True):
    """A run in a list.

    `parent` is the name of the grid that it is a part of. `why` explains a status. `seats` name who plays, and
    `more_seats` counts further ones. `episodes` count, and `planned` were asked for; None: not known without reading
    them. `cost` is in US dollars, None if it is not known.
    """

    name: str
    parent: str = ""
    kind: Kind
    status: Status
    why: str
    scenarios: list[str]
    seats: list[str]
    more_seats: int
    size: int
    changed: float
    score: Score | None = None
    episodes: int | None = None
    planned: int | None = None
    cost: float | None = None
    training: bool = False


class Listing:
    """Rows of runs; a row is computed again when a file of its run has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, RunRow]] = {}

    def rows(self, runs: Iterable[RunReader]) -> list[RunRow]:
        """A row for each run, in the same order. Runs that cannot be read say so in `why`."""
        runs = list(runs)
        known = {run.name: self._row(run) for run in runs}
        self._known = known
        grids = {run.path: run.name for run in runs if known[run.name][1].kind == "grid"}
        for run in runs:
            known[run.name][1].parent = grids.get(run.path.parent, "")
        return [row for _, row in known.values()]

    def _row(self, run: RunReader) -> tuple[object, RunRow]:
        stamp = _stamp(run)
        stored = self._known.get(run.name)
        return stored if stored and stored[0] == stamp else (stamp, row_of(run, running=stamp[0] is True))


def _stamp(run: RunReader) -> tuple[object, ...]:
    """Differs between two states of a run's files; the first part says whether a process works on the run."""
    files = [path.lstat() for path in (*run.paths, run.folder / METRICS) if is_regular(path)]
    return (
        is_locked(run.folder) if run.path.is_dir() else False,
        *((file.st_size, file.st_mtime_ns) for file in files),
    )


def row_of(run: RunReader, running: bool) -> RunRow:
    """The row of a run; `running` says whether a process works on it."""
    config, report = run.config, report_of(run)
    kind = _kind(run, config)
    status, why = _status(run, kind, report)
    seats = _seats(config)
    last = _last_metrics(run) if run.is_training else {}
    return RunRow(
        name=run.name,
        kind=kind,
        status="running" if running else status,
        why="" if running else why[:SHORT],
        scenarios=run.scenarios,
        seats=seats[:SEATS],
        more_seats=max(0, len(seats) - SEATS),
        size=run.size,
        changed=run.changed or _changed(run),
        score=_score(report) if report else _training_score(last),
        episodes=report.episodes.counted if report else _count(last.get("episodes")),
        planned=report.episodes.planned if report else None,
        cost=report.cost if report else None,
        training=run.is_training,
    )


def _kind(run: RunReader, config: Mapping[str, Any]) -> Kind:
    if run.is_training or isinstance(config.get("training"), dict):
        return "training"
    kind = config.get("kind")
    return KINDS.get(kind, "played") if isinstance(kind, str) else "played"


def _status(run: RunReader, kind: Kind, report: Report | None) -> tuple[Status, str]:
    """What a run came to that no process works on, and why."""
    if problem := run.problem(CONFIG) or run.problem(REPORT):
        return "failed", problem
    if report:
        return _reported(report)
    finished, *failed = (is_regular(file.path) and file.path.stat().st_size > 0 for file in run.files)
    if kind == "training":
        if not is_regular(run.folder / METRICS):
            return "empty", "nothing has been measured: it was stopped, or failed, before its first update"
        going_on = f"marl-gem train --resume {run.name} goes on"
        return ("finished", "") if run.report else ("interrupted", f"it was stopped, or failed; {going_on}")
    if not finished and any(failed):
        return "failed", "every episode failed; errors.jsonl says why"
    if kind == "played":
        return ("finished", "") if finished else ("empty", "no episode was written")
    if kind == "grid":
        return "interrupted", "it has no report: it was stopped early; --resume plays the rest"
    if not finished:
        return "empty", "no episode has been played; --resume plays them"
    return "interrupted", "it has no report: it was stopped early; --resume plays the rest"


def _reported(report: Report) -> tuple[Status, str]:
    """What an evaluation came to, by its report."""
    episodes, stopped = report.episodes, f"; stopped: {report.stopped}" if report.stopped else ""
    faults = [f"{error.origin}: {error.type}: {error.message}" for error in report.errors[:1]]
    if not episodes.pending:
        return "finished", ""
    if not episodes.counted and episodes.failed:
        return "failed", f"all {episodes.failed:,} episodes failed; {faults[0] if faults else ''}"
    if not episodes.counted:
        return "empty", f"none of {episodes.planned:,} episodes was played{stopped}"
    failed = f", of which {episodes.failed:,} failed ({faults[0]})" if faults else ""
    return "interrupted", f"pending: {episodes.pending:,} of {episodes.planned:,} episodes{failed}{stopped}"


def _seats(config: Mapping[str, Any]) -> list[str]:
    """Who plays, as in "assistant: random"; of a grid, how many policies a seat has."""
    players = config.get("players") or config.get("seats")
    if not isinstance(players, dict):
        return []
    texts = {agent: who if isinstance(who, str) else " | ".join(map(str, who)) for agent, who in players.items()
             if isinstance(who, str | list)}  # fmt: skip
    return [f"{agent}: {who}"[:SHORT] for agent, who in texts.items()]


def _score(report: Report) -> Score | None:
    if report.tournament:
        best = next(iter(report.tournament.players), None)
        if best is None:
            return None
        if best.rating:
            return Score(best.name, "rating", best.rating.value, best.rating.low, best.rating.high)
        return _estimated(best.name, "score", best.score)
    if report.grid:
        column = report.grid.column_agent
        cells = [(match, match.agents[column].success) for match in report.matches if column in match.agents]
        scored = [(found.mean, match, found) for match, found in cells if found]
        if not scored:
            return None
        _, match, found = max(scored, key=lambda cell: cell[0])
        return _estimated(f"best {column}: {match.players[column].label if column in match.players else match.name}",
                          report.measure, found)  # fmt: skip
    agent = _main_agent(report.matches[0]) if report.matches else ""
    return _estimated(agent, report.measure, report.matches[0].agents[agent].success) if agent else None


def _main_agent(match: MatchReport) -> str:
    """The first seat that is tried: of a model or a trained policy; the first of all if there is none."""
    agents = [agent for agent, numbers in match.agents.items() if numbers.success]
    who = {agent: match.players[agent].who if agent in match.players else "" for agent in agents}
    tried = [agent for agent in agents if who[agent] and not who[agent].startswith(_UNTRIED)]
    return next(iter(tried or agents), "")


def _estimated(of: str, what: str, found: Estimate | None) -> Score | None:
    return None if found is None else Score(of, what, found.mean, found.low, found.high)


def _training_score(row: Mapping[str, Any]) -> Score | None:
    value, interval = row.get("score"), row.get("score_interval")
    if not isinstance(value, int | float):
        return None
    if isinstance(interval, list) and len(interval) == 2 and all(isinstance(end, int | float) for end in interval):
        return Score("", "score", value, *interval)
    return Score("", "score", value)


def _last_metrics(run: RunReader) -> dict[str, Any]:
    """The last score of a training run and its interval, and how many episodes it has kept, as far as they are in the
    last bytes of its metrics."""
    found: dict[str, Any] = {}
    for line in reversed(_tail(run).splitlines()):
        try:
            row = read_json(line.decode("utf-8"))
        except ValueError:
            continue  # a line that was cut
        if isinstance(row, dict):
            found = {**{name: row[name] for name in ("score", "score_interval", "episodes") if name in row}, **found}
        if "score" in found:
            break
    return found


def _tail(run: RunReader) -> bytes:
    try:
        with open_inside(run.folder / METRICS, run.folder) as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            return file.read(TAIL)
    except (OSError, MarlGemError):
        return b""


def _changed(run: RunReader) -> float:
    """When a run without episodes was configured or reported on last."""
    return max((path.lstat().st_mtime for path in run.paths if is_regular(path)), default=0.0)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
