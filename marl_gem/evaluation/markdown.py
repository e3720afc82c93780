"""A report for people: report.md, from nothing but the content of report.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]
_NOTHING = "–"


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """The whole page. `pictures` are the names of files beside it."""
    shown = (f"![{name}]({name})" for name in pictures)
    details = _combinations(report) if report["kind"] == "grid" else []
    return "\n\n".join([summary(report), *shown, *details, *_again(report), *_how_to_read(report)]) + "\n"


def summary(report: Report) -> str:
    """The head of the page, which also fits into a terminal: what was played, how it went, and what failed."""
    body = {"eval": _evaluation, "cell": _evaluation, "grid": _grid, "tournament": _tournament}[report["kind"]]
    return "\n\n".join([f"# {report['config']['scenario']}", _played(report), *body(report), *_failures(report)])


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
    return [_transposed(columns), *_passes(agents)]


def _passes(agents: Mapping[str, Report]) -> list[str]:
    """pass^k and pass@k: one table for all agents whose numbers are the same."""
    groups: list[tuple[list[str], list[Report]]] = []
    for agent, told in agents.items():
        same = next((names for names, per_k in groups if per_k == told["pass"]), None)
        if same is not None:
            same.append(agent)
        elif told["pass"]:
            groups.append(([agent], told["pass"]))
    return [
        f"**{', '.join(map(_cell, names))}**: pass^k (all of k tries at a task succeed), pass@k (at least one does)\n\n"
        + _table(
            ["k", "pass^k", "pass@k"],
            [[str(one["k"]), estimate_text(one["hat"], True), estimate_text(one["at"], True)] for one in per_k],
        )
        for names, per_k in groups
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
    return [f"**{report['measure'].capitalize()} of {_cell(column)}**", _table([corner, *grid["columns"]], rows)]


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
    standings = [
        [
            str(place),
            player["name"],
            f"{player['rating']['mu']:.1f} ± {player['rating']['sigma']:.1f}" if player["rating"] else _NOTHING,
            estimate_text(player["score"], share=True),
            f"{player['won']} / {player['drawn']} / {player['lost']}",
        ]
        for place, player in enumerate(players, 1)
    ]
    matrix = [[own, *(estimate_text(told["matrix"][own].get(other), share=True) for other in names)] for own in names]
    columns = {player["name"]: {"player": player["who"], **_usage(player, player["games"])} for player in players}
    seats = [[seat, estimate_text(score, share=True)] for seat, score in told["seats"].items()]
    return [
        _table(["", "player", "rating", "score", "won / drawn / lost"], standings),
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
        f"An agent {verb} if the scenario says so (`success` in its last info), else {otherwise}. In brackets: the "
        "interval that holds the true mean with 95% confidence, by a bootstrap over tasks (Wilson's where all tasks "
        "agree). Tokens and costs are sums; a cost is unknown if the price of any answer is, and answers from a cache "
        "cost nothing.",
    ]


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
