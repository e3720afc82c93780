"""The page's questions and their answers, as plain data. No question changes anything."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.entries import Entry, Summary
from marl_gem.runs.folder import CONFIG, METRICS, REPORT
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.lock import is_locked
from marl_gem.runs.parts import pretty
from marl_gem.runs.reader import RunReader
from marl_gem.viewer.curves import curves
from marl_gem.viewer.listing import Listing, row_of
from marl_gem.viewer.overview import overview
from marl_gem.viewer.query import FILTERS, LINES, SORTS, Query, grades_of, report_of, select
from marl_gem.viewer.transcript import transcript

Parameters = Mapping[str, list[str]]

MOST_ROWS = 500
"""The most rows in one answer."""

CACHED = 32
"""So many lists and overviews are kept, so that scrolling does not search again."""

PATIENCE = 0.3
"""So many seconds a question waits for a run that is being read, before it is answered with a part."""

RAW = 2_000
"""The most characters of a broken line that are shown."""


class Api:
    """Answer questions about the runs of a library. Safe to use from many threads.

    Every public method takes the parameters of a URL; all but `picture` return plain data.
    """

    def __init__(self, library: RunLibrary) -> None:
        self._library = library
        self._cache: dict[Any, Any] = {}
        self._listing, self._listing_lock = Listing(), Lock()
        self.questions: dict[str, Callable[[Parameters], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "progress": self.progress,
            "curves": self.curves,
            "comparison": self.comparison,
            "episodes": self.episodes,
            "position": self.position,
            "episode": self.episode,
            "record": self.record,
            "tokens": self.tokens,
            "counterpart": self.counterpart,
        }

    def runs(self, parameters: Parameters) -> dict[str, Any]:
        """All runs, the newest first, as `listing` has them. With the `stamp` of an earlier answer, nothing more if it
        is the same."""
        with self._listing_lock:
            rows = [_plain(row) for row in self._listing.rows(self._library.runs().values())]
        stamp = str(zlib.crc32(json.dumps(rows, allow_nan=True).encode()))
        if _text(parameters, "stamp") == stamp:
            return {"stamp": stamp}
        return {"stamp": stamp, "root": str(self._library.root), "runs": rows}

    def run(self, parameters: Parameters) -> dict[str, Any]:
        """One run: its numbers, its configuration and report, and the filters and sort keys of its table.

        Of a large run the numbers are those of the episodes that were read within `PATIENCE`; `reading` then is the
        share of the files that this is.
        """
        run = self._run(parameters)
        complete = _read(run)
        if complete:
            entries = run.entries()
            numbers: dict[str, Any] = self._cached(("run", run.name, run.stamp), lambda: _plain(overview(entries)))
        else:
            numbers = _plain(overview(run.entries_so_far()))
        row = self._listing_row(run)
        return numbers | {
            "reading": None if complete else run.share,
            "row": row,
            "changed": row["changed"],
            "results": self._results(run, row["status"] == "running"),
            "matches": [other.name for other in self._library.runs().values() if other.path.parent == run.path],
            "name": run.name,
            "path": str(run.path),
            "config": pretty(run.config) if run.config else run.problem(CONFIG),
            "report": pretty(run.report) if run.report else run.problem(REPORT),
            "pictures": run.pictures,
            "training": run.is_training,
            "checkpoints": run.checkpoints,
            "filters": [*FILTERS, *LINES],
            "sorts": list(SORTS),
        }

    def progress(self, parameters: Parameters) -> dict[str, Any]:
        """How much of a run has been read: a share, or None if it is all."""
        run = self._run(parameters)
        return {"reading": None if run.read_ahead(PATIENCE) else run.share}

    def curves(self, parameters: Parameters) -> dict[str, Any]:
        """What is drawn of a training run. With the `stamp` of an earlier answer, nothing more if it is the same."""
        run = self._run(parameters)
        if not run.is_training:
            raise RecordError(f"{run.name} is no training run: it has no {METRICS}")
        stamp, ended = run.metrics_stamp, bool(run.report)
        answer = {"stamp": f"{stamp}{ended}", "name": run.name, "ended": ended, "checkpoints": run.checkpoints}
        if _text(parameters, "stamp") == answer["stamp"]:
            return {"stamp": answer["stamp"]}
        found = self._cached(("curves", run.name, stamp), lambda: _plain(curves(run.metrics, run.config)))
        return {**answer, "scenarios": run.scenarios, **found}

    def comparison(self, parameters: Parameters) -> dict[str, Any]:
        """Two runs side by side, `run` and `run2`: see `pairs`."""
        names = [_text(parameters, name) for name in ("run", "run2")]
        stamps = [self._library.open(name).changed for name in names]
        from marl_gem.viewer.pairs import pairs  # and with it all of evaluation, which most questions do not need

        parts = self._cached(
            ("comparison", *names, *stamps), lambda: [_plain(part) for part in pairs(self._library, *names)]
        )
        return {"parts": parts, "rows": [self._listing_row(self._library.open(name)) for name in names]}

    def episodes(self, parameters: Parameters) -> dict[str, Any]:
        """Some rows of a run's table. All episodes, in order, are those that have been read; others wait for all."""
        run, query = self._run(parameters), _query(parameters)
        everything = query == Query() and not _read(run)
        found = run.entries_so_far() if everything else self._select(run, query)
        grades = self._cached(("grades", run.name, run.report_stamp), lambda: grades_of(run))
        start, count = (max(0, _number(parameters, name, default)) for name, default in (("start", 0), ("count", 100)))
        return {
            "total": len(found),
            "rows": [_row(entry, grades) for entry in found[start : start + min(count, MOST_ROWS)]],
        }

    def position(self, parameters: Parameters) -> dict[str, Any]:
        """The index of an episode in the table, from 0, and the keys of its neighbours."""
        found = self._select(self._run(parameters), _query(parameters))
        key = _text(parameters, "key")
        index = next((index for index, entry in enumerate(found) if entry.key == key), None)
        if index is None:
            return {"index": None, "total": len(found), "before": None, "after": None}
        before, after = (found[near].key if 0 <= near < len(found) else None for near in (index - 1, index + 1))
        return {"index": index, "total": len(found), "before": before, "after": after}

    def episode(self, parameters: Parameters) -> dict[str, Any]:
        """The transcript of one episode; a line that is no episode is answered as text, up to a length."""
        run, entry = self._entry(parameters)
        row = _row(entry) | {"run": run.name, "file": run.file_of(entry).path.name}
        try:
            if not entry.summary:
                raise RecordError(entry.broken)
            episode = run.read(entry)
        except RecordError as error:
            raw = run.file_of(entry).read(entry)[: 4 * RAW].decode("utf-8", "replace")
            return row | {"broken": str(error), "raw": raw[:RAW]}
        return row | {
            "options": pretty(episode.options) if episode.options else "",
            **_plain(transcript(episode, judged=entry.summary.outcomes)),
        }

    def record(self, parameters: Parameters) -> dict[str, Any]:
        """The record of one episode, as the line of JSON that it is in the file."""
        run, entry = self._entry(parameters)
        return {"record": run.file_of(entry).read(entry).decode("utf-8", "replace")}

    def tokens(self, parameters: Parameters) -> dict[str, Any]:
        """The tokens of one response, and their log-probabilities."""
        run, entry = self._entry(parameters)
        turns, number = run.read(entry).turns, _number(parameters, "turn", 1)
        if not 1 <= number <= len(turns):
            raise RecordError(f"episode {entry.key} has no turn {number}; it has {len(turns)}")
        response = turns[number - 1].response
        return {"ids": response.token_ids, "logprobs": response.logprobs, "prompt": response.prompt_ids}

    def counterpart(self, parameters: Parameters) -> dict[str, Any]:
        """An episode to compare with this one: of the same task, in another run or as a repeat in the same run."""
        run, entry = self._entry(parameters)
        other = self._library.open(_text(parameters, "other") or run.name)
        if not (episode := entry.summary):
            return {"key": None, "same": False}
        entries = other.entries()
        if other is run:  # those after this one, then those before it
            index = next(index for index, near in enumerate(entries) if near.key == entry.key)
            entries = [*entries[index + 1 :], *entries[:index]]
        nearest = min(entries, key=lambda near: _difference(episode, near.summary), default=None)
        return {
            "key": nearest.key if nearest else None,
            "same": nearest is not None and _difference(episode, nearest.summary) < ANOTHER,
        }

    def picture(self, parameters: Parameters) -> bytes:
        """A picture in a run's folder, as PNG.

        Raises:
            RecordError: the run has no picture of this name, or it cannot be read.
        """
        return self._run(parameters).picture(_text(parameters, "name"))

    def _results(self, run: RunReader, running: bool) -> dict[str, Any] | None:
        """What the report says; of a run that goes on, or that has no report, what its episodes come to so far."""
        stamps = (run.report_stamp, run.stamp if running or not run.report else None)
        found: dict[str, Any] | None = self._cached(("results", run.name, *stamps), lambda: _results(run, running))
        return found

    def _listing_row(self, run: RunReader) -> dict[str, Any]:
        return _plain(row_of(run, is_locked(run.folder)))

    def _run(self, parameters: Parameters) -> RunReader:
        return self._library.open(_text(parameters, "run"))

    def _entry(self, parameters: Parameters) -> tuple[RunReader, Entry]:
        run = self._run(parameters)
        return run, run.find(_text(parameters, "key"))

    def _select(self, run: RunReader, query: Query) -> list[Entry]:
        run.entries()
        found: list[Entry] = self._cached((query, run.name, run.stamp), partial(select, run, query))
        return found

    def _cached(self, key: Any, compute: Callable[[], Any]) -> Any:
        cache = self._cache
        if (found := cache.get(key)) is None:
            found = compute()
            self._cache = dict([*cache.items(), (key, found)][-CACHED:])  # a new dict: other threads read the old one
        return found


ANOTHER = 3
"""`_difference` of episodes of different tasks."""


def _difference(episode: Summary, other: Summary | None) -> int:
    """How much two episodes have to do with each other: 0 for the same task, seed and repeat, 1 for another repeat, 2
    for another seed where tasks have numbers, `ANOTHER` for another task."""
    if other is None or (other.scenario, other.task) != (episode.scenario, episode.task):
        return ANOTHER
    if other.seed != episode.seed:
        return ANOTHER if episode.task is None else 2
    return int(other.repeat != episode.repeat)


def _read(run: RunReader) -> bool:
    """Wait until a run has been read, or at least its first episodes for `PATIENCE`; whether all of it has been."""
    while not (complete := run.read_ahead(PATIENCE)) and not run.entries_so_far():
        pass  # each attempt waits
    return complete


def _query(parameters: Parameters) -> Query:
    return Query(
        filters=frozenset(parameters.get("filter", ())),
        seat=_text(parameters, "seat"),
        model=_text(parameters, "model"),
        text=_text(parameters, "text"),
        sort=_text(parameters, "sort"),
        reverse=bool(_text(parameters, "reverse")),
        task=_number(parameters, "task", 0) if _text(parameters, "task") else None,
        grade=_text(parameters, "grade"),
        reason=_text(parameters, "reason"),
    )


def _text(parameters: Parameters, name: str) -> str:
    return parameters.get(name, [""])[0]


def _number(parameters: Parameters, name: str, default: int) -> int:
    text = _text(parameters, name)
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RecordError(f"{name} is a number, not {text[:20]!r}")
    return int(text or default)


def _results(run: RunReader, running: bool) -> dict[str, Any] | None:
    report = report_of(run)
    if not report and run.config.get("kind") not in ("eval", "cell"):
        return None
    from marl_gem.evaluation.report import read_config
    from marl_gem.viewer.results import results, results_so_far

    if report and not (running and report.kind in ("eval", "cell")):
        return _plain(results(report))
    try:
        config = read_config(run.config)
    except (ValueError, msgspec.ValidationError):
        return None
    entries = run.entries_so_far()
    return _plain(results_so_far(config, entries, run.grades)) if entries else None


def _row(entry: Entry, grades: Mapping[int, str] = MappingProxyType({})) -> dict[str, Any]:
    """An entry for a table. Seeds are text, because JavaScript's numbers have 53 bits."""
    if not (episode := entry.summary):
        return {"key": entry.key, "broken": entry.broken, "size": entry.size}
    row = {"key": entry.key} | _plain(episode) | {"seed": str(episode.seed)}
    row["outcomes"] = {
        agent: {"label": outcome.label, "success": outcome.success, "reason": outcome.reason}
        for agent, outcome in episode.outcomes.items()
    }
    row["grade"] = grades.get(episode.task, "") if episode.task is not None else ""
    del row["final_infos"]
    return row


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain
