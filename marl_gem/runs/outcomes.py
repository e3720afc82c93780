"""What an episode came to for each agent: success, win, draw or loss, and why not.

`judge` is the only function that decides this. Play, evaluation, training, tournaments and the viewer all call it,
directly or through `outcomes`, so that the same episodes give the same numbers everywhere.

    contest    the scenario's metadata says zero-sum: `result` is "win", "draw" or "loss", and success is a win
    task       anything else: `result` is None, and success is the scenario's `success`, or a return above 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any, Literal, TypeAlias

import msgspec

from marl_gem.runs.outline import Outlined
from marl_gem.types import Ending, Episode

Result: TypeAlias = Literal["win", "draw", "loss"]

TOLERANCE = 1e-9
"""Returns whose sum is at most this far from 0 cancel."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What one episode came to for one agent."""

    agent: str
    # The undiscounted sum of the agent's rewards.
    return_: float = msgspec.field(name="return")
    # Whether the agent reached its goal. In a contest: whether it won.
    success: bool
    # How the agent's return compares with the others'; None where the episode is no contest.
    result: Result | None = None
    # Why the agent did not succeed, in a word or two; empty on success, and where nothing says why.
    reason: str = ""
    # How many of the agent's turns the scenario called illegal.
    illegal: int = 0

    @property
    def label(self) -> str:
        """One word: "win", "draw" or "loss" of a contest, "success" or "failure" of a task."""
        return self.result or ("success" if self.success else "failure")


def outcomes(episode: Outlined, contest: bool | None = None) -> dict[str, Outcome]:
    """What an episode came to, by agent.

    Args:
        episode: any episode. One that an error broke off has no outcome.
        contest: whether the episode is a contest, where its record does not say (`zero_sum` is None: the scenario
            declares nothing, or the record is old). If this is None too, two agents whose returns cancel and are
            not 0 were in a contest. Whoever has all episodes of a run should pass `contest_of(episodes)` instead.

    Returns:
        an `Outcome` for each agent in `episode.returns`; empty if the episode failed.
    """
    if episode.error:
        return {}
    if episode.zero_sum is not None:
        contest = episode.zero_sum
    elif contest is None:
        contest = looks_like_contest([episode.returns])
    illegal = Counter(turn.agent for turn in episode.turns if "illegal" in turn.info)
    return judge(
        episode.returns,
        episode.final_infos,
        contest=contest,
        illegal=illegal,
        limit=episode.limit,
        ending=episode.ending,
        tags=episode.tags,
    )


def judge(
    returns: Mapping[str, float],
    final_infos: Mapping[str, Mapping[str, Any]],
    *,
    contest: bool,
    illegal: Mapping[str, int] | None = None,
    limit: str = "",
    ending: Ending = "terminated",
    tags: Mapping[str, Mapping[str, str]] = {},
) -> dict[str, Outcome]:
    """Decide what an episode came to for each agent.

    The scenario's word counts if it gives one: `success`, true or false, in the info with which the agent ended.
    Without it, the agent with the highest return wins a contest, and those that share the highest return draw, except
    that agents of the same team win or draw together; in a task a return above 0 is a success. In a contest a success
    is a win, and nothing else is one.

    Args:
        returns: the undiscounted return of each agent.
        final_infos: the info with which each agent ended; only `success`, `failure` and `illegal` are read.
        contest: whether the agents compete.
        illegal: how many illegal actions each agent took; agents without any may be missing.
        limit: the limit that cut the episode, or empty.
        ending: how the episode ended.
        tags: the "team" of each agent, where it has one.

    Returns:
        an `Outcome` for each agent in `returns`.
    """
    judged = {}
    for agent, value in returns.items():
        info = final_infos.get(agent, {})
        declared = info.get("success")
        result: Result | None = None
        if contest:
            others = [v for name, v in returns.items() if name != agent and not same_team(tags, name, agent)]
            result = _result(value, others, declared if isinstance(declared, bool) else None)
            success = result == "win"
        else:
            success = declared if isinstance(declared, bool) else value > 0
        reason = "" if success else _reason(info, limit, ending)
        judged[agent] = Outcome(agent, value, success, result, reason, (illegal or {}).get(agent, 0))
    return judged


def contest_of(episodes: Iterable[Episode]) -> bool:
    """Whether the episodes of one scenario are contests: as their records say, or else as their returns look.

    Episodes that failed do not count.
    """
    played = [episode for episode in episodes if not episode.error]
    declared = {episode.zero_sum for episode in played} - {None}
    return True in declared if declared else looks_like_contest(episode.returns for episode in played)


def looks_like_contest(returns: Iterable[Mapping[str, float]]) -> bool:
    """Whether the returns of all episodes look zero-sum: two agents in each, whose returns cancel, and not all are 0.

    For episodes that nothing is declared of. With two agents it does not matter for `success`: the one with a return
    above 0 is the one that wins.
    """
    any_reward = False
    for values in returns:
        if len(values) != 2 or abs(fsum(values.values())) > TOLERANCE:
            return False
        any_reward = any_reward or any(values.values())
    return any_reward


def same_team(tags: Mapping[str, Mapping[str, str]], agent: str, other: str) -> bool:
    """Whether two agents are of one team; `tags` gives the "team" of each agent, where it has one."""
    team = tags.get(agent, {}).get("team", "")
    return bool(team) and team == tags.get(other, {}).get("team", "")


def _result(value: float, others: Sequence[float], success: bool | None) -> Result:
    best_other = max(others, default=0.0)
    if success or (success is None and value > best_other):
        return "win"
    return "draw" if value == best_other else "loss"


def _reason(info: Mapping[str, Any], limit: str, ending: Ending) -> str:
    """Why an agent did not succeed: the scenario's word (`failure`, a text), or what ended the agent's part."""
    failure = info.get("failure")
    if isinstance(failure, str) and failure:
        return failure
    if limit:
        return f"cut by {limit}"
    return "illegal action" if "illegal" in info else "truncated" if ending == "truncated" else ""
