"""The runs below a folder, and what is known of each.

A run is a folder with `episodes.jsonl`: an evaluation, one of its parts, or a training run. A single JSONL
file of episodes will do as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.types import Episode
from marl_gem.viewer.index import Entry, EpisodeFile, Summary, outcomes, parse

EPISODES, OWED = "episodes.jsonl", "errors.jsonl"
DEPTH = 4
"""How many folders deep runs are looked for."""

OPEN_RUNS = 16
"""Of how many runs the entries are kept in memory; the others are read again when asked for."""


class Run:
    """One run: its two files of episodes, and what lies beside them.

    `files` are the finished episodes and, where there are such, those that failed for no fault of their own
    and are owed.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.folder = path if path.is_dir() else path.parent
        self._has_folder = path.is_dir()
        self.close()

    def close(self) -> None:
        """Forget the entries."""
        self._judged: object = None
        if self._has_folder:
            self.files = [EpisodeFile(self.path / EPISODES), EpisodeFile(self.path / OWED, "e")]
        else:
            self.files = [EpisodeFile(self.path)]

    def entries(self) -> list[Entry]:
        """All entries as the files are now; those that are owed come last.

        Raises:
            RecordError: a file cannot be read.
        """
        for file in self.files:
            file.refresh()
        entries = [entry for file in self.files for entry in file.entries]
        if self._judged != self.stamp:
            episodes = [entry.summary for entry in entries if entry.summary]
            competitive = self._is_competitive(episodes)
            for episode in episodes:
                episode.outcomes = outcomes(episode, competitive)
            self._judged = self.stamp
        return entries

    @property
    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """Tells one state of the files from another: as they were when the entries were read last."""
        return tuple(file.stamp for file in self.files)

    def file_of(self, entry: Entry) -> EpisodeFile:
        return self.files[-1 if entry.key.startswith("e") else 0]

    def find(self, name: str) -> Entry:
        """The entry with this key or, if there is none, the first with this episode id.

        Raises:
            RecordError: there is neither.
        """
        entries = self.entries()
        for entry in entries:
            if entry.key == name:
                return entry
        for entry in entries:
            if entry.summary and entry.summary.id == name:
                return entry
        raise RecordError(
            f"{self.name} has no episode {name!r}; it has {len(entries)}, named 1, 2, ... or by their ids"
        )

    def read(self, entry: Entry) -> Episode:
        """The whole episode.

        Raises:
            RecordError: the line holds none.
        """
        return parse(self.file_of(entry).read(entry))

    def episodes(self) -> Iterator[tuple[Entry, Episode]]:
        """All finished episodes, one after the other; lines that are none are left out.

        Raises:
            RecordError: the file cannot be read.
        """
        self.files[0].refresh()
        for entry, line in self.files[0].lines([entry for entry in self.files[0].entries if entry.summary]):
            with contextlib.suppress(RecordError):
                yield entry, parse(line)

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for; empty if nobody wrote it down."""
        return self._json("config.json")

    @property
    def report(self) -> dict[str, Any]:
        return self._json("report.json")

    @property
    def pictures(self) -> list[str]:
        """The names of the PNG files beside the episodes."""
        return sorted(file.name for file in self.folder.glob("*.png") if _is_inside(file, self.folder))

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(file.path.stat().st_size for file in self.files if file.path.exists())

    @property
    def changed(self) -> float:
        """When an episode was written last, in seconds since 1970."""
        return max((file.path.stat().st_mtime for file in self.files if file.path.exists()), default=0.0)

    @property
    def paths(self) -> list[Path]:
        """The files that belong to the run."""
        return [*(file.path for file in self.files), self.folder / "config.json", self.folder / "report.json"]

    def _is_competitive(self, episodes: list[Summary]) -> bool:
        """Whether what one agent wins the others lose: as the report says or, without one, as the returns look."""
        if measure := self.report.get("measure"):
            return bool(measure == "win rate")
        whole = [episode.returns.values() for episode in episodes if not episode.error]
        return all(len(returns) > 1 and abs(sum(returns)) < 1e-9 for returns in whole)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / name).read_text("utf-8")) if self._has_folder else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Library:
    """All runs below a folder, or the one that is given itself.

    Args:
        path: a run's folder, a folder of such folders, or a JSONL file of episodes.

    Raises:
        RecordError: there is no such place, or no run in it.
    """

    def __init__(self, path: Path) -> None:
        self.root = path.resolve()
        if not self.root.exists():
            raise RecordError(f"{path} does not exist; give a run's folder, or a folder of runs")
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._open: OrderedDict[str, Run] = OrderedDict()
        if not self.runs():
            raise RecordError(
                f"there is no run in {path}: no {EPISODES} in it, nor {DEPTH} folders deep. "
                "`marl-gem eval ... --out DIR` makes one, and so does `marl-gem train`"
            )

    def runs(self) -> dict[str, Run]:
        """The runs that are there now, by name; the newest come first."""
        with self._lock:
            paths = {_name(self.root, path): path for path in _find(self.root)}
            self._runs = {name: self._runs.get(name) or Run(name, path) for name, path in paths.items()}
            runs = sorted(self._runs.values(), key=lambda run: (-run.changed, run.name))
        return {run.name: run for run in runs}

    def open(self, name: str) -> Run:
        """The run with this name.

        Raises:
            RecordError: there is none.
        """
        with self._lock:
            if not (run := self._runs.get(name)):
                raise RecordError(f"there is no run {name!r} in {self.root}")
            self._open[name] = run
            self._open.move_to_end(name)
            if len(self._open) > OPEN_RUNS:
                self._open.popitem(last=False)[1].close()
        return run


def _find(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, folders, files in os.walk(root):
        place = Path(folder)
        if any(name in files and _is_inside(place / name, root) for name in (EPISODES, OWED)):
            yield place
        deep = len(place.relative_to(root).parts) >= DEPTH
        folders[:] = [] if deep else sorted(name for name in folders if name[0] != "." and name != "checkpoints")


def _name(root: Path, path: Path) -> str:
    return root.name or "run" if path == root else path.relative_to(root).as_posix()


def _is_inside(file: Path, folder: Path) -> bool:
    """Whether a file, after all links, lies below the folder that was given."""
    return file.is_file() and file.resolve().is_relative_to(folder.resolve())
