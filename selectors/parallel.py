"""Everybody at once."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.selectors.base import AgentSelector


class ParallelSelector(AgentSelector):
    """All agents act at the same time, every turn. A newcomer acts from the next turn on."""

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self.acting = tuple(self.order)

    def add(self, agent: str) -> None:
        super().add(agent)
        self.acting = tuple(self.order)  # for those who join before the first turn

    def advance(self) -> None:
        self.acting = tuple(self.order)
