"""The interface of turn orders: which agents act next."""

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
    """Names the agents that act now, and moves on.

    The env calls `reset` when an episode starts, `advance` after every step, and `add` and `remove` when agents join
    and leave. These come before `advance`, so that both count for the next turn. The first turn is an `advance` with
    an empty `acting`; it happens when `acting` is first read, so that it takes into account what the scenario did in
    its `_reset`.

    To define an order, override `advance`, and `reset` if there is something to set up. Source: the `AgentSelector` of
    GEM (arXiv 2510.01051, appendix D.3).
    """

    order: list[str]
    """The agents in the episode, in the order in which they were given or joined."""

    finished: bool = False
    """Whether the turn order has come to its end, which ends the episode; the env reads it after `advance`."""

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
        """The selector's random generator; it follows from the env's seed."""
        if self._rng is None:
            self._rng = random.Random(derive_seed(self._seed, "selector"))
        return self._rng

    def reseed(self, seed: int) -> None:
        """Take the env's seed; called before `reset`."""
        self._seed, self._rng = seed, None

    def reset(self, agents: Sequence[str]) -> None:
        """Start a new episode with these agents."""
        self.order = list(agents)
        self.finished = False
        self._acting = None

    @abstractmethod
    def advance(self) -> None:
        """The agents in `acting` have acted (none at first): set `acting` to the agents that act next."""

    def add(self, agent: str) -> None:
        """An agent joins, at the end of the order."""
        self.order.append(agent)

    def remove(self, agent: str) -> None:
        """An agent leaves."""
        self.order.remove(agent)

    def graph(self, agents: Sequence[str]) -> DiGraph:
        """A graph of which agent may act after which; `marl_gem.selectors.picture.draw` draws it.

        Here every agent may act after every other. Attributes of a node: `note` (text below its name), `start`
        (True if it acts first); of an edge: `label`, `dashed`; of the graph: `title`.

        Args:
            agents: the ids of the agents that take part.

        Raises:
            MissingPackage: networkx is not installed.
        """
        return build_graph(
            [(agent, other, {}) for agent in agents for other in agents if agent != other],
            nodes=agents,
            title=f"{type(self).__name__}: any agent after any other",
        )


def build_graph(
    edges: Iterable[tuple[Any, Any, dict[str, Any]]],
    *,
    title: str,
    nodes: Iterable[Any] = (),
    start: Iterable[Any] = (),
) -> DiGraph:
    """The graph of a turn order.

    Args:
        edges: from node, to node, attributes.
        title: stands below the picture.
        nodes: further nodes.
        start: the nodes that act first; they get the attribute `start`.

    Raises:
        MissingPackage: networkx is not installed.
    """
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
