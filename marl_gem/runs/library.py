"""All runs below a folder.

A run is a folder with `episodes.jsonl`: an evaluation, one of its matches, or a training run. A single JSONL file of
episodes is a run, too. Grids, whose episodes lie in the folders of their matches, and runs that have not played any
episode yet are found if they are asked for.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from marl_gem.errors import RecordError
from marl_gem.runs.files import is_regular
from marl_gem.runs.folder import CHECKPOINTS, CONFIG, EPISODES, ERRORS, METRICS
from marl_gem.runs.reader import RunReader

DEPTH = 4
"""How many levels of folders are searched for runs."""

OPEN_RUNS = 16
"""The entries of so many runs are kept in memory; those of others are read again when they are needed."""


class RunLibrary:
    """All runs below a folder, or the run at the path itself. Safe to use from many threads.

    Args:
        path, others: a run's folder, a folder of such folders, or a JSONL file of episodes.
        with_empty: find runs without episodes of their own, too: grids, and those that have not played any yet. There
            may be no run at all then.

    Raises:
        RecordError: there is no such path, or no run below it.
    """

    def __init__(self, path: Path, *others: Path, with_empty: bool = False) -> None:
        self._paths = [Path(os.path.realpath(path)) for path in (path, *others)]  # raises nothing for links in a circle
        for given, found in zip((path, *others), self._paths, strict=True):
            if not found.exists():
                raise RecordError(f"{given} does not exist; give a run's folder, or a folder of runs")
            if found.is_file() and not _may_hold_episodes(found):
                raise RecordError(f"{given} is no record of episodes, which are lines of JSON; give a run's folder")
        self.root = Path(os.path.commonpath(self._paths))
        self._with_empty = with_empty
        self._lock = threading.Lock()
        self._runs: dict[str, RunReader] = {}
        self._open: OrderedDict[str, RunReader] = OrderedDict()
        if not self.runs() and not with_empty:
            raise RecordError(
                f"there is no run in {path}: no {EPISODES} in it, nor {DEPTH} folders deep. "
                "`marl-gem eval ... --out DIR` makes one, and so does `marl-gem train`"
            )

    def runs(self) -> dict[str, RunReader]:
        """The runs that are there now, by name; the newest come first."""
        with self._lock:
            found = [(path, root) for root in self._paths for path in _find(root, self._with_empty)]
            roots = {_name(self.root, path): (path, root) for path, root in found}
            runs = {name: self._runs.get(name) or RunReader(path, name, root) for name, (path, root) in roots.items()}
            self._runs = runs
            newest = sorted(runs.values(), key=lambda run: (-run.changed, run.name))
        return {run.name: run for run in newest}

    def open(self, name: str) -> RunReader:
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


def _find(root: Path, with_empty: bool) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for name, folders, files in os.walk(root):
        folder = Path(name)
        has_lines = any(file in files and is_regular(folder / file) for file in (EPISODES, ERRORS, METRICS))
        if has_lines or (with_empty and CONFIG in files and _is_configured(folder, root)):
            yield folder
        at_the_bottom = len(folder.relative_to(root).parts) >= DEPTH
        folders[:] = [] if at_the_bottom else sorted(sub for sub in folders if sub[0] != "." and sub != CHECKPOINTS)


def _may_hold_episodes(file: Path) -> bool:
    """Whether a file is empty or begins as a line of a record does."""
    with file.open("rb") as opened:
        return opened.read(1) in (b"", b"{")


def _is_configured(folder: Path, root: Path) -> bool:
    """Whether the folder's config.json is one of marl_gem's; that of a model's weights is not."""
    config = RunReader(folder, root=root).config
    return isinstance(config.get("kind"), str) or isinstance(config.get("training"), dict)


def _name(root: Path, path: Path) -> str:
    return root.name or "run" if path == root else path.relative_to(root).as_posix()
