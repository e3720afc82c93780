"""Per-agent advantages for trainers that have none: return batch normalization (ReBN).

Source: GEM (arXiv 2510.01051), equation 4, with a batch of one agent's returns at a time. What group-normalizing
trainers compute compares rewards of different agents, or of one start state alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from marl_gem.trainers.algorithms.normalization import normalize
from marl_gem.trainers.batch import discounted_returns
from marl_gem.types import Episode

TurnAdvantages: TypeAlias = Mapping[tuple[str, str], Sequence[float]]
"""The advantage of each turn, by the episode's id and the agent."""


def per_agent_advantages(rewards: Iterable[float], agents: Iterable[Hashable]) -> list[float]:
    """(reward - mean) / std, with mean and standard deviation over all rewards of the same agent.

        per_agent_advantages([1.0, 0.0, 5.0, 7.0], ["user", "user", "clerk", "clerk"])  # [1.0, -1.0, -1.0, 1.0]

    The standard deviation is that of the population, in float64. An agent with fewer than two rewards, or whose
    rewards are all equal, gets 0.

    Args:
        rewards: a number for each sample of a batch: an episode's reward, or a turn's return. Arrays will do.
        agents: whose each is; in a batch of several scenarios, a pair of scenario and agent.

    Raises:
        ValueError: there is not an agent for each reward.
    """
    numbers: dict[Hashable, str] = {}
    keys = [(numbers.setdefault(agent, str(len(numbers))),) for agent in agents]
    values, _ = normalize([float(reward) for reward in rewards], keys)
    return values


def turn_advantages(
    episodes: Iterable[Episode], seats: Sequence[str] = (), *, gamma: float = 1.0
) -> dict[tuple[str, str], list[float]]:
    """The advantage of each turn: its discounted return, normalized over all turns of that agent of that scenario.

    The same numbers as the algorithm `rebn` gives; `samples` puts them on tokens.

    Args:
        episodes: a batch; those that failed are left out. Their ids differ.
        seats: whose turns count; by default all.
        gamma: discounts from one turn of an agent to its next.
    """
    owners: list[tuple[str, str]] = []
    keys: list[tuple[str, str]] = []
    returns: list[float] = []
    for episode in episodes:
        if episode.error is not None:
            continue
        for agent in seats or tuple(dict.fromkeys(turn.agent for turn in episode.turns)):
            found = discounted_returns([turn.reward for turn in episode.turns_of(agent)], gamma)
            returns += found
            owners += [(episode.id, agent)] * len(found)
            keys += [(episode.scenario, agent)] * len(found)
    advantages: dict[tuple[str, str], list[float]] = {}
    for owner, value in zip(owners, normalize(returns, keys)[0], strict=True):
        advantages.setdefault(owner, []).append(value)
    return advantages
