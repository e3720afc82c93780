"""What a run writes down as it goes: metrics.jsonl and episodes.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marl_gem.types import Episode, to_json

METRICS, EPISODES = "metrics.jsonl", "episodes.jsonl"


class Book:
    """The two files of a run, opened to go on after a given update.

    Every row of metrics says how many episodes were written before it. So what a resumed run will write
    again (later updates, the last evaluation) and whatever was cut off in the middle of a line are removed
    from both files when the book is opened.

    Args:
        folder: the run's.
        updates: the last update that counts; -1 starts an empty book.
    """

    def __init__(self, folder: Path, updates: int = -1) -> None:
        rows = read_metrics(folder)
        self.rows = [row for row in rows if row["update"] <= updates and row["phase"] != "after"]
        self._episode_count = max((row["episodes"] for row in self.rows), default=0)
        _keep_lines(folder / METRICS, len(self.rows))
        _keep_lines(folder / EPISODES, self._episode_count)
        self._metrics = (folder / METRICS).open("a", encoding="utf-8")
        self._episodes = (folder / EPISODES).open("a", encoding="utf-8")

    def write(self, update: int, phase: str, metrics: dict[str, Any], episodes: Sequence[Episode] = ()) -> None:
        """Add episodes, then the row that tells of them."""
        self._episodes.writelines(f"{to_json(episode)}\n" for episode in episodes)
        self._episodes.flush()
        self._episode_count += len(episodes)
        row = {"update": update, "phase": phase, **metrics, "episodes": self._episode_count}
        self._metrics.write(json.dumps(row) + "\n")
        self._metrics.flush()
        self.rows.append(row)

    def flush(self) -> None:
        """See to it that what was written is on the disk, so that a checkpoint never knows more than the book."""
        for file in (self._episodes, self._metrics):
            os.fsync(file.fileno())

    def close(self) -> None:
        self.flush()
        self._metrics.close()
        self._episodes.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl, up to the first that was cut off; none if there is no file."""
    rows: list[dict[str, Any]] = []
    try:
        for line in (folder / METRICS).read_text("utf-8").splitlines():
            rows.append(json.loads(line))
    except (FileNotFoundError, ValueError):
        pass
    return rows


def _keep_lines(path: Path, count: int) -> None:
    """Cut a file off after so many lines."""
    if not path.exists():
        return
    end = 0
    with path.open("r+b") as file:
        for _ in range(count):
            end += len(file.readline())
        file.truncate(end)
