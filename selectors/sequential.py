"""One agent at a time, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.selectors.base import AgentSelector, DiGraph, build_graph


class SequentialSelector(AgentSelector):
    """Agents act one at a time, in order; the first follows the last.

    When agents leave, nobody is skipped and nobody acts twice: the turn goes to the agent that would have followed.
    An agent that joins acts last in the current round.
    """

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self._position = -1  # in the order, of the agent that acted last

    def advance(self) -> None:
        order, position = self.order, self._position + 1
        if position >= len(order):
            position = 0
        self._position = position
        self._acting = (order[position],) if order else ()

    def remove(self, agent: str) -> None:
        index = self.order.index(agent)
        super().remove(agent)
        if index <= self._position:
            self._position -= 1  # so that the agent that would have followed is still the next

    def graph(self, agents: Sequence[str]) -> DiGraph:
        ring = zip(agents, [*agents[1:], *agents[:1]], strict=True)
        return build_graph([(agent, after, {}) for agent, after in ring], start=agents[:1], title="one after the other")
