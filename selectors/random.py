"""One agent at a time, in random order."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.selectors.base import AgentSelector, DiGraph


class RandomSelector(AgentSelector):
    """Agents act one at a time, in an order that is drawn for every round; in a round every agent acts once.

    An agent that joins acts in the current round, at a random position among those that have not acted yet.

    Args:
        rounds: False: there are no rounds, and at every turn any agent may be drawn, also the one that has just acted.
    """

    def __init__(self, rounds: bool = True) -> None:
        self._rounds = rounds

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self._waiting = self._draw_round()

    def advance(self) -> None:
        if not self._rounds:
            self.acting = (self.rng.choice(self.order),) if self.order else ()
            return
        if not self._waiting:
            self._waiting = self._draw_round()
        self.acting = (self._waiting.pop(),) if self._waiting else ()

    def add(self, agent: str) -> None:
        super().add(agent)
        if self._rounds:
            self._waiting.insert(self.rng.randint(0, len(self._waiting)), agent)

    def remove(self, agent: str) -> None:
        super().remove(agent)
        if agent in self._waiting:
            self._waiting.remove(agent)

    def graph(self, agents: Sequence[str]) -> DiGraph:
        graph = super().graph(agents)
        graph.graph["title"] = "every round in a new order" if self._rounds else "at every turn any agent"
        return graph

    def _draw_round(self) -> list[str]:
        """The agents of a new round; the first to act is the last in the list."""
        return self.rng.sample(self.order, len(self.order)) if self._rounds else []
