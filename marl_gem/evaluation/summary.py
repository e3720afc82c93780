"""What a report needs of an episode: small, so that a run of any length fits into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from marl_gem.evaluation.estimates import quantile
from marl_gem.evaluation.report import IllegalActions, Latency, TokenCounts, UsageReport
from marl_gem.runs.outcomes import Outcome, outcomes
from marl_gem.runs.outline import Outlined, ResponseOutline, cost_of
from marl_gem.types import Ending, EpisodeError, Response


class Judged(Protocol):
    """What results by task, team and role need of an episode."""

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """By agent; empty if the episode failed."""

    @property
    def tags(self) -> Mapping[str, Mapping[str, str]]:
        """The team and the role of each agent that has them."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What one seat used in one episode."""

    # Its turns.
    turns: int = 0
    # Tokens its model read and wrote.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # US dollars, without answers that came from a cache; None if the price of any other is unknown.
    cost: float | None = 0.0
    # The time of each of its model's answers, in seconds, without those from a cache.
    seconds: tuple[float, ...] = ()
    # Requests that had to be repeated.
    retries: int = 0
    # Answers that came from a cache.
    cached: int = 0
    # Answers whose prompt was cut because it did not fit.
    cut: int = 0
    # For each field of requests that a server did not take: answers that were asked for without it. A tuple of pairs,
    # since nearly all are empty, and empty tuples take no memory.
    unsent: tuple[tuple[str, int], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.prompt_tokens + self.completion_tokens


class EpisodeSummary(msgspec.Struct, frozen=True, gc=False):
    """An episode's outcomes and usage."""

    id: str
    ending: Ending
    limit: str
    error: EpisodeError | None
    # By agent; empty if the episode failed.
    outcomes: dict[str, Outcome]
    # By agent.
    usage: dict[str, Usage]
    # Wall time of the episode.
    seconds: float
    # The team and the role of each agent that has them.
    tags: dict[str, dict[str, str]] = {}

    @property
    def turns(self) -> int:
        """Turns of all agents."""
        return sum(usage.turns for usage in self.usage.values())

    @property
    def tokens(self) -> int:
        """Tokens read and written by all agents."""
        return sum(usage.tokens for usage in self.usage.values())

    @property
    def cost(self) -> float | None:
        """US dollars of all agents; None if unknown."""
        return total_cost(usage.cost for usage in self.usage.values())


def summarize(episode: Outlined, contest: bool) -> EpisodeSummary:
    """Sum up an episode. `contest`: whether it is one, where its record does not say; see `runs.outcomes`."""
    responses: dict[str, list[Response | ResponseOutline]] = {agent: [] for agent in episode.returns}
    for turn in episode.turns:
        responses.setdefault(turn.agent, []).append(turn.response)
    return EpisodeSummary(
        id=episode.id,
        ending=episode.ending,
        limit=episode.limit,
        error=episode.error,
        outcomes=outcomes(episode, contest),
        usage={agent: _usage(given) for agent, given in responses.items()},
        seconds=episode.seconds,
        tags=episode.tags,
    )


def total_cost(costs: Iterable[float | None]) -> float | None:
    """The sum; None, unknown, if any of them is."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


def usage_of(agent: str, episodes: Iterable[EpisodeSummary]) -> UsageReport:
    """What an agent used in all its episodes: sums, turns as a mean, and the quantiles of its latency."""
    return combined_usage((summary, agent) for summary in episodes if agent in summary.usage)


def combined_usage(seats: Iterable[tuple[EpisodeSummary, str]]) -> UsageReport:
    """What the seats of several episodes used together, each seat given as an episode and an agent."""
    seats = list(seats)
    used = [summary.usage[agent] for summary, agent in seats]
    illegal = [summary.outcomes[agent].illegal for summary, agent in seats if agent in summary.outcomes]
    waits = sorted(seconds for usage in used for seconds in usage.seconds)
    return UsageReport(
        turns=sum(usage.turns for usage in used) / len(used) if used else None,
        illegal=IllegalActions(actions=sum(illegal), episodes=sum(count > 0 for count in illegal)),
        tokens=TokenCounts(
            prompt=sum(usage.prompt_tokens for usage in used),
            completion=sum(usage.completion_tokens for usage in used),
        ),
        cost=total_cost(usage.cost for usage in used),
        cached=sum(usage.cached for usage in used),
        cut_prompts=sum(usage.cut for usage in used),
        retries=sum(usage.retries for usage in used),
        seconds=Latency(quantile(waits, 0.5), quantile(waits, 0.95)) if waits else None,
        unsent=_unsent(used),
    )


def _unsent(used: Iterable[Usage]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for usage in used:
        counts.update(dict(usage.unsent))
    return dict(sorted(counts.items()))


def _usage(responses: list[Response | ResponseOutline]) -> Usage:
    prompt = completion = retries = cached = cut = 0
    cost: float | None = 0.0
    seconds = []
    unsent: dict[str, int] = {}
    for response in responses:
        if response.usage:
            prompt += response.usage.get("prompt_tokens", 0)
            completion += response.usage.get("completion_tokens", 0)
        paid = cost_of(response)
        cost = None if cost is None or paid is None else cost + paid
        if response.seconds and not response.cached:
            seconds.append(response.seconds)
        retries += response.retries
        cached += response.cached
        cut += response.cut > 0
        for name in response.unsent:
            unsent[name] = unsent.get(name, 0) + 1
    return Usage(len(responses), prompt, completion, cost, tuple(seconds), retries, cached, cut, tuple(unsent.items()))
