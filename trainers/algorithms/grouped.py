"""Episodes of a group: they start from the same state, with the same learning seats."""

from __future__ import annotations

from typing import TypeAlias

from marl_gem.trainers.batch import Batch, Transition

GroupKey: TypeAlias = tuple[str, str, str]


def group_key(transition: Transition) -> GroupKey:
    """A group is of one scenario, one start and one agent."""
    return transition.scenario, transition.group, transition.agent


def first_returns(batch: Batch) -> dict[GroupKey, dict[str, float]]:
    """For each group the return of each of its episodes, by the episode's id, from the agent's first turn on."""
    groups: dict[GroupKey, dict[str, float]] = {}
    for transition in batch.transitions:
        groups.setdefault(group_key(transition), {}).setdefault(transition.episode, transition.return_)
    return groups


def zero_variance_groups(groups: dict[GroupKey, dict[str, float]]) -> int:
    """In how many groups all episodes have the same return."""
    return sum(len(set(returns.values())) == 1 for returns in groups.values())
