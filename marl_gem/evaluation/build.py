"""The report of a run, from its plan and what its episodes came to."""

from __future__ import annotations

import platform
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

import marl_gem
from marl_gem.evaluation.by_tag import by_tag
from marl_gem.evaluation.estimates import estimate, passes
from marl_gem.evaluation.plan import Match, Plan
from marl_gem.evaluation.report import (
    AgentReport,
    EpisodeCounts,
    ErrorReport,
    GridReport,
    MatchReport,
    Report,
    Results,
    SeatReport,
    SpentReport,
)
from marl_gem.evaluation.summary import EpisodeSummary, total_cost, usage_of
from marl_gem.evaluation.task_choice import write_tasks
from marl_gem.evaluation.tasks import baseline_shares, by_task, reasons
from marl_gem.evaluation.tournament import standings
from marl_gem.runs.outcomes import Outcome
from marl_gem.seeding import derive_seed


def build_report(
    plan: Plan,
    finished: Mapping[str, EpisodeSummary],
    failures: Mapping[str, EpisodeSummary],
    attempts: int = 0,
    stopped: str = "",
    budget: Mapping[str, SpentReport] = {},
) -> Report:
    """The report on what has been played so far.

    Args:
        plan: what was to be played.
        finished: summaries of the episodes that count, by id.
        failures: summaries of those that failed and are pending, by id.
        attempts: how many episodes ever failed, also those that were finished later.
        stopped: why the run ended early.
        budget: the limits of the run, and what is used of them.
    """
    counted = {id: finished[id] for id in plan.slots if id in finished}
    failed = [failures[id] for id in plan.slots if id in failures]
    tournament = standings(plan, finished) if plan.kind == "tournament" else None
    counted_tasks = [plan.slots[id].index for id in counted]
    return Report(
        kind=plan.kind,
        config=plan.config(),
        versions={"marl_gem": marl_gem.__version__, "python": platform.python_version()},
        command=command(plan),
        measure="win rate" if plan.info.zero_sum else "success rate",
        stopped=stopped,
        episodes=EpisodeCounts(
            planned=len(plan.slots),
            counted=len(counted),
            pending=len(plan.slots) - len(counted),
            failed=len(failed),
            failed_ever=attempts,
            endings=dict(Counter(episode.ending for episode in counted.values())),
            cut=dict(Counter(episode.limit for episode in counted.values() if episode.limit)),
        ),
        budget=dict(budget),
        errors=_errors(failed),
        tokens=sum(episode.tokens for episode in counted.values()),
        cost=total_cost(episode.cost for episode in counted.values()),
        trivial_baselines={} if tournament else baseline_shares(plan.info.trivial_baselines, counted_tasks),
        matches=() if tournament else tuple(_match(plan, number, finished) for number in range(len(plan.matches))),
        grid=_grid(plan) if plan.kind == "grid" else None,
        tournament=tournament,
    )


def command(plan: Plan) -> str | None:
    """The command line that plays this plan, if there is one."""
    config = plan.config()
    if again := config.regraded:
        return shlex.join(["marl-gem", "regrade", again.run, *(["--reward", again.reward] if again.reward else [])])
    wrappers = [wrapper for wrapper in config.wrappers if isinstance(wrapper, str)]
    typed = plan.scenario.nameable and all(player.typed for player in plan.players)
    if not typed or len(wrappers) < len(config.wrappers):
        return None
    words = ["marl-gem", "tournament" if plan.kind == "tournament" else "eval", config.scenario]
    for agent, policies in config.seats.items():
        for text in [policies] if isinstance(policies, str) else policies:
            words += ["--seat", f"{agent}={text}"]
    for name, text in config.players.items():
        words += ["--player", f"{name}={text}"]
    words += ["--grid"] if plan.kind == "grid" else []
    words += ["--tasks", write_tasks(config.tasks)] if config.tasks is not None else ["-n", str(config.n)]
    words += ["--shuffle"] if config.order == "shuffled" else []
    words += ["--seed", str(config.seed)]
    words += ["--repeats", str(config.repeats)] if config.repeats > 1 else []
    for name, limit in msgspec.to_builtins(config.limits).items():
        words += [f"--max-{name}", f"{limit:g}"]
    for name, value in config.options.items():
        words += ["-o", f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"]
    for name, value in config.reset.items():
        words += ["--reset", f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"]
    for text in wrappers:
        words += ["--wrap", text]
    return shlex.join(words)


def _match(plan: Plan, number: int, finished: Mapping[str, EpisodeSummary]) -> MatchReport:
    """The numbers of one seating."""
    match = plan.matches[number]
    tasks: dict[int, list[EpisodeSummary]] = {}
    for slot in plan.slots.values():
        if slot.match == number and slot.id in finished:
            tasks.setdefault(slot.index, []).append(finished[slot.id])
    episodes = [episode for repeats in tasks.values() for episode in repeats]
    agents = dict.fromkeys([*plan.info.agents, *(agent for episode in episodes for agent in episode.outcomes)])
    return MatchReport(
        name=match.name,
        folder=match.folder,
        players={
            agent: SeatReport(player.who, match.labels[agent], player.policy.name)
            for agent, player in match.players.items()
        },
        episodes=len(episodes),
        tasks=len(tasks),
        turns=_mean([episode.turns for episode in episodes]),
        tokens=sum(episode.tokens for episode in episodes),
        cost=total_cost(episode.cost for episode in episodes),
        seconds=_mean([episode.seconds for episode in episodes]),
        agents={agent: _agent(plan, agent, list(tasks.values())) for agent in agents},
        by_tag=by_tag(
            ((task, episode, match.labels) for task, repeats in tasks.items() for episode in repeats),
            plan.numbers.seed,
        ),
        by_task=() if plan.info.tasks is None else by_task(tasks, agents, dict(enumerate(plan.info.grades))),
    )


def _agent(plan: Plan, agent: str, tasks: Sequence[Sequence[EpisodeSummary]]) -> AgentReport:
    """The numbers of one agent in a seating; `tasks` holds the repeats of each task."""

    def seed(what: str) -> int:  # not of the agent or the seating, so that equal results have equal intervals
        return derive_seed(plan.numbers.seed, "bootstrap", what)

    judged = [[episode.outcomes[agent] for episode in repeats if agent in episode.outcomes] for repeats in tasks]
    successes = [[outcome.success for outcome in repeats] for repeats in judged]
    returns = [[outcome.return_ for outcome in repeats] for repeats in judged]
    episodes = [episode for repeats in tasks for episode in repeats]
    per_k = passes([tries for tries in successes if tries], seed("success")) if plan.numbers.repeats > 1 else []
    return AgentReport(
        success=estimate(successes, seed("success"), proportion=True),
        return_=estimate(returns, seed("return")),
        results=_results([outcome for repeats in judged for outcome in repeats]) if plan.info.zero_sum else None,
        pass_=tuple(per_k),
        reasons=reasons(episodes, agent),
        **msgspec.structs.asdict(usage_of(agent, episodes)),
    )


def _results(outcomes: Sequence[Outcome]) -> Results:
    counts = Counter(outcome.result for outcome in outcomes)
    return Results(counts["win"], counts["draw"], counts["loss"])


def _grid(plan: Plan) -> GridReport:
    """How the matches of a grid form a table: the last named of the seats that vary gives the columns, and its
    success is what the table shows; the others give the rows."""
    candidates = plan.config().seats
    *rows, column = [agent for agent, policies in candidates.items() if len(policies) > 1] or list(candidates)[:1]

    def row_of(match: Match) -> str:
        return ", ".join(match.labels[agent] for agent in rows)

    return GridReport(
        column_agent=column,
        row_agents=tuple(rows),
        columns=tuple(dict.fromkeys(match.labels[column] for match in plan.matches)),
        rows=tuple(dict.fromkeys(map(row_of, plan.matches))),
        cells={match.name: (row_of(match), match.labels[column]) for match in plan.matches},
    )


def _errors(failed: Sequence[EpisodeSummary]) -> tuple[ErrorReport, ...]:
    """What failed, the same things together, most frequent first."""
    kinds: dict[tuple[str, str, str | None], list[EpisodeSummary]] = {}
    for episode in failed:
        if episode.error:
            kinds.setdefault((episode.error.origin, episode.error.type, episode.error.agent), []).append(episode)
    return tuple(
        ErrorReport(
            origin=error.origin,
            type=error.type,
            agent=error.agent,
            count=len(episodes),
            episode=episodes[0].id,
            message=error.message,
        )
        for _, episodes in sorted(kinds.items(), key=lambda item: (-len(item[1]), str(item[0])))
        if (error := episodes[0].error)
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
