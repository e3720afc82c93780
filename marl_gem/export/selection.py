"""Which episodes and agents of runs are exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from marl_gem.runs.entries import Entry
from marl_gem.runs.outcomes import Outcome
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode


class Selection(msgspec.Struct, frozen=True):
    """What is exported: the agents of finished episodes that fit all of these. Empty ones choose everything."""

    # Names of agents, or patterns such as "player_*".
    agents: tuple[str, ...] = ()
    # Names of models, as records have them, or patterns.
    models: tuple[str, ...] = ()
    # Numbers of tasks, for scenarios that number them.
    tasks: tuple[int, ...] = ()
    # Grades of tasks, as the run's report has them.
    grades: tuple[str, ...] = ()
    # Only agents that succeeded: they won a contest, or solved a task.
    success: bool = False

    def takes(self, agent: str, episode: Episode, outcome: Outcome | None) -> bool:
        """Whether an agent of an episode is exported, its task aside."""
        return (
            _fits(agent, self.agents)
            and _fits(episode.models.get(agent, ""), self.models)
            and (not self.success or (outcome is not None and outcome.success))
        )


EVERYTHING = Selection()


class Selected(msgspec.Struct, frozen=True):
    """An episode of which something is exported, and what is: some agents."""

    run: RunReader
    entry: Entry
    episode: Episode
    agents: tuple[str, ...]
    # Its task's number and grade; None and empty where the scenario has none.
    task: int | None
    grade: str

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """By agent; empty if the episode failed."""
        return self.entry.summary.outcomes if self.entry.summary else {}


def select(runs: Sequence[RunReader], selection: Selection) -> Iterator[Selected]:
    """The episodes of several runs that a selection takes something of, in their order, also those that failed.

    Raises:
        RecordError: a run cannot be read.
    """
    for run in runs:
        grades = grades_of(run)
        run.entries()  # fills in the outcomes
        for entry, episode in run.episodes():
            task = task_of(episode)
            grade = "" if task is None else grades.get(task, "")
            if (selection.tasks and task not in selection.tasks) or not _fits(grade, selection.grades):
                continue
            outcomes = entry.summary.outcomes if entry.summary else {}
            names = dict.fromkeys([*(turn.agent for turn in episode.turns), *episode.returns])
            agents = tuple(name for name in names if selection.takes(name, episode, outcomes.get(name)))
            if agents:
                yield Selected(run, entry, episode, agents, task, grade)


def task_of(episode: Episode) -> int | None:
    """The number of an episode's task, if the scenario numbers its tasks."""
    task = episode.options.get("task")
    return task if type(task) is int else None


def grades_of(run: RunReader) -> dict[int, str]:
    """The grade of each task, as the run's report has them; empty if it has none."""
    grades: dict[int, str] = {}
    for match in _dicts(run.report.get("matches")):
        for row in _dicts(match.get("by_task")):
            with suppress(KeyError):
                if row.get("grade"):
                    grades[int(row["task"])] = str(row["grade"])
    return grades


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
