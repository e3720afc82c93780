"""What the page asks for, as plain data. Every question names what it wants; the answers change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from marl_gem.errors import RecordError
from marl_gem.runs.index import Entry
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.parts import pretty
from marl_gem.runs.reader import RunReader
from marl_gem.viewer.overview import overview
from marl_gem.viewer.query import FILTERS, LINES, SORTS, Query, select
from marl_gem.viewer.transcript import transcript

Parameters = Mapping[str, list[str]]

MOST_ROWS = 500
REMEMBERED = 32
"""How many lists and overviews are kept, so that scrolling does not search again."""

RAW = 2_000
"""How many characters of a broken line are shown."""


class Api:
    """Answers questions about the runs of a library. Safe to be asked from many threads.

    Every method but `picture` takes the parameters of a URL and gives what goes to JSON.
    """

    def __init__(self, library: RunLibrary) -> None:
        self._library = library
        self._known: dict[Any, Any] = {}
        self.questions: dict[str, Callable[[Parameters], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "episodes": self.episodes,
            "place": self.place,
            "episode": self.episode,
            "tokens": self.tokens,
            "twin": self.twin,
        }

    def runs(self, parameters: Parameters) -> dict[str, Any]:
        """All runs, the newest first."""
        runs = self._library.runs().values()
        return {
            "root": str(self._library.root),
            "runs": [
                {
                    "name": run.name,
                    "scenario": str(run.config.get("scenario", "")),
                    "size": run.size,
                    "changed": run.changed,
                }
                for run in runs
            ],
        }

    def run(self, parameters: Parameters) -> dict[str, Any]:
        """One run in numbers, what it was asked to do, and what the table can be filtered and sorted by."""
        run = self._run(parameters)
        entries = run.entries()
        numbers: dict[str, Any] = self._remember(("run", run.name, run.stamp), lambda: _plain(overview(entries)))
        return numbers | {
            "name": run.name,
            "path": str(run.path),
            "changed": run.changed,
            "config": pretty(run.config) if run.config else "",
            "report": pretty(run.report) if run.report else "",
            "pictures": run.pictures,
            "filters": [*FILTERS, *LINES],
            "sorts": list(SORTS),
        }

    def episodes(self, parameters: Parameters) -> dict[str, Any]:
        """Some rows of a run's table."""
        found = self._select(self._run(parameters), _query(parameters))
        start, count = (max(0, _number(parameters, name, default)) for name, default in (("start", 0), ("count", 100)))
        return {"total": len(found), "rows": [_row(entry) for entry in found[start : start + min(count, MOST_ROWS)]]}

    def place(self, parameters: Parameters) -> dict[str, Any]:
        """Where an episode stands in the table, from 0 up, and which come before and after it."""
        found = self._select(self._run(parameters), _query(parameters))
        key = _text(parameters, "key")
        at = next((place for place, entry in enumerate(found) if entry.key == key), None)
        if at is None:
            return {"place": None, "total": len(found), "before": None, "after": None}
        before, after = (found[near].key if 0 <= near < len(found) else None for near in (at - 1, at + 1))
        return {"place": at, "total": len(found), "before": before, "after": after}

    def episode(self, parameters: Parameters) -> dict[str, Any]:
        """One episode, taken apart; a line that is none comes as it is, up to a length."""
        run, entry = self._entry(parameters)
        row = _row(entry) | {"run": run.name, "file": run.file_of(entry).path.name}
        try:
            if not entry.summary:
                raise RecordError(entry.broken)
            episode = run.read(entry)
        except RecordError as error:
            raw = run.file_of(entry).read(entry)[: 4 * RAW].decode("utf-8", "replace")
            return row | {"broken": str(error), "raw": raw[:RAW]}
        return row | {"options": pretty(episode.options) if episode.options else "", **_plain(transcript(episode))}

    def tokens(self, parameters: Parameters) -> dict[str, Any]:
        """The tokens of one response, and how likely each was."""
        run, entry = self._entry(parameters)
        turns, number = run.read(entry).turns, _number(parameters, "turn", 1)
        if not 1 <= number <= len(turns):
            raise RecordError(f"episode {entry.key} has no turn {number}; it has {len(turns)}")
        response = turns[number - 1].response
        return {"ids": response.token_ids, "logprobs": response.logprobs, "prompt": response.prompt_ids}

    def twin(self, parameters: Parameters) -> dict[str, Any]:
        """An episode of the same task to lay beside this one: in another run or, played again, in its own."""
        run, entry = self._entry(parameters)
        other = self._library.open(_text(parameters, "other") or run.name)
        if not (own := entry.summary):
            return {"key": None, "same": False}
        entries = [near for near in other.entries() if other is not run or near.key != entry.key]
        same = [
            near.key
            for near in sorted(entries, key=lambda near: bool(near.summary and near.summary.repeat != own.repeat))
            if near.summary and (near.summary.scenario, near.summary.seed) == (own.scenario, own.seed)
        ]
        after = [near.key for near in entries if other is run and near.offset > entry.offset]
        key = next(iter([*same, *after, *(near.key for near in entries)]), None)
        return {"key": key, "same": bool(same)}

    def picture(self, parameters: Parameters) -> Path:
        """The file of a picture that lies beside a run's episodes.

        Raises:
            RecordError: there is none of this name.
        """
        run, name = self._run(parameters), _text(parameters, "name")
        if name not in run.pictures:
            raise RecordError(f"{run.name} has no picture {name!r}")
        return run.folder / name

    def _run(self, parameters: Parameters) -> RunReader:
        return self._library.open(_text(parameters, "run"))

    def _entry(self, parameters: Parameters) -> tuple[RunReader, Entry]:
        run = self._run(parameters)
        return run, run.find(_text(parameters, "key"))

    def _select(self, run: RunReader, query: Query) -> list[Entry]:
        run.entries()
        found: list[Entry] = self._remember((query, run.name, run.stamp), partial(select, run, query))
        return found

    def _remember(self, key: Any, find: Callable[[], Any]) -> Any:
        known = self._known
        if (found := known.get(key)) is None:
            found = find()
            self._known = dict([*known.items(), (key, found)][-REMEMBERED:])  # a new dict: others may be reading
        return found


def _query(parameters: Parameters) -> Query:
    return Query(
        filters=frozenset(parameters.get("filter", ())),
        seat=_text(parameters, "seat"),
        model=_text(parameters, "model"),
        text=_text(parameters, "text"),
        sort=_text(parameters, "sort"),
        reverse=bool(_text(parameters, "reverse")),
    )


def _text(parameters: Parameters, name: str) -> str:
    return parameters.get(name, [""])[0]


def _number(parameters: Parameters, name: str, default: int) -> int:
    text = _text(parameters, name)
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RecordError(f"{name} is a number, not {text[:20]!r}")
    return int(text or default)


def _row(entry: Entry) -> dict[str, Any]:
    """An entry for a table. Seeds go as text: JavaScript's numbers hold 53 bits."""
    if not (episode := entry.summary):
        return {"key": entry.key, "broken": entry.broken, "size": entry.size}
    return {"key": entry.key} | _plain(episode) | {"seed": str(episode.seed)}


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain
