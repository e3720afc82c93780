"""Who acts next: the interface every turn order implements."""

from __future__ import annotations

import difflib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from marl_gem.errors import MissingPackage
from marl_gem.seeding import derive_seed

if TYPE_CHECKING:
    import networkx

DiGraph: TypeAlias = "networkx.DiGraph"


class AgentSelector(ABC):
    """Answers who acts now, and moves on.

    The env calls `reset` when an episode starts, `advance` after every step, and `add` and `remove` as
    agents join and leave. An agent that leaves is removed before `advance`; one that joins is added
    before it too, so both count for the very next turn. The first turn is an `advance` after nobody has
    acted; it comes when `acting` is first read, so that it counts what the scenario did in its `_reset`.
    To define an order, override `advance`, and `reset` where there is something to set up. Source: the
    `AgentSelector` of GEM (arXiv 2510.01051, appendix D.3).
    """

    order: list[str]
    """The agents in the episode, in the order in which they were given or joined."""

    finished: bool = False
    """Whether the order has come to its end, which ends the episode; looked at after `advance`."""

    _acting: tuple[str, ...] | None = ()
    _seed: int = 0
    _rng: random.Random | None = None

    @property
    def acting(self) -> tuple[str, ...]:
        """The agents that act now."""
        if self._acting is None:
            self._acting = ()
            self.advance()
        return self._acting

    @acting.setter
    def acting(self, agents: tuple[str, ...]) -> None:
        self._acting = agents

    @property
    def rng(self) -> random.Random:
        """The turn order's own generator: an order that draws lots repeats under the env's seed."""
        if self._rng is None:  # made when it is asked for: it takes longer than all the rest of a reset
            self._rng = random.Random(derive_seed(self._seed, "selector"))
        return self._rng

    def reseed(self, seed: int) -> None:
        """The env has this seed; called before `reset`."""
        self._seed, self._rng = seed, None

    def reset(self, agents: Sequence[str]) -> None:
        """Start anew with these agents."""
        self.order = list(agents)
        self.finished = False
        self._acting = None

    @abstractmethod
    def advance(self) -> None:
        """Those in `acting` have acted, nobody at first: set `acting` to those who act next."""

    def add(self, agent: str) -> None:
        """An agent joins, at the end of the order."""
        self.order.append(agent)

    def remove(self, agent: str) -> None:
        """An agent leaves."""
        self.order.remove(agent)

    def graph(self, agents: Sequence[str]) -> DiGraph:
        """Who may act after whom, among these agents; `marl_gem.selectors.picture.draw` makes a picture of it.

        Here anybody may act after anybody. A node may have a `note` and may be a `start`, an edge may have
        a `label` and may be `dashed`; the graph may have a `title`.

        Raises:
            MissingPackage: networkx is not installed.
        """
        return build_graph(
            [(agent, other, {}) for agent in agents for other in agents if agent != other],
            nodes=agents,
            title=f"{type(self).__name__}: anybody after anybody",
        )


def build_graph(
    edges: Iterable[tuple[Any, Any, dict[str, Any]]],
    *,
    title: str,
    nodes: Iterable[Any] = (),
    start: Iterable[Any] = (),
) -> DiGraph:
    """The graph of a turn order. The nodes in `start` come first and are marked so."""
    try:
        import networkx
    except ImportError:
        raise MissingPackage("networkx", "graph", "the graph of a turn order") from None
    graph = networkx.DiGraph(title=title)
    graph.add_nodes_from(start, start=True)
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return graph


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """The end of an error message about an unknown name: the nearest ones, or all there are."""
    names = [str(other) for other in known]
    near = difflib.get_close_matches(str(name), names, n=3)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {', '.join(map(repr, names))}." if names else "there are none."
