"""A run in a few numbers: the outcomes of each agent, what failed, and what it took."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from marl_gem.runs.entries import Entry, Summary

MOST_REASONS = 50
"""So many different reasons are counted."""


class AgentOverview(msgspec.Struct):
    """The outcomes of an agent in all finished episodes that did not end with an error.

    `episodes` counts them, and `contests` those that were contests; the others are tasks. `successes` counts won
    contests and solved tasks; `wins`, `draws` and `losses` contests alone. `mean_return` is the mean undiscounted
    return. `models` counts the episodes of each model, and `illegal` those with an illegal move of this agent.
    `reasons` counts the episodes without success by the reason, where one is known; at most `MOST_REASONS` of them.
    """

    agent: str
    models: dict[str, int] = {}
    episodes: int = 0
    contests: int = 0
    successes: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    illegal: int = 0
    mean_return: float = 0.0
    reasons: dict[str, int] = {}


class Overview(msgspec.Struct):
    """Counts of a run's lines, and sums over its finished episodes.

    `episodes` are finished; `errors` of them ended with an error, `truncated` were truncated, `illegal` have an illegal
    move. `failed` counts attempts that failed because of infrastructure, `pending` the episodes that have no other
    attempt yet, `broken` lines that are no episodes. `turns` and `tokens` are sums, `cost` one in US dollars, over the
    episodes whose cost is known; `unpriced` counts the others. `seconds` is the sum of the episodes' times. `tasks`
    counts the different tasks, where the scenario numbers them.
    """

    episodes: int = 0
    errors: int = 0
    truncated: int = 0
    illegal: int = 0
    failed: int = 0
    pending: int = 0
    broken: int = 0
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0
    tasks: int = 0
    scenarios: list[str] = []
    agents: list[AgentOverview] = []


def overview(entries: Iterable[Entry]) -> Overview:
    """Sum up a run's entries, as `RunReader.entries` gives them."""
    total = Overview()
    agents: dict[str, AgentOverview] = {}
    finished: list[Summary] = []
    failed = set()
    for entry in entries:
        if (episode := entry.summary) is None:
            total.broken += 1
        elif entry.key.startswith("e"):
            total.failed += 1
            failed.add((episode.id, episode.repeat))
        else:
            finished.append(episode)
            _count(total, episode)
            _count_agents(agents, episode)
    for agent in agents.values():
        agent.mean_return /= max(1, agent.episodes)
    total.pending = len(failed - {(episode.id, episode.repeat) for episode in finished}) if failed else 0
    total.tasks = len({episode.task for episode in finished} - {None})
    total.agents = list(agents.values())
    return total


def _count(total: Overview, episode: Summary) -> None:
    total.episodes += 1
    total.errors += episode.error is not None
    total.truncated += bool(episode.limit) or episode.ending == "truncated"
    total.illegal += bool(episode.illegal)
    total.turns += episode.turns
    total.tokens += episode.tokens
    total.cost += episode.cost or 0.0
    total.unpriced += episode.cost is None
    total.seconds += episode.seconds
    if episode.scenario not in total.scenarios:
        total.scenarios.append(episode.scenario)


def _count_agents(agents: dict[str, AgentOverview], episode: Summary) -> None:
    for name, value in episode.returns.items():
        agent = agents.setdefault(name, AgentOverview(name))
        if model := episode.models.get(name):
            agent.models[model] = agent.models.get(model, 0) + 1
        if outcome := episode.outcomes.get(name):
            agent.episodes += 1
            agent.contests += outcome.result is not None
            agent.successes += outcome.success
            agent.wins += outcome.result == "win"
            agent.draws += outcome.result == "draw"
            agent.losses += outcome.result == "loss"
            agent.mean_return += value
            if outcome.reason and (outcome.reason in agent.reasons or len(agent.reasons) < MOST_REASONS):
                agent.reasons[outcome.reason] = agent.reasons.get(outcome.reason, 0) + 1
        agent.illegal += name in episode.illegal
