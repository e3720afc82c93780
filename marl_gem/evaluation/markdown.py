"""A report for people: report.md, made from a `Report` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar
from urllib.parse import quote

from marl_gem.evaluation.markup import (
    NOTHING,
    block,
    by_row,
    estimate_text,
    money_text,
    number_text,
    quoted,
    shortened,
    table,
    transposed,
)
from marl_gem.evaluation.ratings import SCALE
from marl_gem.evaluation.report import AgentReport, MatchReport, Rating, Report, TagReport, TriesReport
from marl_gem.evaluation.seat_cells import every_seat, seat_table, success_word, usage_cells
from marl_gem.evaluation.seat_groups import MANY
from marl_gem.evaluation.tasks import by_grade, ranked

Shared = TypeVar("Shared")
_LISTED = 12
"""So many tasks, or runs of tasks, are listed in a line."""


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The page. `pictures` are the names of files beside it."""
    shown = (f"![{name}]({name})" for name in pictures)
    tables = {"grid": _combinations, "eval": every_seat, "cell": every_seat}.get(report.kind)
    details = [*(tables(report) if tables else []), *_unsolved(report)]
    return "\n\n".join([summary(report), *shown, *details, *_again(report), *_how_to_read(report)]) + "\n"


def summary(report: Report) -> str:
    """The head of the page, which also fits into a terminal: what was played, how it went, and what failed."""
    body = {"eval": _evaluation, "cell": _evaluation, "grid": _grid, "tournament": _tournament}[report.kind]
    title, tasks = f"# {quoted(report.config.scenario)}", _by_task(report)
    return "\n\n".join([title, _played(report), *body(report), *_unsent(report), *tasks, *_failures(report)])


def baselines_text(report: Report) -> str:
    """The success of the scenario's trivial baselines on what was played; empty if it has none."""
    return ", ".join(f"{name} {100 * share:.1f}%" for name, share in report.trivial_baselines.items())


def _played(report: Report) -> str:
    config, episodes = report.config, report.episodes
    each = f", {config.repeats} times each" if config.repeats > 1 else ""
    meetings = {"grid": " in every combination", "tournament": " in every seating"}.get(report.kind, "")
    chosen = {"listed": "", "by grade": " of all grades in proportion", "shuffled": " that were drawn"}[config.order]
    sentences = [f"{config.n} tasks{chosen}{each}{meetings}: **{episodes.counted} episodes** count."]
    if config.regraded:
        by = f" by {quoted(config.regraded.reward)}" if config.regraded.reward else ""
        sentences.append(f"They are those of {quoted(config.regraded.run)}, scored again{by}.")
    if episodes.pending:
        failed = f", {episodes.failed} of them because they failed (see below)" if episodes.failed else ""
        sentences.append(f"**{episodes.pending} are pending**{failed}; `--resume` plays them.")
    if report.stopped:
        sentences.append(f"The run was stopped early: {quoted(report.stopped)}.")
    cut = ", ".join(f"{count} by {quoted(limit)}" for limit, count in episodes.cut.items())
    if cut:
        sentences.append(f"Limits cut episodes short, and these count as they are: {cut}.")
    if report.tokens or report.cost != 0:
        sentences.append(f"They took {report.tokens:,} tokens; the cost is {money_text(report.cost)}.")
    spent = [_spent(name, limit.used, limit.limit) for name, limit in report.budget.items()]
    if spent:
        sentences.append(f"Of the run's limits {' and '.join(spent)} are used.")
    return " ".join(sentences)


def _spent(name: str, used: float | None, limit: float) -> str:
    if name == "cost":
        return f"{money_text(used)} of {money_text(limit)}"
    return f"{used or 0:,.0f} of {limit:,.0f} {name}"


def _evaluation(report: Report) -> list[str]:
    (match,) = report.matches
    return [
        *seat_table(report, match),
        *_by_tag(report, match.by_tag),
        *_trivial_baselines(report),
        *_reasons(report, match.agents),
        *_passes(match.agents),
    ]


def _by_tag(report: Report, found: Sequence[TagReport]) -> list[str]:
    """A table for teams and one for roles, where the scenario names them."""
    tables = []
    for tag, group in groupby(found, lambda numbers: numbers.tag):
        listed = list(group)
        player = ["player"] if any(numbers.player for numbers in listed) else []
        rows = [
            [
                quoted(numbers.name),
                *([quoted(numbers.player)] if player else []),
                f"{numbers.success.n:,}",
                estimate_text(numbers.success, share=True),
                estimate_text(numbers.return_, share=False),
            ]
            for numbers in listed
        ]
        tables += [f"**By {tag}**", table([tag, *player, "seats", success_word(report), "mean return"], rows)]
    return tables


def _trivial_baselines(report: Report) -> list[str]:
    text = baselines_text(report)
    return [f"**Trivial baselines** on the same tasks: {quoted(text)}."] if text else []


def _reasons(report: Report, agents: Mapping[str, AgentReport]) -> list[str]:
    """How often each agent succeeded, and why it did not where reasons are known."""
    shares = {agent: _shares(report, numbers) for agent, numbers in agents.items() if numbers.reasons}
    return [
        f"**How it ended** for {names}: {', '.join(f'{quoted(what)} {share}' for what, share in shares.items())}."
        for names, shares in _alike(shares)
    ]


def _shares(report: Report, agent: AgentReport) -> dict[str, str]:
    """The shares of an agent's episodes: successes, each reason for a failure, and failures without a reason."""
    if agent.success is None:
        return {}
    n = agent.success.n
    counts = {
        success_word(report): round(agent.success.mean * n),
        **agent.reasons,
    }
    other = n - sum(counts.values())
    return {
        what: f"{100 * count / n:.1f}%" for what, count in [*counts.items(), *([("other", other)] if other else [])]
    }


def _passes(agents: Mapping[str, AgentReport]) -> list[str]:
    """pass^k and pass@k: one table for all agents whose numbers are the same."""
    return [
        f"**{names}**: pass^k (all of k tries at a task succeed), pass@k (at least one does)\n\n"
        + table(
            ["k", "pass^k", "pass@k"],
            [[str(at_k.k), estimate_text(at_k.hat, True), estimate_text(at_k.at, True)] for at_k in per_k],
        )
        for names, per_k in _alike({agent: numbers.pass_ for agent, numbers in agents.items() if numbers.pass_})
    ]


def _grid(report: Report) -> list[str]:
    grid = report.grid
    assert grid is not None  # of a grid
    matches = {match.name: match for match in report.matches}
    column = grid.column_agent
    at = {cell: matches[name] for name, cell in grid.cells.items()}
    rows = [
        [quoted(row or NOTHING), *(estimate_text(at[row, head].agents[column].success, True) for head in grid.columns)]
        for row in grid.rows
    ]
    corner = f"{', '.join(map(quoted, grid.row_agents))} ↓ {quoted(column)} →"
    title = f"**{'Won by' if report.measure == 'win rate' else 'Success of'} {quoted(column)}**"
    fields = table([corner, *map(quoted, grid.columns)], rows)
    return [title, fields, *_trivial_baselines(report), *_reasons_by_combination(report)]


def _reasons_by_combination(report: Report) -> list[str]:
    """A row for each field of the grid: how often its column's agent succeeded, and why it did not."""
    grid = report.grid
    assert grid is not None  # of a grid
    column = grid.column_agent
    agents = {match.name: match.agents[column] for match in report.matches}
    if not any(agent.reasons for agent in agents.values()):
        return []
    shares = {name: _shares(report, agent) for name, agent in agents.items() if agent.success}
    header = list(dict.fromkeys(what for values in shares.values() for what in values if what != "other"))
    header += ["other"] if any("other" in values for values in shares.values()) else []
    rows = [
        [*map(quoted, grid.cells[name]), *(values.get(what, NOTHING) for what in header)]
        for name, values in shares.items()
    ]
    names = [", ".join(map(quoted, grid.row_agents)), quoted(column), *map(quoted, header)]
    return [f"**How it ended for {quoted(column)}**", table(names, rows)]


def _by_task(report: Report) -> list[str]:
    """How many tasks were solved always, sometimes, never, and the first of those that were not."""
    texts, where = [], " over all combinations" if report.kind == "grid" else ""
    for names, tasks in _alike(_tried(report)):
        failed = {task: tries for task, tries in tasks.items() if tries.solved < tries.tries}
        never = [task for task, tries in failed.items() if not tries.solved]
        sometimes = sorted((tries.solved / tries.tries, task) for task, tries in failed.items() if tries.solved)
        always, single = len(tasks) - len(failed), all(tries.tries == 1 for tries in tasks.values())
        counts = f"{always} solved, {len(never)} not"
        if not single:
            counts = f"{always} always solved, {len(sometimes)} sometimes, {len(never)} never"
        texts.append(f"**By task** for {names}{where}: of {len(tasks)} tasks {counts}.")
        texts += _by_grade(report, tasks)
        shares = [f"{task} ({failed[task].solved} of {failed[task].tries})" for _, task in sometimes]
        lists = {"sometimes": shares, "not" if single else "never": _runs(never)}
        texts += ["\n".join(f"- {how}: {_first(listed)}" for how, listed in lists.items() if listed)] if failed else []
    return texts


def _by_grade(report: Report, tasks: Mapping[int, TriesReport]) -> list[str]:
    """A table of success by the tasks' grades, where they have any."""
    grades = {task.task: task.grade for match in report.matches for task in match.by_task if task.grade}
    rows = [
        [quoted(grade), str(count), estimate_text(success, share=True)]
        for grade, (count, success) in by_grade(tasks, grades, report.config.seed).items()
    ]
    return [table(["grade", "tasks", success_word(report)], rows)] if rows else []


def _unsolved(report: Report) -> list[str]:
    """Every task that was not always solved, and why not."""
    texts = []
    for names, tasks in _alike(_tried(report)):
        failed = [(task, tries) for task, tries in tasks.items() if tries.solved < tries.tries]
        rows = [[str(task), f"{tries.solved} of {tries.tries}", _why(tries)] for task, tries in failed]
        texts += [f"## Tasks not always solved by {names}", table(["task", "solved", "why not"], rows)] if rows else []
    return texts


def _tried(report: Report) -> dict[str, dict[int, TriesReport]]:
    """How each agent did at each task, by the task's number; in a grid its column's agent, in all matches."""
    tried: dict[str, dict[int, TriesReport]] = {}
    for match in report.matches:
        agents = [report.grid.column_agent] if report.grid else list(match.agents)
        for task in match.by_task:
            for agent in (agent for agent in agents if agent in task.agents):
                tasks, tries = tried.setdefault(agent, {}), task.agents[agent]
                tasks[task.task] = _added(tasks[task.task], tries) if task.task in tasks else tries
    return tried


def _added(first: TriesReport, second: TriesReport) -> TriesReport:
    return TriesReport(
        tries=first.tries + second.tries,
        solved=first.solved + second.solved,
        reasons=ranked(Counter(first.reasons) + Counter(second.reasons)),
    )


def _why(tries: TriesReport) -> str:
    """The reasons for which tries at a task failed, with how often each did."""
    other = tries.tries - tries.solved - sum(tries.reasons.values())
    counts = [*tries.reasons.items(), *([("other", other)] if other and tries.reasons else [])]
    return ", ".join(f"{quoted(why)} {count}" for why, count in counts) or NOTHING


def _runs(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers, those that follow one another together: 1, 4–6."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


def _first(listed: Sequence[str]) -> str:
    return ", ".join([*listed[:_LISTED], *(["..."] if len(listed) > _LISTED else [])])


def _combinations(report: Report) -> list[str]:
    """All numbers of a grid, a row for each combination."""
    agents = list(dict.fromkeys(agent for match in report.matches for agent in match.agents))
    header = [f"{quoted(agent)}: {what}" for what in (success_word(report), "return") for agent in agents]
    planned = report.config.n * report.config.repeats

    def numbers(match: MatchReport) -> list[str]:
        found = [match.agents.get(agent) for agent in agents]
        return [
            *(estimate_text(agent.success if agent else None, share=True) for agent in found),
            *(estimate_text(agent.return_ if agent else None, share=False) for agent in found),
        ]

    rows = [
        [
            f"[{quoted(match.folder)}]({quote(match.folder)}/report.md)",
            *numbers(match),
            number_text(match.turns),
            f"{match.tokens:,}",
            money_text(match.cost),
            str(planned - match.episodes),
        ]
        for match in report.matches
    ]
    return ["## All combinations", table(["combination", *header, "turns", "tokens", "cost", "pending"], rows)]


def _tournament(report: Report) -> list[str]:
    tournament = report.tournament
    assert tournament is not None  # of a tournament
    players, names = tournament.players, [player.name for player in tournament.players]
    task = report.measure == "success rate"
    standings = [
        [
            str(rank),
            quoted(player.name),
            _rating(player.rating),
            estimate_text(player.score, share=True),
            f"{player.won} / {player.drawn} / {player.lost}",
            *([estimate_text(player.success, share=True)] if task else []),
        ]
        for rank, player in enumerate(players, 1)
    ]
    matrix = [
        [quoted(name), *(estimate_text(tournament.matrix[name].get(other), share=True) for other in names)]
        for name in names
    ]
    columns = {player.name: {"player": quoted(player.who), **usage_cells(player, player.games)} for player in players}
    seats = [[quoted(seat), estimate_text(score, share=True)] for seat, score in tournament.seats.items()]
    return [
        table(["", "player", "rating", "score", "won / drawn / lost", *["success"] * task], standings),
        f"**Rating**: {SCALE}",
        *([quoted(tournament.left_out)] if tournament.left_out else []),
        "**Score of the row's player against the column's**",
        table(["", *map(quoted, names)], matrix),
        "**Usage**",
        transposed(columns) if len(columns) <= MANY else by_row(columns),
        "**Score of each seat, averaged over the players**",
        table(["seat", "score"], seats),
        *_by_tag(report, tournament.by_tag),
    ]


def _rating(rating: Rating | None) -> str:
    if rating is None:
        return NOTHING
    interval = "" if rating.low is None or rating.high is None else f" ({rating.low:.0f} to {rating.high:.0f})"
    return f"{rating.value:.0f}{interval}"


def _unsent(report: Report) -> list[str]:
    """Who was asked without fields that its server does not take. The seats of a player are counted together."""
    players = report.tournament.players if report.tournament else ()
    counts: dict[str, Counter[str]] = {player.who: Counter(player.unsent) for player in players}
    answers: Counter[str] = Counter({player.who: round((player.turns or 0) * player.games) for player in players})
    for match in report.matches:
        for agent, numbers in match.agents.items():
            who = match.players[agent].who if agent in match.players else agent
            counts.setdefault(who, Counter()).update(numbers.unsent)
            answers[who] += round((numbers.turns or 0) * match.episodes)
    return [
        f"The server of {quoted(who)} takes no {', '.join(map(quoted, fields))}: not sent in "
        f"{max(fields.values())} of its {answers[who]} requests."
        for who, fields in counts.items()
        if fields
    ]


def _failures(report: Report) -> list[str]:
    episodes = report.episodes
    if not episodes.failed_ever:
        return []
    repeated = episodes.failed_ever - episodes.failed
    text = f"{episodes.failed} episodes failed and are pending; they count nowhere above."
    text += f" {repeated} more attempts failed, whose episodes were played again." if repeated > 0 else ""
    header = ["where", "error", "seat", "episodes", "for instance"]
    rows = [
        [error.origin, quoted(error.type), quoted(error.agent or NOTHING), str(error.count), shortened(error.message)]
        for error in report.errors
    ]
    return ["## What failed", text, *([table(header, rows)] if rows else [])]


def _again(report: Report) -> list[str]:
    command = block(report.command) if report.command else "Made from Python; see `config.json`."
    versions = ", ".join(f"{quoted(name)} {quoted(version)}" for name, version in report.versions.items())
    seeds = f"Task i has the seed `marl_gem.seeding.derive_seed({report.config.seed}, 'eval', i)`."
    return ["## To play it again", command, f"With {versions}. {seeds}"]


def _how_to_read(report: Report) -> list[str]:
    verb = "wins" if report.measure == "win rate" else "succeeds"
    otherwise = "with the highest return, alone" if verb == "wins" else "with a return above 0"
    return [
        "## How to read it",
        f"An agent {verb} if the scenario says so (`success` in its last info), else {otherwise}. Why it did not is "
        "what the scenario says (`failure`), or the limit or the illegal action that ended the episode. Trivial "
        "baselines are simple strategies, whose success the scenario declares (`env.trivial_baselines`). In brackets: "
        "the 95% confidence interval of the mean, by a bootstrap over tasks (Wilson's where all tasks agree). Tokens "
        "and costs are sums; a cost is unknown if the price of any answer is, and answers from a cache cost nothing.",
    ]


def _alike(by_agent: Mapping[str, Shared]) -> list[tuple[str, Shared]]:
    """What is known of agents, those with the same together, with their names."""
    groups: list[tuple[list[str], Shared]] = []
    for agent, value in by_agent.items():
        same = next((names for names, others in groups if others == value), None)
        if same is None:
            groups.append(([agent], value))
        else:
            same.append(agent)
    return [(_names(names), value) for names, value in groups]


def _names(agents: Sequence[str]) -> str:
    """Agents in a sentence; of many the first."""
    left_out = [f"and {len(agents) - MANY} more"] if len(agents) > MANY + 1 else []
    return ", ".join([*map(quoted, agents[: MANY if left_out else None]), *left_out])
