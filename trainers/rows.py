"""Rows: the tokens that a model reads at once, with what is trained on each of them.

Transitions whose prompts extend one another share a row, so that every sampled token is trained once and every shared
prefix is computed once. Where the loss is linear in the advantages, equal rows are folded into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from marl_gem.prefixes import prefix_groups
from marl_gem.trainers.batch import Trajectory, Transition


@dataclass
class Row:
    """Tokens, and for each of them what is trained; all four have the same length.

    `counts[i]` is how often `ids[i]` was sampled: 0 for what the model was only shown, above 1 where equal rows were
    folded. `advantages[i]` is the sum of the advantages, and `logprobs[i]` the sum of the log-probabilities, with
    which it was sampled.
    """

    ids: tuple[int, ...]
    advantages: list[float]
    counts: list[int]
    logprobs: list[float]


def merge(batch: Iterable[Trajectory], *, fold: bool) -> list[Row]:
    """The rows of these trajectories: as few as give the same gradient.

    Args:
        batch: trajectories with their advantages.
        fold: whether rows with the same tokens become one, whose advantages, counts and log-probabilities are sums.
            That keeps the gradient of a loss that is linear in the advantages, and of no other.
    """
    rows = [_row(group) for trajectory in batch for group in _groups(trajectory)]
    return _folded(rows) if fold else rows


def _groups(trajectory: Trajectory) -> Iterable[Sequence[Transition]]:
    tokens = [(transition.prompt_ids, transition.action_ids) for transition in trajectory]
    return ([trajectory[index] for index in group] for group in prefix_groups(tokens))


def _row(transitions: Sequence[Transition]) -> Row:
    row = Row((), [], [], [])
    for transition in transitions:
        shown, sampled = len(transition.prompt_ids) - len(row.ids), len(transition.action_ids)
        row.ids = transition.prompt_ids + transition.action_ids
        row.advantages += [0.0] * shown + [transition.advantage] * sampled
        row.counts += [0] * shown + [1] * sampled
        row.logprobs += [0.0] * shown + list(transition.logprobs)
    return row


def _folded(rows: Iterable[Row]) -> list[Row]:
    unique: dict[tuple[tuple[int, ...], tuple[bool, ...]], Row] = {}
    for row in rows:
        key = (row.ids, tuple(map(bool, row.counts)))
        if (same := unique.get(key)) is None:
            unique[key] = row
        else:
            same.advantages = [a + b for a, b in zip(same.advantages, row.advantages, strict=True)]
            same.counts = [a + b for a, b in zip(same.counts, row.counts, strict=True)]
            same.logprobs = [a + b for a, b in zip(same.logprobs, row.logprobs, strict=True)]
    return list(unique.values())
