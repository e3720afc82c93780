"""A report for people: report.md, from nothing but the content of report.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from marl_gem.evaluation.tasks import ranked

Report = Mapping[str, Any]
Told = TypeVar("Told")
_NOTHING = "–"
_LISTED = 12
"""So many tasks, or runs of tasks, are listed in a line."""


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole page. `pictures` are the names of files beside it."""
    shown = (f"![{name}]({name})" for name in pictures)
    details = [*(_combinations(report) if report["kind"] == "grid" else []), *_unsolved(report)]
    return "\n\n".join([summary(report), *shown, *details, *_again(report), *_how_to_read(report)]) + "\n"


def summary(report: Report) -> str:
    """The head of the page, which also fits into a terminal: what was played, how it went, and what failed."""
    body = {"eval": _evaluation, "cell": _evaluation, "grid": _grid, "tournament": _tournament}[report["kind"]]
    title, tasks = f"# {report['config']['scenario']}", _by_task(report)
    return "\n\n".join([title, _played(report), *body(report), *tasks, *_failures(report)])


def baselines_text(report: Report) -> str:
    """What the scenario's trivial baselines come to on what was played; empty if it has none."""
    return ", ".join(f"{name} {100 * share:.1f}%" for name, share in report.get("trivial_baselines", {}).items())


def estimate_text(estimated: Report | None, share: bool) -> str:
    """A mean and its interval: a share in percent, anything else to three digits."""
    if estimated is None:
        return _NOTHING
    mean, low, high = estimated["mean"], estimated["low"], estimated["high"]
    if share:
        return f"{100 * mean:.1f}%" + ("" if low is None else f" ({100 * low:.1f}–{100 * high:.1f})")
    return f"{mean:.3g}" + ("" if low is None else f" ({low:.3g} to {high:.3g})")


def money_text(cost: float | None) -> str:
    """US dollars; an unknown price is told as such."""
    return "unknown" if cost is None else _NOTHING if cost == 0 else f"${cost:,.2f}" if cost >= 1 else f"${cost:.2g}"


def _played(report: Report) -> str:
    config, episodes = report["config"], report["episodes"]
    each = f", {config['repeats']} times each" if config["repeats"] > 1 else ""
    meetings = {"grid": "in every combination", "tournament": "in every seating"}.get(report["kind"], "")
    told = [f"{config['n']} tasks{each}{' ' * bool(meetings)}{meetings}: **{episodes['counted']} episodes** count."]
    if episodes["owed"]:
        failed = f", {episodes['failed']} of them because they failed (see below)" if episodes["failed"] else ""
        told.append(f"**{episodes['owed']} are owed**{failed}; `--resume` plays them.")
    if report["stopped"]:
        told.append(f"The run was stopped early: {_cell(report['stopped'])}.")
    cut = ", ".join(f"{count} by {limit}" for limit, count in episodes["cut"].items())
    if cut:
        told.append(f"Limits cut episodes short, and these count as they are: {cut}.")
    if report["tokens"] or report["cost"] != 0:
        told.append(f"They took {report['tokens']:,} tokens; the cost is {money_text(report['cost'])}.")
    return " ".join(told)


def _evaluation(report: Report) -> list[str]:
    (match,) = report["matches"]
    agents = match["agents"]
    columns = {
        agent: {
            "player": match["players"].get(agent, {}).get("who", _NOTHING),
            report["measure"]: estimate_text(told["success"], share=True),
            "mean return": estimate_text(told["return"], share=False),
            **_usage(told, match["episodes"]),
        }
        for agent, told in agents.items()
    }
    return [_transposed(columns), *_trivial_baselines(report), *_reasons(report, agents), *_passes(agents)]


def _trivial_baselines(report: Report) -> list[str]:
    told = baselines_text(report)
    return [f"**Trivial baselines** on the same tasks: {_cell(told)}."] if told else []


def _reasons(report: Report, agents: Mapping[str, Report]) -> list[str]:
    """How often each agent succeeded, and what kept it from it where that is told."""
    shares = {agent: _shares(report, told) for agent, told in agents.items() if told["reasons"]}
    return [
        f"**How it ended** for {names}: {', '.join(f'{_cell(what)} {share}' for what, share in told.items())}."
        for names, told in _alike(shares)
    ]


def _shares(report: Report, told: Report) -> dict[str, str]:
    """The shares of an agent's episodes that went well, that failed for each reason, and that failed for none told."""
    n = told["success"]["n"]
    good = round(told["success"]["mean"] * n)
    counts = {"won" if report["measure"] == "win rate" else "success": good, **told["reasons"]}
    other = n - sum(counts.values())
    return {
        what: f"{100 * count / n:.1f}%" for what, count in [*counts.items(), *([("other", other)] if other else [])]
    }


def _passes(agents: Mapping[str, Report]) -> list[str]:
    """pass^k and pass@k: one table for all agents whose numbers are the same."""
    return [
        f"**{names}**: pass^k (all of k tries at a task succeed), pass@k (at least one does)\n\n"
        + _table(
            ["k", "pass^k", "pass@k"],
            [[str(one["k"]), estimate_text(one["hat"], True), estimate_text(one["at"], True)] for one in per_k],
        )
        for names, per_k in _alike({agent: told["pass"] for agent, told in agents.items() if told["pass"]})
    ]


def _grid(report: Report) -> list[str]:
    grid, matches = report["grid"], {match["name"]: match for match in report["matches"]}
    column = grid["column_agent"]
    at = {tuple(place): matches[name] for name, place in grid["places"].items()}
    rows = [
        [
            row or _NOTHING,
            *(estimate_text(at[row, head]["agents"][column]["success"], True) for head in grid["columns"]),
        ]
        for row in grid["rows"]
    ]
    corner = f"{', '.join(grid['row_agents'])} ↓ {column} →"
    title = f"**{report['measure'].capitalize()} of {_cell(column)}**"
    return [
        title,
        _table([corner, *grid["columns"]], rows),
        *_trivial_baselines(report),
        *_reasons_by_combination(report),
    ]


def _reasons_by_combination(report: Report) -> list[str]:
    """A row for each field of the grid: how often its column's agent succeeded, and what kept it from it."""
    grid, column = report["grid"], report["grid"]["column_agent"]
    told = {match["name"]: match["agents"][column] for match in report["matches"]}
    if not any(one["reasons"] for one in told.values()):
        return []
    shares = {name: _shares(report, one) for name, one in told.items() if one["success"]}
    header = list(dict.fromkeys(what for own in shares.values() for what in own if what != "other"))
    header += ["other"] if any("other" in own for own in shares.values()) else []
    rows = [[*grid["places"][name], *(own.get(what, _NOTHING) for what in header)] for name, own in shares.items()]
    return [f"**How it ended for {_cell(column)}**", _table([", ".join(grid["row_agents"]), column, *header], rows)]


def _by_task(report: Report) -> list[str]:
    """How many tasks were solved always, sometimes, never, and the first of those that were not."""
    told, where = [], " over all combinations" if report["kind"] == "grid" else ""
    for names, tasks in _alike(_tried(report)):
        failed = {task: own for task, own in tasks.items() if own["solved"] < own["tries"]}
        never = [task for task, own in failed.items() if not own["solved"]]
        sometimes = sorted((own["solved"] / own["tries"], task) for task, own in failed.items() if own["solved"])
        always, once = len(tasks) - len(failed), all(own["tries"] == 1 for own in tasks.values())
        counts = f"{always} solved, {len(never)} not"
        if not once:
            counts = f"{always} always solved, {len(sometimes)} sometimes, {len(never)} never"
        told.append(f"**By task** for {names}{where}: of {len(tasks)} tasks {counts}.")
        tallies = [f"{task} ({failed[task]['solved']} of {failed[task]['tries']})" for _, task in sometimes]
        lists = {"sometimes": tallies, "not" if once else "never": _runs(never)}
        told += ["\n".join(f"- {how}: {_first(listed)}" for how, listed in lists.items() if listed)] if failed else []
    return told


def _unsolved(report: Report) -> list[str]:
    """Every task that was not always solved, and why not."""
    told = []
    for names, tasks in _alike(_tried(report)):
        failed = [(task, own) for task, own in tasks.items() if own["solved"] < own["tries"]]
        rows = [[str(task), f"{own['solved']} of {own['tries']}", _why(own)] for task, own in failed]
        told += [f"## Tasks not always solved by {names}", _table(["task", "solved", "why not"], rows)] if rows else []
    return told


def _tried(report: Report) -> dict[str, dict[int, Report]]:
    """How each agent fared at each task, by the task's number; in a grid its column's agent, in all matches."""
    tried: dict[str, dict[int, Report]] = {}
    for match in report.get("matches", []):
        agents = [report["grid"]["column_agent"]] if report["kind"] == "grid" else match["agents"]
        for one in match["by_task"]:
            for agent in (agent for agent in agents if agent in one["agents"]):
                tasks, own = tried.setdefault(agent, {}), one["agents"][agent]
                tasks[one["task"]] = _added(tasks[one["task"]], own) if one["task"] in tasks else own
    return tried


def _added(one: Report, other: Report) -> Report:
    return {
        "tries": one["tries"] + other["tries"],
        "solved": one["solved"] + other["solved"],
        "reasons": ranked(Counter(one["reasons"]) + Counter(other["reasons"])),
    }


def _why(tried: Report) -> str:
    """The reasons for which tries at a task failed, with how often each did."""
    other = tried["tries"] - tried["solved"] - sum(tried["reasons"].values())
    counts = [*tried["reasons"].items(), *([("other", other)] if other and tried["reasons"] else [])]
    return ", ".join(f"{why} {count}" for why, count in counts) or _NOTHING


def _runs(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers, those that follow one another together: 1, 4–6."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


def _first(listed: Sequence[str]) -> str:
    return ", ".join([*listed[:_LISTED], *(["..."] if len(listed) > _LISTED else [])])


def _combinations(report: Report) -> list[str]:
    """All numbers of a grid, a row for each combination."""
    agents = list(dict.fromkeys(agent for match in report["matches"] for agent in match["agents"]))
    header = [*(f"{agent}: {report['measure']}" for agent in agents), *(f"{agent}: return" for agent in agents)]
    planned = report["config"]["n"] * report["config"]["repeats"]
    rows = [
        [
            f"[{match['folder']}]({match['folder']}/report.md)",
            *(estimate_text(match["agents"].get(agent, {}).get("success"), True) for agent in agents),
            *(estimate_text(match["agents"].get(agent, {}).get("return"), False) for agent in agents),
            _number(match["turns"]),
            f"{match['tokens']:,}",
            money_text(match["cost"]),
            str(planned - match["episodes"]),
        ]
        for match in report["matches"]
    ]
    return ["## All combinations", _table(["combination", *header, "turns", "tokens", "cost", "owed"], rows)]


def _tournament(report: Report) -> list[str]:
    told = report["tournament"]
    players, names = told["players"], [player["name"] for player in told["players"]]
    task = report["measure"] == "success rate"
    standings = [
        [
            str(place),
            player["name"],
            f"{player['rating']['mu']:.1f} ± {player['rating']['sigma']:.1f}" if player["rating"] else _NOTHING,
            estimate_text(player["score"], share=True),
            f"{player['won']} / {player['drawn']} / {player['lost']}",
            *([estimate_text(player["success"], share=True)] if task else []),
        ]
        for place, player in enumerate(players, 1)
    ]
    matrix = [[own, *(estimate_text(told["matrix"][own].get(other), share=True) for other in names)] for own in names]
    columns = {player["name"]: {"player": player["who"], **_usage(player, player["games"])} for player in players}
    seats = [[seat, estimate_text(score, share=True)] for seat, score in told["seats"].items()]
    return [
        _table(["", "player", "rating", "score", "won / drawn / lost", *["success"] * task], standings),
        *([_cell(told["left_out"])] if told["left_out"] else []),
        "**Score of the row's player against the column's**",
        _table(["", *names], matrix),
        "**What they did and took**",
        _transposed(columns),
        "**Score of each seat, whoever sits there**",
        _table(["seat", "score"], seats),
    ]


def _usage(told: Report, episodes: int) -> dict[str, str]:
    illegal, tokens, seconds = told["illegal"], told["tokens"], told["seconds"]
    return {
        "episodes with an illegal action": f"{100 * illegal['episodes'] / episodes:.1f}%" if episodes else _NOTHING,
        "turns an episode": _number(told["turns"]),
        "tokens read / written": (
            f"{tokens['prompt']:,} / {tokens['completion']:,}" if tokens["prompt"] or tokens["completion"] else _NOTHING
        ),
        "cost": money_text(told["cost"]),
        "seconds an answer, p50 / p95": f"{seconds['p50']:.2f} / {seconds['p95']:.2f}" if seconds else _NOTHING,
        "answers from the cache": f"{told['cached']:,}" if told["cached"] else _NOTHING,
        "prompts cut for want of room": f"{told['cut_prompts']:,}" if told["cut_prompts"] else _NOTHING,
        "requests asked again": f"{told['retries']:,}" if told["retries"] else _NOTHING,
    }


def _failures(report: Report) -> list[str]:
    episodes = report["episodes"]
    if not episodes["failed_ever"]:
        return []
    again = episodes["failed_ever"] - episodes["failed"]
    told = f"{episodes['failed']} episodes failed and are owed; they count nowhere above."
    told += f" {again} more failures were made good by playing again." if again > 0 else ""
    header = ["where", "error", "seat", "episodes", "for instance"]
    rows = [
        [error["origin"], error["type"], error["agent"] or _NOTHING, str(error["count"]), _short(error["message"])]
        for error in report["errors"]
    ]
    return ["## What failed", told, *([_table(header, rows)] if rows else [])]


def _again(report: Report) -> list[str]:
    command = f"```\n{report['command']}\n```" if report["command"] else "Made from Python; see `config.json`."
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    seeds = f"Task i has the seed `marl_gem.seeding.derive_seed({report['config']['seed']}, 'eval', i)`."
    return ["## To play it again", command, f"With {versions}. {seeds}"]


def _how_to_read(report: Report) -> list[str]:
    verb = "wins" if report["measure"] == "win rate" else "succeeds"
    otherwise = "with the highest return, alone" if verb == "wins" else "with a return above 0"
    return [
        "## How to read it",
        f"An agent {verb} if the scenario says so (`success` in its last info), else {otherwise}. Why it did not is "
        "the scenario's word, too (`failure`), or the limit or the illegal action that ended the episode. Floors are "
        "what playing without wit comes to, as the scenario tells (`env.trivial_baselines`). In brackets: the "
        "interval that holds the true mean with 95% confidence, by a bootstrap over tasks (Wilson's where all tasks "
        "agree). Tokens and costs are sums; a cost is unknown if the price of any answer is, and answers from a cache "
        "cost nothing.",
    ]


def _alike(told: Mapping[str, Told]) -> list[tuple[str, Told]]:
    """What is told of agents, of all of whom the same is told at once, with their names."""
    groups: list[tuple[list[str], Told]] = []
    for agent, own in told.items():
        same = next((names for names, others in groups if others == own), None)
        if same is None:
            groups.append(([agent], own))
        else:
            same.append(agent)
    return [(", ".join(map(_cell, names)), own) for names, own in groups]


def _transposed(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A table with a column for each agent or player; rows in which nobody has anything are left out."""
    names = next(iter(columns.values()), {})
    rows = [[name, *(column[name] for column in columns.values())] for name in names]
    return _table(["", *columns], [row for row in rows if set(row[1:]) != {_NOTHING}])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    """Text on one line, in which nothing but our own links is a sign of Markdown."""
    flat = " ".join(text.split())
    return flat.replace("|", "\\|").replace("<", "&lt;")


def _short(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f}"
