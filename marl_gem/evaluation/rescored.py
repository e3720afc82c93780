"""What changed when the episodes of a run were scored again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from marl_gem.errors import ReplayDiverged
from marl_gem.runs.entries import Entry
from marl_gem.runs.outcomes import Outcome
from marl_gem.runs.reader import RunReader


class Change(msgspec.Struct, frozen=True):
    """An agent of an episode whose outcome is another one now."""

    episode: str
    agent: str
    # What it came to before and now; None where the agent was not in the episode.
    before: Outcome | None
    after: Outcome | None


class Changes(msgspec.Struct, frozen=True):
    """The episodes of two runs that were scored differently."""

    # How many finished episodes the first run has, and how many of them have a score in the second.
    recorded: int
    scored: int
    # Agents whose outcome is another one, episode after episode.
    changed: tuple[Change, ...]
    # Why an episode has no score: an agent observes something else than in the record; or another error. By id.
    diverged: dict[str, str]
    failed: dict[str, str]
    # Episodes that end after fewer turns than before: their ids.
    shorter: tuple[str, ...] = ()

    @property
    def episodes(self) -> int:
        """How many episodes have an agent whose outcome is another one."""
        return len({change.episode for change in self.changed})


def what_changed(before: Path, after: Path, folders: Collection[str] = ("",)) -> Changes:
    """Compare the scores of two runs with the same episodes.

    Args:
        before, after: the runs' folders; the second was made by scoring the first again.
        folders: where their episodes lie within them.

    Raises:
        RecordError: an episode file cannot be read.
    """
    changed: list[Change] = []
    diverged: dict[str, str] = {}
    failed: dict[str, str] = {}
    shorter: list[str] = []
    recorded = scored = 0
    for folder in sorted(folders):
        old, errors = _finished(before / folder), dict[str, Entry]()
        new = _finished(after / folder, errors)
        recorded += len(old)
        for id, entry in old.items():
            if id in new:
                scored += 1
                changed += _changes(id, entry, new[id])
                if _turns(new[id]) < _turns(entry):
                    shorter.append(id)
            elif id in errors and (summary := errors[id].summary) and (error := summary.error):
                (diverged if error.type == ReplayDiverged.__name__ else failed)[id] = error.message
    return Changes(recorded, scored, tuple(changed), diverged, failed, tuple(shorter))


def _finished(folder: Path, errors: dict[str, Entry] | None = None) -> dict[str, Entry]:
    """The finished episodes in a folder by id. The last failure of each other one is put into `errors`."""
    finished: dict[str, Entry] = {}
    for entry in RunReader(folder).entries() if folder.is_dir() else ():
        if entry.summary and entry.summary.error:
            if errors is not None:
                errors[entry.summary.id] = entry
        elif entry.summary:
            finished[entry.summary.id] = entry
    return finished


def _turns(entry: Entry) -> int:
    return entry.summary.turns if entry.summary else 0


def _changes(id: str, before: Entry, after: Entry) -> Iterator[Change]:
    old = before.summary.outcomes if before.summary else {}
    new = after.summary.outcomes if after.summary else {}
    for agent in dict.fromkeys([*old, *new]):
        if old.get(agent) != new.get(agent):
            yield Change(id, agent, old.get(agent), new.get(agent))
