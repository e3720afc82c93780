"""One run as it is on disk: configuration, report, metrics and episodes. Reading it changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from marl_gem.errors import MarlGemError, RecordError
from marl_gem.runs.checksum import parse_object
from marl_gem.runs.entries import Entry, Summary, judge_summary
from marl_gem.runs.files import is_regular, read_inside
from marl_gem.runs.folder import CHECKPOINTS, CONFIG, EPISODES, ERRORS, METRICS, REPORT, TASKS, checkpoints, updates_of
from marl_gem.runs.index import EpisodeIndex
from marl_gem.runs.journal import read_rows
from marl_gem.runs.outcomes import looks_like_contest
from marl_gem.runs.outline import read_episode
from marl_gem.types import Episode

MOST_BYTES = 64 * 2**20
"""Of a picture, a configuration or a report that is read."""

MOST_PICTURES, MOST_PIXELS = 100, 50_000_000
"""Of a run that are shown, and of one of its pictures: a small file may unfold to many gigabytes in a browser."""


class RunReader:
    """A run's folder, or a JSONL file of episodes.

    `files` are the index of the finished episodes and, in a folder, that of attempts that failed because of
    infrastructure. A file that does not exist has no episodes.

    Args:
        path: the folder or file.
        name: what to call the run; by default the path's name.
        root: the folder that the user chose, if the run lies somewhere below it: no link below it is followed.
    """

    def __init__(self, path: Path, name: str = "", root: Path | None = None) -> None:
        self.name = name or path.name
        self.path = path
        self._root = root or path
        self.folder = path if path.is_dir() else path.parent
        self._is_folder = path.is_dir()
        self._reading: Thread | None = None
        self._reading_lock = Lock()
        self.close()

    def close(self) -> None:
        """Forget the entries, to free memory. They are read again when they are needed."""
        self._outcomes_of: object = None
        if self._is_folder:
            names = {EPISODES: "", ERRORS: "e"}
            self.files = [EpisodeIndex(self.path / name, prefix, self._root) for name, prefix in names.items()]
        else:
            self.files = [EpisodeIndex(self.path, "", self._root)]

    def entries(self) -> list[Entry]:
        """All entries as the files are now; failed attempts come last.

        Raises:
            RecordError: a file cannot be read.
        """
        for file in self.files:
            file.refresh()
        entries = [entry for file in self.files for entry in file.entries]
        if self._outcomes_of != self.stamp:
            self._judge([entry.summary for entry in entries if entry.summary])
            self._outcomes_of = self.stamp
        return entries

    def read_ahead(self, seconds: float) -> bool:
        """Let a thread read what is new, and wait for it for a while.

        Returns:
            whether all of it has been read; if not, the thread goes on, and `entries_so_far` has more and more.
        """
        with self._reading_lock:
            if self._reading is None or not self._reading.is_alive():
                self._reading = Thread(target=self._read_all, daemon=True)
                self._reading.start()
            reading = self._reading
        reading.join(seconds)
        return not reading.is_alive()

    def entries_so_far(self) -> list[Entry]:
        """Those entries that have been read, while `read_ahead` goes on. Outcomes may still change, see `Summary`."""
        entries = [entry for file in self.files for entry in file.entries]
        self._judge([entry.summary for entry in entries if entry.summary and not entry.summary.outcomes])
        return entries

    @property
    def share(self) -> float:
        """How much of the files has been read, from 0 to 1, while `read_ahead` goes on."""
        return min(file.share for file in self.files)

    def _read_all(self) -> None:
        with contextlib.suppress(MarlGemError):  # who asks for the entries is told
            self.entries()

    @property
    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """Differs between two states of the files, as of the last time that the entries were read."""
        return tuple(file.stamp for file in self.files)

    def file_of(self, entry: Entry) -> EpisodeIndex:
        """The file that holds an entry of this run."""
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
        """The complete episode.

        Raises:
            RecordError: the line holds none.
        """
        return read_episode(self.file_of(entry).read(entry))

    def episodes(self) -> Iterator[tuple[Entry, Episode]]:
        """All finished episodes, in the order of the file; lines that are no episodes are left out.

        Raises:
            RecordError: the file cannot be read.
        """
        self.files[0].refresh()
        for entry, line in self.files[0].lines([entry for entry in self.files[0].entries if entry.summary]):
            with contextlib.suppress(RecordError):
                yield entry, read_episode(line)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration; empty if there is none that can be read."""
        return self._json(CONFIG)

    @property
    def scenarios(self) -> list[str]:
        """The ids of the scenarios in the configuration: of one in `scenario`, or of several in `scenarios`."""
        config = self.config
        listed = config.get("scenarios") or [config.get("scenario")]
        ids = [item.get("id") if isinstance(item, dict) else item for item in listed if isinstance(listed, list)]
        return [item for item in ids if isinstance(item, str) and item]

    @property
    def grades(self) -> dict[int, str]:
        """The grades of an evaluation's tasks by their numbers, as they were when it began; empty without any."""
        found = self._json(TASKS).get("grades")
        listed = found.items() if isinstance(found, dict) else ()
        return {int(task): grade for task, grade in listed if task.isdecimal() and isinstance(grade, str)}

    @property
    def report(self) -> dict[str, Any]:
        """The report; empty if there is none that can be read."""
        return self._json(REPORT)

    @property
    def report_stamp(self) -> tuple[int, ...]:
        """Differs between two states of the report; empty without one."""
        path = self.folder / REPORT
        if not self._is_folder or not is_regular(path):
            return ()
        status = path.stat()
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of a training run's metrics.jsonl, up to the first that was cut off."""
        return read_rows(self.folder / METRICS) if self.is_training else []

    @property
    def is_training(self) -> bool:
        """Whether it is a training run: it has a file of metrics."""
        return self._is_folder and is_regular(self.folder / METRICS)

    @property
    def metrics_stamp(self) -> str:
        """Differs between two states of the metrics.

        Raises:
            RecordError: they cannot be read.
        """
        try:
            status = (self.folder / METRICS).stat()
        except OSError as error:
            raise RecordError(f"{METRICS} cannot be read: {error.strerror or error}") from error
        return f"{status.st_size}-{status.st_mtime_ns}"

    @property
    def checkpoints(self) -> list[int]:
        """After how many updates each checkpoint of a training run was written."""
        return [updates_of(path) for path in checkpoints(self.folder / CHECKPOINTS)] if self.is_training else []

    @property
    def pictures(self) -> list[str]:
        """The names of the PNG files beside the episodes, up to `MOST_PICTURES`."""
        names = sorted(file.name for file in self.folder.glob("*.png") if is_regular(file)) if self._is_folder else []
        return names[:MOST_PICTURES]

    def picture(self, name: str) -> bytes:
        """A PNG file beside the episodes.

        Raises:
            RecordError: there is none of this name, it is none, or its picture is too large to be shown.
        """
        if name not in self.pictures:
            raise RecordError(f"{self.name} has no picture {name!r}")
        try:
            content = read_inside(self.folder / name, self._root, MOST_BYTES)
        except OSError as error:
            raise RecordError(f"{name} cannot be read: {error.strerror or error}") from error
        width, height = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20))
        if not content.startswith(b"\x89PNG\r\n\x1a\n") or width * height > MOST_PIXELS:
            raise RecordError(f"{name} is no PNG of at most {MOST_PIXELS:,} pixels")
        return content

    @property
    def size(self) -> int:
        """The bytes of its episodes."""
        return sum(file.path.stat().st_size for file in self.files if is_regular(file.path))

    @property
    def changed(self) -> float:
        """When an episode, or a row of metrics, was written last, in seconds since 1970; 0 without any."""
        paths = [*(file.path for file in self.files), *([self.folder / METRICS] if self._is_folder else [])]
        return max((path.stat().st_mtime for path in paths if is_regular(path)), default=0.0)

    @property
    def paths(self) -> list[Path]:
        """The files that belong to the run, which no export may replace."""
        return [*(file.path for file in self.files), *(self.folder / name for name in (CONFIG, REPORT, METRICS))]

    def _judge(self, episodes: Sequence[Summary]) -> None:
        """Fill in the outcomes. An episode that does not say whether it is a contest is judged with its scenario's."""
        undeclared: dict[str, list[Summary]] = {}
        for episode in episodes:
            if episode.zero_sum is None and not episode.error:
                undeclared.setdefault(episode.scenario, []).append(episode)
        measure = self.report.get("measure")  # of an evaluation
        contests = {
            scenario: measure == "win rate" if measure else looks_like_contest([episode.returns for episode in group])
            for scenario, group in undeclared.items()
        }
        for episode in episodes:
            if not episode.outcomes or episode.zero_sum is None:
                judge_summary(episode, contests.get(episode.scenario, False))

    def problem(self, name: str) -> str:
        """Why a file of the run, config.json or report.json, cannot be shown; empty if it can, or is not there."""
        try:
            self._parsed(name)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            return f"{name} cannot be read, or is damaged: {error}"
        return ""

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return self._parsed(name)
        except (OSError, ValueError):
            return {}

    def _parsed(self, name: str) -> dict[str, Any]:
        return parse_object(read_inside(self.folder / name, self._root, MOST_BYTES)) if self._is_folder else {}
