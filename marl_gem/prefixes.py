"""Which turns of one agent can share a row of tokens: those whose prompts extend one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def prefix_groups(turns: Iterable[tuple[Sequence[int], Sequence[int]]]) -> list[list[int]]:
    """Group the turns of one agent, so that within a group every prompt begins with all tokens before it.

    A model reads such a group in one pass: shared prefixes are computed once, and every sampled token is trained
    once. Turns without tokens form groups of their own.

    Args:
        turns: prompt ids and sampled ids of each turn, in order. Both empty stand for a turn without tokens.

    Returns:
        the indices of the turns, group by group, in order; as few groups as there can be.
    """
    groups: list[list[int]] = []
    row: tuple[int, ...] = ()  # the tokens of the last group
    for index, (prompt, sampled) in enumerate(turns):
        has_tokens = bool(prompt or sampled)
        if not groups or has_tokens != bool(row) or tuple(prompt[: len(row)]) != row:
            groups.append([])
        groups[-1].append(index)
        row = (*prompt, *sampled)
    return groups
