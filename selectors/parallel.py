"""All agents act at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.selectors.base import AgentSelector, DiGraph, build_graph


class ParallelSelector(AgentSelector):
    """All agents act at the same time, every turn. An agent that joins acts from the next turn on."""

    def advance(self) -> None:
        self.acting = tuple(self.order)

    def graph(self, agents: Sequence[str]) -> DiGraph:
        graph = build_graph([("everybody", "everybody", {})], start=["everybody"], title="all at once")
        graph.nodes["everybody"]["note"] = ", ".join(agents)
        return graph
