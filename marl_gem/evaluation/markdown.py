"""A report for people: report.md, made from a `Report` alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar
from urllib.parse import quote

from marl_gem.evaluation.estimates import Estimate
from marl_gem.evaluation.ratings import SCALE
from marl_gem.evaluation.report import AgentReport, MatchReport, Rating, Report, TriesReport, UsageReport
from marl_gem.evaluation.tasks import by_grade, ranked
from marl_gem.printable import printable, printable_line

Shared = TypeVar("Shared")
_NOTHING = "–"
_HARMLESS = re.compile(r"(?!.*(?:://|www\.|\b_|_\b|:[\w+-]+:))[\w .,:;()'\"%+/=?!–…-]*")
"""Texts in which no renderer finds markup, a link or an emoji. `player_0` is fine, `__init__` would be bold."""
_LISTED = 12
"""So many tasks, or runs of tasks, are listed in a line."""


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The page. `pictures` are the names of files beside it."""
    shown = (f"![{name}]({name})" for name in pictures)
    details = [*(_combinations(report) if report.kind == "grid" else []), *_unsolved(report)]
    return "\n\n".join([summary(report), *shown, *details, *_again(report), *_how_to_read(report)]) + "\n"


def summary(report: Report) -> str:
    """The head of the page, which also fits into a terminal: what was played, how it went, and what failed."""
    body = {"eval": _evaluation, "cell": _evaluation, "grid": _grid, "tournament": _tournament}[report.kind]
    title, tasks = f"# {quoted(report.config.scenario)}", _by_task(report)
    return "\n\n".join([title, _played(report), *body(report), *_unsent(report), *tasks, *_failures(report)])


def baselines_text(report: Report) -> str:
    """The success of the scenario's trivial baselines on what was played; empty if it has none."""
    return ", ".join(f"{name} {100 * share:.1f}%" for name, share in report.trivial_baselines.items())


def estimate_text(estimated: Estimate | None, share: bool) -> str:
    """A mean and its interval: a share in percent, anything else to three digits."""
    if estimated is None:
        return _NOTHING
    mean, low, high = estimated.mean, estimated.low, estimated.high
    if share:
        return f"{100 * mean:.1f}%" + ("" if low is None or high is None else f" ({100 * low:.1f}–{100 * high:.1f})")
    return f"{mean:.3g}" + ("" if low is None or high is None else f" ({low:.3g} to {high:.3g})")


def money_text(cost: float | None) -> str:
    """US dollars, or that the price is unknown."""
    return "unknown" if cost is None else _NOTHING if cost == 0 else f"${cost:,.2f}" if cost >= 1 else f"${cost:.2g}"


def _played(report: Report) -> str:
    config, episodes = report.config, report.episodes
    each = f", {config.repeats} times each" if config.repeats > 1 else ""
    meetings = {"grid": " in every combination", "tournament": " in every seating"}.get(report.kind, "")
    chosen = {"listed": "", "by grade": " of all grades in proportion", "shuffled": " that were drawn"}[config.order]
    sentences = [f"{config.n} tasks{chosen}{each}{meetings}: **{episodes.counted} episodes** count."]
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
    return " ".join(sentences)


def _evaluation(report: Report) -> list[str]:
    (match,) = report.matches
    columns = {
        agent: {
            "player": quoted(match.players[agent].who) if agent in match.players else _NOTHING,
            report.measure: estimate_text(numbers.success, share=True),
            **({"won / drawn / lost": _results(numbers)} if report.measure == "win rate" else {}),
            "mean return": estimate_text(numbers.return_, share=False),
            **_usage(numbers, match.episodes),
        }
        for agent, numbers in match.agents.items()
    }
    return [_transposed(columns), *_trivial_baselines(report), *_reasons(report, match.agents), *_passes(match.agents)]


def _results(agent: AgentReport) -> str:
    results = agent.results
    return f"{results.won} / {results.drawn} / {results.lost}" if results else _NOTHING


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
        "won" if report.measure == "win rate" else "success": round(agent.success.mean * n),
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
        + _table(
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
        [quoted(row or _NOTHING), *(estimate_text(at[row, head].agents[column].success, True) for head in grid.columns)]
        for row in grid.rows
    ]
    corner = f"{', '.join(map(quoted, grid.row_agents))} ↓ {quoted(column)} →"
    title = f"**{report.measure.capitalize()} of {quoted(column)}**"
    table = _table([corner, *map(quoted, grid.columns)], rows)
    return [title, table, *_trivial_baselines(report), *_reasons_by_combination(report)]


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
        [*map(quoted, grid.cells[name]), *(values.get(what, _NOTHING) for what in header)]
        for name, values in shares.items()
    ]
    names = [", ".join(map(quoted, grid.row_agents)), quoted(column), *map(quoted, header)]
    return [f"**How it ended for {quoted(column)}**", _table(names, rows)]


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
    return [_table(["grade", "tasks", report.measure], rows)] if rows else []


def _unsolved(report: Report) -> list[str]:
    """Every task that was not always solved, and why not."""
    texts = []
    for names, tasks in _alike(_tried(report)):
        failed = [(task, tries) for task, tries in tasks.items() if tries.solved < tries.tries]
        rows = [[str(task), f"{tries.solved} of {tries.tries}", _why(tries)] for task, tries in failed]
        texts += [f"## Tasks not always solved by {names}", _table(["task", "solved", "why not"], rows)] if rows else []
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
    return ", ".join(f"{quoted(why)} {count}" for why, count in counts) or _NOTHING


def _runs(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers, those that follow one another together: 1, 4–6."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


def _first(listed: Sequence[str]) -> str:
    return ", ".join([*listed[:_LISTED], *(["..."] if len(listed) > _LISTED else [])])


def _combinations(report: Report) -> list[str]:
    """All numbers of a grid, a row for each combination."""
    agents = list(dict.fromkeys(agent for match in report.matches for agent in match.agents))
    header = [f"{quoted(agent)}: {what}" for what in (report.measure, "return") for agent in agents]
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
            _number(match.turns),
            f"{match.tokens:,}",
            money_text(match.cost),
            str(planned - match.episodes),
        ]
        for match in report.matches
    ]
    return ["## All combinations", _table(["combination", *header, "turns", "tokens", "cost", "pending"], rows)]


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
    columns = {player.name: {"player": quoted(player.who), **_usage(player, player.games)} for player in players}
    seats = [[quoted(seat), estimate_text(score, share=True)] for seat, score in tournament.seats.items()]
    return [
        _table(["", "player", "rating", "score", "won / drawn / lost", *["success"] * task], standings),
        f"**Rating**: {SCALE}",
        *([quoted(tournament.left_out)] if tournament.left_out else []),
        "**Score of the row's player against the column's**",
        _table(["", *map(quoted, names)], matrix),
        "**Usage**",
        _transposed(columns),
        "**Score of each seat, averaged over the players**",
        _table(["seat", "score"], seats),
    ]


def _rating(rating: Rating | None) -> str:
    if rating is None:
        return _NOTHING
    interval = "" if rating.low is None or rating.high is None else f" ({rating.low:.0f} to {rating.high:.0f})"
    return f"{rating.value:.0f}{interval}"


def _usage(usage: UsageReport, episodes: int) -> dict[str, str]:
    tokens, seconds = usage.tokens, usage.seconds
    return {
        "episodes with an illegal action": f"{100 * usage.illegal.episodes / episodes:.1f}%" if episodes else _NOTHING,
        "turns per episode": _number(usage.turns),
        "tokens read / written": (
            f"{tokens.prompt:,} / {tokens.completion:,}" if tokens.prompt or tokens.completion else _NOTHING
        ),
        "cost": money_text(usage.cost),
        "seconds per answer, p50 / p95": f"{seconds.p50:.2f} / {seconds.p95:.2f}" if seconds else _NOTHING,
        "answers from the cache": f"{usage.cached:,}" if usage.cached else _NOTHING,
        "prompts that were cut to fit": f"{usage.cut_prompts:,}" if usage.cut_prompts else _NOTHING,
        "repeated requests": f"{usage.retries:,}" if usage.retries else _NOTHING,
    }


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
        [error.origin, quoted(error.type), quoted(error.agent or _NOTHING), str(error.count), _short(error.message)]
        for error in report.errors
    ]
    return ["## What failed", text, *([_table(header, rows)] if rows else [])]


def _again(report: Report) -> list[str]:
    command = _block(report.command) if report.command else "Made from Python; see `config.json`."
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
    return [(", ".join(map(quoted, names)), value) for names, value in groups]


def _transposed(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A table with a column for each agent or player; rows in which nobody has anything are left out."""
    names = next(iter(columns.values()), {})
    rows = [[name, *(column[name] for column in columns.values())] for name in names]
    return _table(["", *map(quoted, columns)], [row for row in rows if set(row[1:]) != {_NOTHING}])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def quoted(text: str) -> str:
    """A text of others for a line of Markdown: as it is where nothing in it can be markup, otherwise as code.

    In code no renderer sees links, pictures, HTML, formulas or emoji. A "|" would still end a cell of a table, so it
    stands between two pieces of code.
    """
    flat = " ".join(printable_line(text).split())
    return flat if _HARMLESS.fullmatch(flat) else "&#124;".join(map(_code, flat.split("|")))


def _code(text: str) -> str:
    """One line as code: between more backticks than it has in a row."""
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}"


def _block(text: str) -> str:
    """Lines as code."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{printable(text)}\n{fence}"


def _short(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return quoted(flat if len(flat) <= length else flat[: length - 1] + "…")


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f}"
