"""Rows: the tokens that a model reads at once, with what is trained on each of them.

Transitions whose prompts extend one another share a row, so that every sampled token is trained once and every shared
prefix is computed once. Equal rows are folded into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from marl_gem.prefixes import prefix_groups
from marl_gem.trainers.batch import Trajectory, Transition


@dataclass
class Row:
    """Tokens, and for each of them what is trained; all lists have the same length.

    `counts[i]` is how often `ids[i]` was sampled: 0 for what the model was only shown, above 1 where equal rows were
    folded. `advantages[i]` is the sum of the advantages with which it was sampled, `positive[i]` and `negative[i]` the
    sums of those above and below 0, and `logprobs[i]` the sum of its log-probabilities. `lengths[i]` is how many
    tokens its turn sampled. `proximal[i]` is its log-probability under the policy before the update's first step;
    empty where nothing needs it.
    """

    ids: tuple[int, ...]
    advantages: list[float]
    counts: list[int]
    logprobs: list[float]
    positive: list[float]
    negative: list[float]
    lengths: list[int]
    proximal: list[float] = field(default_factory=list)


def merge(batch: Iterable[Trajectory], *, fold: bool, equal_logprobs: bool = False) -> list[Row]:
    """The rows of these trajectories: as few as give the same gradient.

    Args:
        batch: trajectories with their advantages.
        fold: whether rows with the same tokens become one, whose advantages, counts and log-probabilities are sums.
            That keeps the gradient of a loss that is linear in the advantages.
        equal_logprobs: fold only rows whose tokens were also sampled with equal log-probabilities. That keeps the
            gradient of a loss with clipped ratios, too, if it is linear in `positive` and in `negative`.
    """
    rows = [_row(group) for trajectory in batch for group in _groups(trajectory)]
    return _folded(rows, equal_logprobs) if fold else rows


def split(values: Sequence[Sequence[float]], batch: Iterable[Trajectory]) -> list[list[float]]:
    """The values of each transition's sampled tokens, in the order of the transitions.

    Args:
        values: a number for each token of each row that `merge` gave, without folding.
        batch: the same trajectories.
    """
    found: list[list[float]] = []
    rows = iter(values)
    for trajectory in batch:
        parts: dict[int, list[float]] = {}
        for group in _groups(trajectory):
            row = next(rows)
            for transition in group:
                start = len(transition.prompt_ids)
                parts[transition.turn] = list(row[start : start + len(transition.action_ids)])
        found += [parts[transition.turn] for transition in trajectory]
    return found


class HasTokens(Protocol):
    """Something with tokens that a model reads at once."""

    @property
    def ids(self) -> tuple[int, ...]: ...


Tokens = TypeVar("Tokens", bound=HasTokens)


def micro_batches(rows: Iterable[Tokens], tokens: int) -> Iterator[list[Tokens]]:
    """Rows of similar length together, so that little is padding.

    Args:
        rows: in any order.
        tokens: the greatest number of tokens in a micro-batch, padding included; a longer row is one by itself.
    """
    batch: list[Tokens] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if batch and len(row.ids) * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _groups(trajectory: Trajectory) -> Iterable[Sequence[Transition]]:
    tokens = [(transition.prompt_ids, transition.action_ids) for transition in trajectory]
    return ([trajectory[index] for index in group] for group in prefix_groups(tokens))


def _row(transitions: Sequence[Transition]) -> Row:
    row = Row((), [], [], [], [], [], [])
    for transition in transitions:
        shown, sampled = len(transition.prompt_ids) - len(row.ids), len(transition.action_ids)
        row.ids = transition.prompt_ids + transition.action_ids
        row.advantages += [0.0] * shown + [transition.advantage] * sampled
        row.positive += [0.0] * shown + [max(transition.advantage, 0.0)] * sampled
        row.negative += [0.0] * shown + [min(transition.advantage, 0.0)] * sampled
        row.counts += [0] * shown + [0 if transition.masked else 1] * sampled
        row.lengths += [0] * shown + [sampled] * sampled
        row.logprobs += [0.0] * shown + list(transition.logprobs)
    return row


def _folded(rows: Iterable[Row], equal_logprobs: bool) -> list[Row]:
    unique: dict[tuple[object, ...], Row] = {}
    for row in rows:
        key = (row.ids, tuple(row.lengths), tuple(row.logprobs) if equal_logprobs else ())
        if (same := unique.get(key)) is None:
            unique[key] = row
            continue
        for name in ("advantages", "positive", "negative", "counts", "logprobs"):
            setattr(same, name, [a + b for a, b in zip(getattr(same, name), getattr(row, name), strict=True)])
    return list(unique.values())
