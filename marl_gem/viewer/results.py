"""What the report of an evaluation, a grid or a tournament says, as its page shows it."""

from __future__ import annotations

from typing import Any

import msgspec

from marl_gem.evaluation.estimates import Estimate, Pass
from marl_gem.evaluation.ratings import SCALE
from marl_gem.evaluation.report import ErrorReport, MatchReport, PlayerReport, Report
from marl_gem.evaluation.tasks import by_grade

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
    the same tasks.
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


def results(report: Report) -> Results:
    """What a report says, arranged for a page."""
    single = report.matches[0] if len(report.matches) == 1 and not report.grid else None
    found: dict[str, Any] = _of_match(single, report.config.seed) if single else {}
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
        **found,
    )


def _of_match(match: MatchReport, seed: int) -> dict[str, Any]:
    grades = {task.task: task.grade for task in match.by_task if task.grade}
    shares = {
        agent: by_grade({task.task: task.agents[agent] for task in match.by_task if agent in task.agents}, grades, seed)
        for agent in (match.agents if grades else ())
    }
    counts = {grade: count for found in shares.values() for grade, (count, _) in found.items()}
    return {
        "success": {agent: numbers.success for agent, numbers in match.agents.items()},
        "passes": {agent: numbers.pass_ for agent, numbers in match.agents.items() if numbers.pass_},
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
            for task in match.by_task[:MOST_TASKS]
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
