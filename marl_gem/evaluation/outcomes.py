"""What the numbers of a report need of an episode; small, so that a run of any length fits into memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from marl_gem.evaluation.estimates import quantile
from marl_gem.types import Ending, Episode, EpisodeError, Response, Turn


class Use(msgspec.Struct, frozen=True):
    """What one seat did and took in one episode.

    `illegal` counts turns that the scenario called illegal. `cost` is in US dollars, without answers that came
    from a cache; None if the price of any other is unknown. `seconds` holds the time of each model's answer;
    `cut` counts the answers whose prompt had lost something for want of room.
    """

    turns: int = 0
    illegal: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    seconds: tuple[float, ...] = ()
    retries: int = 0
    cached: int = 0
    cut: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Outcome(msgspec.Struct, frozen=True):
    """How an episode went: for every agent its return and whether it succeeded, for every seat its use.

    `reasons` holds why agents did not succeed, for those of whom it is told; see `reason`.
    """

    id: str
    ending: Ending
    limit: str
    error: EpisodeError | None
    returns: dict[str, float]
    success: dict[str, bool]
    reasons: dict[str, str]
    uses: dict[str, Use]
    models: dict[str, str]
    seconds: float

    @property
    def turns(self) -> int:
        return sum(use.turns for use in self.uses.values())

    @property
    def tokens(self) -> int:
        return sum(use.tokens for use in self.uses.values())

    @property
    def cost(self) -> float | None:
        return total_cost(use.cost for use in self.uses.values())


def outcome(episode: Episode, competitive: bool) -> Outcome:
    """Sum up an episode. `competitive`: what one agent wins, the others lose (see `succeeded`)."""
    turns: dict[str, list[Turn]] = {agent: [] for agent in episode.returns}
    for turn in episode.turns:
        turns.setdefault(turn.agent, []).append(turn)
    success = {agent: succeeded(episode, agent, competitive) for agent in episode.returns}
    reasons = {agent: reason(episode, agent) for agent, good in success.items() if not good}
    return Outcome(
        id=episode.id,
        ending=episode.ending,
        limit=episode.limit,
        error=episode.error,
        returns=episode.returns,
        success=success,
        reasons={agent: why for agent, why in reasons.items() if why},
        uses={agent: _use(own) for agent, own in turns.items()},
        models=episode.models,
        seconds=episode.seconds,
    )


def succeeded(episode: Episode, agent: str, competitive: bool) -> bool:
    """Whether an agent reached what it was there for.

    The scenario's word counts if it gives one: `success`, true or false, in the info with which the agent ended.
    Else, in a competitive scenario (one whose metadata says it is zero-sum) the agent with the highest return has
    won, and nobody has if two share it; in any other a return above 0 is a success.
    """
    told = episode.final_infos.get(agent, {}).get("success")
    if isinstance(told, bool):
        return told
    own = episode.returns[agent]
    if competitive:
        return all(own > value for other, value in episode.returns.items() if other != agent)
    return own > 0


def reason(episode: Episode, agent: str) -> str:
    """Why an agent did not succeed, in a word or two; empty if nothing tells.

    The scenario's word counts if it gives one: `failure`, a text that is not empty, in the info with which the
    agent ended. Else it is the limit that cut the episode, the scenario's own limit on its length, or an illegal
    action that ended the agent's part.
    """
    info = episode.final_infos.get(agent, {})
    told = info.get("failure")
    if isinstance(told, str) and told:
        return told
    if episode.limit:
        return f"cut by {episode.limit}"
    return "illegal action" if "illegal" in info else "truncated" if episode.ending == "truncated" else ""


def total_cost(costs: Iterable[float | None]) -> float | None:
    """The sum; None, unknown, if any of them is."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


def usage(uses: Iterable[Use]) -> dict[str, Any]:
    """What a seat did and took in all its episodes: sums, turns as a mean, and the quantiles of its latency."""
    uses = list(uses)
    waits = sorted(seconds for use in uses for seconds in use.seconds)
    return {
        "turns": sum(use.turns for use in uses) / len(uses) if uses else None,
        "illegal": {"actions": sum(use.illegal for use in uses), "episodes": sum(use.illegal > 0 for use in uses)},
        "tokens": {
            "prompt": sum(use.prompt_tokens for use in uses),
            "completion": sum(use.completion_tokens for use in uses),
        },
        "cost": total_cost(use.cost for use in uses),
        "cached": sum(use.cached for use in uses),
        "cut_prompts": sum(use.cut for use in uses),
        "retries": sum(use.retries for use in uses),
        "seconds": {"p50": quantile(waits, 0.5), "p95": quantile(waits, 0.95)} if waits else None,
    }


def _use(turns: list[Turn]) -> Use:
    answers = [turn.response for turn in turns]
    return Use(
        turns=len(turns),
        illegal=sum("illegal" in turn.info for turn in turns),
        prompt_tokens=sum(answer.usage.get("prompt_tokens", 0) for answer in answers),
        completion_tokens=sum(answer.usage.get("completion_tokens", 0) for answer in answers),
        cost=total_cost(map(_paid, answers)),
        seconds=tuple(answer.seconds for answer in answers if answer.seconds and not answer.cached),
        retries=sum(answer.retries for answer in answers),
        cached=sum(answer.cached for answer in answers),
        cut=sum(answer.cut > 0 for answer in answers),
    )


def _paid(answer: Response) -> float | None:
    """What an answer cost now: nothing if it is a script's or a cache's, None if a model's price is unknown."""
    by_model = answer.usage or answer.token_ids or answer.seconds
    return 0.0 if answer.cached or not by_model else answer.cost
