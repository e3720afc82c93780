"""What a run comes to, in numbers: the content of report.json.

    format, kind, config     what was asked, see `Plan.config`
    versions, command        how to do it again
    stopped                  why the run ended early, if it did
    episodes                 planned, counted, owed, failed; how they ended; which limits cut how many
    errors                   what the failed ones failed under, by origin, with an example each
    trivial_baselines        what trivial policies come to on the tasks that count, where the scenario tells
    matches                  for each seating: success and return of every agent with intervals, pass^k and pass@k,
                             turns, tokens, cost, latency, illegal actions; `reasons` counts why an agent did not
                             succeed; `by_task` tells tries, successes and reasons of each of a scenario's tasks
    grid, tournament         which matches stand where in the table; standings, ratings, the matrix of win rates

Apart from what is called `seconds` it follows from the episodes alone, in whatever order they were played, and from
what the scenario declares. An estimate is {"mean", "low", "high", "n"}; `low` and `high` bound the 95% interval. Costs
are in US dollars, null if any price is unknown.
"""

from __future__ import annotations

import platform
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

import marl_gem
from marl_gem.evaluation.estimates import estimate, passes
from marl_gem.evaluation.plan import FORMAT, Match, Plan
from marl_gem.evaluation.summary import EpisodeSummary, total_cost, usage_of
from marl_gem.evaluation.tasks import by_task, reasons, trivial_baselines
from marl_gem.evaluation.tournament import standings
from marl_gem.seeding import derive_seed

Report = dict[str, Any]


def build(
    plan: Plan,
    outcomes: Mapping[str, EpisodeSummary],
    failures: Mapping[str, EpisodeSummary],
    attempts: int = 0,
    stopped: str = "",
) -> Report:
    """The report on what has been played so far.

    Args:
        plan: what was to be played.
        outcomes, failures: of the episodes that count, and of those that failed and are owed, by id.
        attempts: how many episodes ever failed, also those that went well when played again.
        stopped: why the run ended early.
    """
    counted = [outcomes[id] for id in plan.slots if id in outcomes]
    failed = [failures[id] for id in plan.slots if id in failures]
    report: Report = {
        "format": FORMAT,
        "kind": plan.kind,
        "config": plan.config(),
        "versions": {"marl_gem": marl_gem.__version__, "python": platform.python_version()},
        "command": command(plan),
        "measure": "win rate" if plan.ground.competitive else "success rate",
        "stopped": stopped,
        "episodes": {
            "planned": len(plan.slots),
            "counted": len(counted),
            "owed": len(plan.slots) - len(counted),
            "failed": len(failed),
            "failed_ever": attempts,
            "endings": dict(Counter(one.ending for one in counted)),
            "cut": dict(Counter(one.limit for one in counted if one.limit)),
        },
        "errors": _errors(failed),
        "tokens": sum(one.tokens for one in counted),
        "cost": total_cost(one.cost for one in counted),
    }
    if plan.kind == "tournament":
        report["tournament"] = standings(plan, outcomes)
    else:
        counted_tasks = [slot.index for slot in plan.slots.values() if slot.id in outcomes]
        report["trivial_baselines"] = trivial_baselines(plan.ground.trivial_baselines, counted_tasks)
        report["matches"] = [_match(plan, place, outcomes) for place in range(len(plan.matches))]
    if plan.kind == "grid":
        report["grid"] = _grid(plan)
    return report


def command(plan: Plan) -> str | None:
    """The command line that plays this plan, if there is one."""
    if not (plan.ground.named and all(player.typed for player in plan.players)):
        return None
    config, numbers = plan.config(), plan.numbers
    words = ["marl-gem", "tournament" if plan.kind == "tournament" else "eval", config["scenario"]]
    for agent, who in config.get("seats", {}).items():
        for one in [who] if isinstance(who, str) else who:
            words += ["--seat", f"{agent}={one}"]
    for name, who in config.get("players", {}).items():
        words += ["--player", f"{name}={who}"]
    words += ["--grid"] if plan.kind == "grid" else []
    words += ["-n", str(plan.n), "--seed", str(numbers.seed)]
    words += ["--repeats", str(numbers.repeats)] if numbers.repeats > 1 else []
    for name, limit in config["limits"].items():
        words += [f"--max-{name}", f"{limit:g}"]
    for name, value in config["options"].items():
        words += ["-o", f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"]
    return shlex.join(words)


def _match(plan: Plan, place: int, outcomes: Mapping[str, EpisodeSummary]) -> Report:
    """The numbers of one seating."""
    match = plan.matches[place]
    tasks: dict[int, list[EpisodeSummary]] = {}
    for slot in plan.slots.values():
        if slot.match == place and slot.id in outcomes:
            tasks.setdefault(slot.index, []).append(outcomes[slot.id])
    played = [one for own in tasks.values() for one in own]
    agents = dict.fromkeys([*plan.ground.agents, *(agent for one in played for agent in one.outcomes)])
    return {
        "name": match.name,
        "folder": match.folder,
        "players": {
            agent: {"who": player.who, "label": match.labels[agent], "model": player.policy.name}
            for agent, player in match.players.items()
        },
        "episodes": len(played),
        "tasks": len(tasks),
        "turns": _mean([one.turns for one in played]),
        "tokens": sum(one.tokens for one in played),
        "cost": total_cost(one.cost for one in played),
        "seconds": _mean([one.seconds for one in played]),
        "agents": {agent: _agent(plan, agent, list(tasks.values())) for agent in agents},
        "by_task": [] if plan.ground.tasks is None else by_task(tasks, agents),
    }


def _agent(plan: Plan, agent: str, tasks: Sequence[Sequence[EpisodeSummary]]) -> Report:
    """The numbers of one agent in a seating; `tasks` holds the repeats of each task."""

    def seed(what: str) -> int:  # not of the agent or the seating, so that equal results have equal intervals
        return derive_seed(plan.numbers.seed, "bootstrap", what)

    judged = [[one.outcomes[agent] for one in repeats if agent in one.outcomes] for repeats in tasks]
    successes = [[outcome.success for outcome in repeats] for repeats in judged]
    returns = [[outcome.return_ for outcome in repeats] for repeats in judged]
    per_k = passes([own for own in successes if own], seed("success")) if plan.numbers.repeats > 1 else []
    return {
        "success": _plain(estimate(successes, seed("success"), proportion=True)),
        "return": _plain(estimate(returns, seed("return"))),
        "pass": [msgspec.to_builtins(one) for one in per_k],
        "reasons": reasons([one for repeats in tasks for one in repeats], agent),
        **usage_of(agent, [one for repeats in tasks for one in repeats]),
    }


def _grid(plan: Plan) -> Report:
    """How the matches of a grid form a table: the last named of the seats that vary gives the columns, and its
    success is what the table shows; the others give the rows."""
    candidates = plan.asked["seats"]
    *rows, column = [agent for agent, several in candidates.items() if len(several) > 1] or list(candidates)[:1]

    def row_of(match: Match) -> str:
        return ", ".join(match.labels[agent] for agent in rows)

    return {
        "column_agent": column,
        "row_agents": rows,
        "columns": list(dict.fromkeys(match.labels[column] for match in plan.matches)),
        "rows": list(dict.fromkeys(map(row_of, plan.matches))),
        "places": {match.name: [row_of(match), match.labels[column]] for match in plan.matches},
    }


def _errors(failed: Sequence[EpisodeSummary]) -> list[Report]:
    """What failed, the same things together, most frequent first."""
    kinds: dict[tuple[str, str, str | None], list[EpisodeSummary]] = {}
    for one in failed:
        if one.error:
            kinds.setdefault((one.error.origin, one.error.type, one.error.agent), []).append(one)
    return [
        {
            "origin": origin,
            "type": type_,
            "agent": agent,
            "count": len(own),
            "episode": own[0].id,
            "message": own[0].error.message if own[0].error else "",
        }
        for (origin, type_, agent), own in sorted(kinds.items(), key=lambda item: (-len(item[1]), str(item[0])))
    ]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _plain(estimated: msgspec.Struct | None) -> Any:
    return None if estimated is None else msgspec.to_builtins(estimated)
