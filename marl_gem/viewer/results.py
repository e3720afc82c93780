"""What the report of an evaluation, a grid or a tournament says, or its episodes so far, as its page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from marl_gem.evaluation.by_tag import by_tag
from marl_gem.evaluation.estimates import Estimate, Pass, estimate, passes
from marl_gem.evaluation.ratings import SCALE
from marl_gem.evaluation.report import (
    ErrorReport,
    PlayerReport,
    Report,
    RunConfig,
    SpentReport,
    TagReport,
    TaskReport,
)
from marl_gem.evaluation.tasks import by_grade, by_task
from marl_gem.runs.entries import Entry, Summary
from marl_gem.seeding import derive_seed

MOST_TASKS = 5_000
"""So many tasks are shown one by one."""


class GradeRow(msgspec.Struct, frozen=True):
    """The tasks of one grade, and each agent's share of successes in them."""

    grade: str
    tasks: int
    success: dict[str, Estimate | None]


class TaskRow(msgspec.Struct, frozen=True):
    """One task: of how many tries each agent solved how many, and why not in the others."""

    task: int
    grade: str
    solved: dict[str, tuple[int, int]]
    reasons: dict[str, dict[str, int]]


class Cell(msgspec.Struct, frozen=True):
    """One match of a grid: its row and column, the folder of its episodes, and the success in it."""

    row: str
    column: str
    folder: str
    episodes: int
    success: Estimate | None
    return_: Estimate | None = msgspec.field(name="return")
    # Why the column's agent did not succeed, and how often.
    reasons: dict[str, int]


class Grid(msgspec.Struct, frozen=True):
    """A table of matches: `agent` is the one whose success the cells show, and whose players are the columns."""

    agent: str
    row_agents: list[str]
    rows: list[str]
    columns: list[str]
    cells: list[Cell]


class Standings(msgspec.Struct, frozen=True):
    """A tournament: players from the strongest on, the score of one against another, the score of each seat."""

    players: list[PlayerReport]
    matrix: dict[str, dict[str, Estimate | None]]
    seats: dict[str, Estimate | None]
    scale: str
    left_out: str


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says.

    `success` and `passes` are by agent, of an evaluation. `baselines` are shares of successes of trivial policies on
    the same tasks. `so_far` says that the run goes on, or was broken off before it could report.
    """

    kind: str
    measure: str
    stopped: str
    planned: int
    pending: int
    command: str | None
    errors: list[ErrorReport]
    baselines: dict[str, float]
    success: dict[str, Estimate | None] = {}
    passes: dict[str, tuple[Pass, ...]] = {}
    grades: list[GradeRow] = []
    tasks: list[TaskRow] = []
    grid: Grid | None = None
    tournament: Standings | None = None
    tags: tuple[TagReport, ...] = ()
    budget: dict[str, SpentReport] = {}
    so_far: bool = False


def results(report: Report) -> Results:
    """What a report says, arranged for a page."""
    single = report.matches[0] if len(report.matches) == 1 and not report.grid else None
    found: dict[str, Any] = {}
    if single:
        agents = {agent: (numbers.success, numbers.pass_) for agent, numbers in single.agents.items()}
        found = _of_match(agents, single.by_task, single.by_tag, report.config.seed)
    if report.tournament:
        found = {"tags": report.tournament.by_tag}
    return Results(
        kind=report.kind,
        measure=report.measure,
        stopped=report.stopped,
        planned=report.episodes.planned,
        pending=report.episodes.pending,
        command=report.command,
        errors=list(report.errors),
        baselines=report.trivial_baselines,
        grid=_grid(report),
        tournament=_standings(report),
        budget=report.budget,
        **found,
    )


def results_so_far(config: RunConfig, entries: Iterable[Entry], grades: Mapping[int, str]) -> Results:
    """What the episodes of an evaluation, or of a match of a grid, come to before there is a report.

    Args:
        config: what was asked for.
        entries: those that have been played.
        grades: of the tasks, by their numbers.
    """
    tasks: dict[int, list[Summary]] = {}
    for entry in entries:
        if entry.summary and entry.summary.outcomes and not entry.key.startswith("e"):
            tasks.setdefault(entry.summary.seed, []).append(entry.summary)  # a task has a seed, the same in all repeats
    played = [(task, episode) for task, repeats in enumerate(tasks.values()) for episode in repeats]
    agents = dict.fromkeys(agent for _, episode in played for agent in episode.outcomes)
    numbered = {repeats[0].task: repeats for repeats in tasks.values() if repeats[0].task is not None}
    planned = config.n * config.repeats
    return Results(
        kind=config.kind,
        measure="win rate" if any(episode.zero_sum for _, episode in played) else "success rate",
        stopped="",
        planned=planned,
        pending=max(0, planned - len(played)),
        command=None,
        errors=[],
        baselines={},
        so_far=True,
        **_of_match(
            {agent: _estimates(agent, list(tasks.values()), config) for agent in agents},
            by_task(numbered, agents, grades),
            by_tag(((task, episode, {}) for task, episode in played), config.seed),
            config.seed,
        ),
    )


def _estimates(
    agent: str, tasks: Sequence[Sequence[Summary]], config: RunConfig
) -> tuple[Estimate | None, tuple[Pass, ...]]:
    """An agent's success and pass^k."""
    judged = [
        [episode.outcomes[agent].success for episode in repeats if agent in episode.outcomes] for repeats in tasks
    ]
    tried = [tries for tries in judged if tries]
    seed = derive_seed(config.seed, "bootstrap", "success")
    per_k = passes(tried, seed) if config.repeats > 1 else []
    return estimate(tried, seed, proportion=True), tuple(per_k)


def _of_match(
    agents: Mapping[str, tuple[Estimate | None, tuple[Pass, ...]]],
    by_task: Sequence[TaskReport],
    tags: tuple[TagReport, ...],
    seed: int,
) -> dict[str, Any]:
    """What is shown of an evaluation; `agents` has the success and pass^k of each."""
    grades = {task.task: task.grade for task in by_task if task.grade}
    shares = {
        agent: by_grade({task.task: task.agents[agent] for task in by_task if agent in task.agents}, grades, seed)
        for agent in (agents if grades else ())
    }
    counts = {grade: count for found in shares.values() for grade, (count, _) in found.items()}
    return {
        "success": {agent: success for agent, (success, _) in agents.items()},
        "passes": {agent: per_k for agent, (_, per_k) in agents.items() if per_k},
        "tags": tags,
        "grades": [
            GradeRow(grade, count, {agent: found[grade][1] for agent, found in shares.items() if grade in found})
            for grade, count in sorted(counts.items())
        ],
        "tasks": [
            TaskRow(
                task.task,
                task.grade,
                {agent: (tries.solved, tries.tries) for agent, tries in task.agents.items()},
                {agent: tries.reasons for agent, tries in task.agents.items() if tries.reasons},
            )
            for task in by_task[:MOST_TASKS]
        ],
    }


def _standings(report: Report) -> Standings | None:
    if not (found := report.tournament):
        return None
    return Standings(list(found.players), found.matrix, found.seats, SCALE, found.left_out)


def _grid(report: Report) -> Grid | None:
    if not (grid := report.grid):
        return None
    column = grid.column_agent
    cells = []
    for match in report.matches:
        agent = match.agents.get(column)
        success, returns = (agent.success, agent.return_) if agent else (None, None)
        row, head = grid.cells[match.name]
        cells.append(
            Cell(row, head, match.folder, match.episodes, success, returns, dict(agent.reasons) if agent else {})
        )
    return Grid(column, list(grid.row_agents), list(grid.rows), list(grid.columns), cells)
