"""The records of report.json.

    Report             everything about a run
      RunConfig          what was asked for, as in config.json
        RegradeConfig      which run was scored again
      EpisodeCounts      how many episodes were planned, counted, failed, cut
      SpentReport        a limit of the run, and what is used of it
      ErrorReport        a kind of failure
      MatchReport        one seating: who sits in which seat, and what came of it
        SeatReport         the player in a seat
        AgentReport        success, return, pass^k and usage of one agent
        TaskReport         one task: tries and successes of each agent
        TagReport          one team or role: success and return
      GridReport         the table that the matches of a grid form
      TournamentReport   standings, the matrix of scores
        PlayerReport       rating, score, results and usage of one player

`write_report` in `run.py` writes it, and `read_report` reads it. Apart from what is called `seconds`, a report follows
from the episodes, in whatever order they were played, and from what the scenario declares.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from marl_gem.errors import RecordError
from marl_gem.evaluation.estimates import Estimate, Pass
from marl_gem.evaluation.task_choice import TaskOrder
from marl_gem.runs.configuration import rename_keys
from marl_gem.runs.files import read_json_file
from marl_gem.types import Ending, Limits, Origin

Record = TypeVar("Record", bound=msgspec.Struct)

FORMAT = 2
"""Of config.json and report.json. Format 1, without wrappers and with other names of some keys, is still read."""

Kind: TypeAlias = Literal["eval", "grid", "cell", "tournament"]
"""An evaluation, a grid of evaluations, one of these, or a tournament."""

Measure: TypeAlias = Literal["win rate", "success rate"]
"""What success is: winning, where the scenario's metadata says zero-sum; else solving a task."""


class RegradeConfig(msgspec.Struct, frozen=True):
    """What was scored again."""

    # The folder of the run whose recorded episodes they are.
    run: str
    # The function that gave the returns, as `module:name` or `path/to/file.py:name`; empty: the scenario gave them.
    reward: str = ""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was asked for: the content of config.json."""

    # The version of this record.
    format: int = FORMAT
    kind: Kind
    # The scenario's id; of a function that makes envs, the name of the env.
    scenario: str
    # The options of `marl_gem.make`.
    options: dict[str, Any] = {}
    # The wrappers around the env, the innermost first: text as `--wrap` takes it, or a table of name and values.
    wrappers: tuple[str | dict[str, Any], ...] = ()
    # The policy of each seat, as text; of a grid, a list of policies. Empty in a tournament.
    seats: dict[str, str | list[str]] = {}
    # The players of a tournament: their policies by name.
    players: dict[str, str] = {}
    # How many tasks are played.
    n: int
    # The numbers of the tasks, where they were named; else the first n in this order are played.
    tasks: tuple[int, ...] | None = None
    order: TaskOrder = "listed"
    # How often each task is played.
    repeats: int = 1
    # What `reset` gets in every episode, besides the number of the task.
    reset: dict[str, Any] = {}
    # Everything random follows from it.
    seed: int = 0
    # The limits of each episode.
    limits: Limits = Limits()
    # How each policy that is a model samples, by the policy's text.
    sampling: dict[str, dict[str, Any]] = {}
    # The version of marl_gem that started the run.
    version: str = ""
    # Of a run whose episodes were not played, but scored again.
    regraded: RegradeConfig | None = None


class IllegalActions(msgspec.Struct, frozen=True):
    """How often the scenario called an agent's action illegal."""

    # How many actions.
    actions: int
    # In how many episodes there was at least one.
    episodes: int


class TokenCounts(msgspec.Struct, frozen=True):
    """Tokens that a model read and wrote."""

    prompt: int
    completion: int


class Latency(msgspec.Struct, frozen=True):
    """Seconds until a model answered: the median and the 95th percentile."""

    p50: float
    p95: float


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent or a player did and used in all its episodes."""

    # Its mean number of turns in an episode; None without episodes.
    turns: float | None
    illegal: IllegalActions
    tokens: TokenCounts
    # US dollars, 0 for answers from a cache; None if any price is unknown.
    cost: float | None
    # How many answers came from a cache.
    cached: int
    # How many prompts were cut because they did not fit.
    cut_prompts: int
    # How many requests had to be repeated.
    retries: int
    # Of a model's answers, without those from a cache; None if there are none.
    seconds: Latency | None
    # For each field of requests that its server did not take, such as "seed": how many answers were asked for without.
    unsent: dict[str, int] = {}


class Results(msgspec.Struct, frozen=True):
    """How many contests an agent won, drew and lost; see `marl_gem.runs.outcomes`."""

    won: int
    drawn: int
    lost: int


class AgentReport(UsageReport, frozen=True, kw_only=True):
    """What the episodes of a match came to for one agent."""

    # The share of episodes in which it succeeded, from 0 to 1; None if it was in none.
    success: Estimate | None
    # Its undiscounted return; None if it was in no episode.
    return_: Estimate | None = msgspec.field(name="return")
    # None where the episodes are no contests.
    results: Results | None = None
    # pass^k and pass@k for each k up to the number of repeats; empty without repeats.
    pass_: tuple[Pass, ...] = msgspec.field(name="pass", default=())
    # How many episodes it did not succeed in, by the reason where one is known; the most frequent first.
    reasons: dict[str, int] = {}


class TriesReport(msgspec.Struct, frozen=True):
    """How one agent did at one task."""

    # In how many episodes it tried.
    tries: int
    # In how many of these it succeeded.
    solved: int
    # Why it did not in the others, as in `AgentReport`.
    reasons: dict[str, int]


class TaskReport(msgspec.Struct, frozen=True):
    """One task of a scenario that numbers its tasks."""

    # The task's number, from 0.
    task: int
    # By agent; one that was in no try is left out.
    agents: dict[str, TriesReport]
    # Its grade; empty where the scenario gives none.
    grade: str = ""


class TagReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents of one team, or in one role, came to together."""

    # "team" or "role", and which.
    tag: str
    name: str
    # Who played them: a player's label, where several play; else empty.
    player: str
    # The share of these agents that succeeded, and their mean return; `n` counts an agent in every episode.
    success: Estimate
    return_: Estimate = msgspec.field(name="return")


class SeatReport(msgspec.Struct, frozen=True):
    """Who sits in a seat."""

    # The text by which the policy was asked for.
    who: str
    # A short name for tables and pictures.
    label: str
    # The policy's name, which goes into episodes.
    model: str


class MatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """One seating, and what came of it."""

    # Tells the matches of a run apart; empty if there is one.
    name: str
    # Where its episodes lie, within the run's folder.
    folder: str
    # By agent.
    players: dict[str, SeatReport]
    # How many episodes count, and how many tasks they are of.
    episodes: int
    tasks: int
    # The mean number of all agents' turns in an episode; None without episodes.
    turns: float | None
    # Tokens that all models read and wrote.
    tokens: int
    # US dollars of all episodes; None if any price is unknown.
    cost: float | None
    # The mean wall time of an episode; None without episodes.
    seconds: float | None
    # By agent.
    agents: dict[str, AgentReport]
    # Empty if the scenario does not number its tasks.
    by_task: tuple[TaskReport, ...] = ()
    # Empty if the scenario names neither teams nor roles.
    by_tag: tuple[TagReport, ...] = ()


class GridReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the matches of a grid form a table, which shows the success of one agent."""

    # The agent whose success is shown, and whose players give the columns.
    column_agent: str
    # The agents whose players give the rows.
    row_agents: tuple[str, ...]
    # The labels of rows and columns.
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    # The row and the column of each match, by its name.
    cells: dict[str, tuple[str, str]]


class Rating(msgspec.Struct, frozen=True):
    """A rating by Bradley and Terry's model on Elo's scale: 1000 is average, 200 more are 76% of the points."""

    value: float
    # The 95% interval; None where there is only one task, or the player met nobody.
    low: float | None
    high: float | None


class PlayerReport(UsageReport, frozen=True, kw_only=True):
    """What a tournament came to for one player."""

    name: str
    # The text by which its policy was asked for.
    who: str
    # None where no player met another, and in reports of before ratings were of all games at once.
    rating: Rating | None
    # The mean over all it met in its games, without teammates: 1 for a lower return than its own, 1/2 for the same, 0
    # for a higher one.
    score: Estimate | None
    # The share of games in which it succeeded, as an evaluation counts it. In contests: those it won.
    success: Estimate | None = None
    # How many games it was in, and in how many it had the highest return alone, shared it, or did not have it.
    games: int
    won: int
    drawn: int
    lost: int


class TournamentReport(msgspec.Struct, frozen=True, kw_only=True):
    """Standings, the strongest player first, and the matrix of scores."""

    players: tuple[PlayerReport, ...]
    # The score of one player against another: matrix[player][other].
    matrix: dict[str, dict[str, Estimate | None]]
    # The score of each seat, whoever sat there.
    seats: dict[str, Estimate | None]
    # Why there are no ratings; empty if there are.
    left_out: str = ""
    # Empty if the scenario names neither teams nor roles.
    by_tag: tuple[TagReport, ...] = ()


class EpisodeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many episodes there are."""

    # How many were asked for.
    planned: int
    # How many are finished, which all numbers are about.
    counted: int
    # How many are left to play: planned and not counted.
    pending: int
    # How many of the pending ones failed when they were last played.
    failed: int
    # How many attempts ever failed, also of episodes that are finished now.
    failed_ever: int
    # How the finished ones ended, and how many of them each limit cut.
    endings: dict[Ending, int]
    cut: dict[str, int]


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of the same kind."""

    # Where they came from, and the exception's type.
    origin: Origin
    type: str
    # The agent that failed, if it was one.
    agent: str | None
    # How many episodes failed so.
    count: int
    # One of them, and the message of its exception.
    episode: str
    message: str


class SpentReport(msgspec.Struct, frozen=True):
    """A limit of a run, and how much of it is used."""

    limit: float
    # None if the price of any answer is unknown.
    used: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to: the content of report.json."""

    # The version of this record.
    format: int = FORMAT
    kind: Kind
    config: RunConfig
    # Of marl_gem and Python.
    versions: dict[str, str]
    # The command line that plays the same; None if policies or env came from Python.
    command: str | None
    measure: Measure
    # Why the run ended early; empty if it did not.
    stopped: str
    episodes: EpisodeCounts
    # Of the last call: its limits on the run's "episodes", "tokens" and "cost" (US dollars). What attempts took that
    # failed counts as well.
    budget: dict[str, SpentReport] = {}
    # The most frequent first.
    errors: tuple[ErrorReport, ...]
    # Of the finished episodes: tokens read and written, and US dollars (None if any price is unknown).
    tokens: int
    cost: float | None
    # The success of trivial baselines on the tasks that count, by the baseline's name, where the scenario declares it.
    trivial_baselines: dict[str, float] = {}
    # One for each seating; empty in a tournament.
    matches: tuple[MatchReport, ...] = ()
    # Of a grid only.
    grid: GridReport | None = None
    # Of a tournament only.
    tournament: TournamentReport | None = None


msgspec.json.Decoder(Report)
"""As for `types.Episode`: threads of the viewer convert reports."""


def read_report(path: Path | str) -> Report:
    """Read the report of a run.

    Args:
        path: a run's folder, or a report.json.

    Raises:
        RecordError: there is none, it is damaged, or its format is unknown.
    """
    path = Path(path)
    path = path / "report.json" if path.is_dir() else path
    try:
        return report_from(read_json_file(path))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}. `marl-gem eval ... --resume` writes it") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise RecordError(f"{path} is no report: {error}. `marl-gem eval ... --resume` writes it anew") from error


def report_from(data: Any) -> Report:
    """The report in the content of a report.json.

    Raises:
        ValueError, msgspec.ValidationError: it is none of an evaluation, or its format is unknown.
    """
    return _convert(data, _report_1, Report)


def read_config(data: Any) -> RunConfig:
    """The configuration in the content of a config.json.

    Raises:
        ValueError, msgspec.ValidationError: it is none of an evaluation, or its format is unknown.
    """
    return _convert(data, _config_1, RunConfig)


def _convert(data: Any, from_format_1: Callable[[dict[str, Any]], dict[str, Any]], kind: type[Record]) -> Record:
    format = data.get("format") if isinstance(data, dict) else None
    if format == 1:
        data = from_format_1(data)
    elif format != FORMAT:
        raise ValueError(f"it has format {format!r}, not {FORMAT}; read it with the marl_gem that wrote it")
    return msgspec.convert(_without_old_ratings(data), kind)


def _without_old_ratings(data: dict[str, Any]) -> dict[str, Any]:
    """Ratings were once of one game after the other, with `mu` and `sigma` on a scale of their own."""
    tournament: dict[str, Any] = data.get("tournament") or {}
    players = tournament.get("players") if isinstance(tournament, dict) else None
    if not isinstance(players, list) or not any(
        isinstance(p, dict) and "mu" in (p.get("rating") or {}) for p in players
    ):
        return data
    unrated = [{**player, "rating": None} for player in players]
    reason = "ratings of an older version are on another scale; --resume writes the report anew"
    return {**data, "tournament": {**tournament, "players": unrated, "left_out": reason}}


def _config_1(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "format": FORMAT}


def _report_1(data: dict[str, Any]) -> dict[str, Any]:
    """Format 1 said owed for pending, floors for trivial_baselines, places for cells."""
    data = rename_keys(data, {"episodes.owed": "episodes.pending", "floors": "trivial_baselines"})
    if "grid" in data:
        data = rename_keys(data, {"grid.places": "grid.cells"})
    config = data.get("config")
    return {**data, "format": FORMAT, "config": _config_1(config) if isinstance(config, dict) else config}
