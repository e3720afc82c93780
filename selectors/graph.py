"""A directed graph defines which agent may act after which.

    graph = nx.DiGraph([("host", "ann"), ("host", "bob"), ("ann", "host"), ("bob", "host")])
    graph["host"]["ann"]["otherwise"] = graph["host"]["bob"]["otherwise"] = True
    graph.add_edge("host", END, when=lambda state: state["agreed"])
    selector = GraphSelector(graph, start="host", state={"agreed": False})

Or, without networkx, the same as a mapping: `{"host": {"ann": {"otherwise": True}, ...}, "ann": "host", ...}`.
"""

from __future__ import annotations

import copy
import enum
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast

from marl_gem.errors import SelectorError
from marl_gem.selectors.base import AgentSelector, DiGraph, build_graph, did_you_mean


class _End(enum.Enum):
    END = "END"

    def __repr__(self) -> str:
        return "END"

    __str__ = __repr__


END: Final = _End.END
"""The node that ends the episode."""

Node: TypeAlias = str | _End
State: TypeAlias = dict[str, Any]
Condition: TypeAlias = Callable[[State], object]
Successors: TypeAlias = Node | Iterable[Node] | Mapping[Any, Mapping[str, Any]]


class GraphSelector(AgentSelector):
    """A graph defines which agent may act after which: its nodes are agent ids and `END`.

    When agents have acted, all edges out of their nodes whose condition is true are followed; the agents that they
    lead to act next, at the same time. Attributes of an edge:

        when       a function of `selector.state`: the edge is followed if it returns a true value
        otherwise  True: the edge is followed if no other edge out of its node is
        label      the name of the edge in pictures and errors; by default the name of the function

    An edge without `when` and `otherwise` is always followed. Reaching `END` ends the episode, unless an agent acts
    next too. A node whose agent is not in the episode, because it has left or not joined yet, is passed: the edges
    out of it are followed at once.

    `selector.state` is a dict that the scenario reads and writes: `self.selector.state["agreed"] = True`.

    Every node must be an agent when the episode starts, or be named in `joins`, and every agent must be a node. An
    agent that only listens is a node that no edge leads to.

    Args:
        graph: a `networkx.DiGraph`, or a mapping from each node to its successors: one node, several, or a mapping
            from them to the attributes of their edges. It is copied once; all copies of the selector share this copy.
        start: the agent that acts first, or several that act first at the same time.
        state: the value of `selector.state` at the start of every episode; copied each time.
        joins: the agents that may be missing when an episode starts, because they join later.

    Raises:
        SelectorError: the graph is inconsistent. Also at the start of an episode: a node is no agent, or an agent no
            node; and during it: a condition raised, or no edge can be followed.
    """

    def __init__(
        self,
        graph: DiGraph | Mapping[Any, Successors],
        *,
        start: str | Iterable[str],
        state: Mapping[str, Any] | None = None,
        joins: str | Iterable[str] = (),
    ) -> None:
        self._graph = _read(graph)
        self._title = str(getattr(graph, "name", ""))
        self._name = f"the graph {self._title!r}" if self._title else "the graph"
        self._start = tuple(dict.fromkeys(_nodes(start)))
        self._joins = frozenset(_nodes(joins))
        self._first_state = copy.deepcopy(dict(state or {}))
        self.state: State = copy.deepcopy(self._first_state)
        if not self._start:
            raise SelectorError(f"{self._name} needs a start: the agent that acts first, or several")
        for node in (*self._start, *self._joins):
            if node not in self._graph or node is END:
                raise SelectorError(f"{node!r} is no agent in {self._name}; {did_you_mean(node, self._agents())}")

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self.state = copy.deepcopy(self._first_state)

    def advance(self) -> None:
        acted = self.acting
        if not acted:
            self._check_names()
        reached = self._reach([target for node in acted for target in self._follow(node)] if acted else self._start)
        self.acting = tuple(agent for agent in self.order if agent in reached)
        self.finished = bool(acted) and not self.acting and END in reached
        if not self.acting and not self.finished:
            absent = sorted(node for node in reached if isinstance(node, str))
            raise SelectorError(
                f"{self._name} leads to no agent {f'after {list(acted)}' if acted else 'at the start'}. "
                f"{'; '.join(map(self._explain, dict.fromkeys([*acted, *absent])))}. "
                f"Present are {self.order}, the state is {reprlib.repr(self.state)}. "
                f"Add an edge without a condition, or one with otherwise=True, to an agent or to END"
            )

    def add(self, agent: str) -> None:
        super().add(agent)
        self._check_agent(agent)

    def graph(self, agents: Sequence[str] = ()) -> DiGraph:
        edges = (
            (source, edge.target, {"label": edge.label, "dashed": edge.otherwise})
            for source, edges in self._graph.items()
            for edge in edges
        )
        return build_graph(edges, nodes=self._graph, start=self._start, title=self._title or "who acts after whom")

    def _reach(self, targets: Iterable[Node]) -> set[Node]:
        """These nodes, and those that edges lead to from nodes whose agents are not in the episode."""
        reached: set[Node] = set()
        pending = list(targets)
        while pending:
            node = pending.pop()
            if node not in reached:
                reached.add(node)
                if node is not END and node not in self.order:
                    pending += self._follow(node)
        return reached

    def _follow(self, node: Node) -> list[Node]:
        """The targets of the edges out of a node that are followed now."""
        edges = self._graph[node]
        followed = [edge.target for edge in edges if not edge.otherwise and self._holds(node, edge)]
        return followed or [edge.target for edge in edges if edge.otherwise]

    def _holds(self, node: Node, edge: _Edge) -> bool:
        if edge.when is None:
            return True
        try:
            return bool(edge.when(self.state))
        except Exception as error:
            raise SelectorError(
                f"in {self._name} the condition {edge.label!r} of the edge from {node!r} to {edge.target!r} raised "
                f"{type(error).__name__}: {error}. The state was {reprlib.repr(self.state)}; "
                f"GraphSelector(..., state=...) sets its first values"
            ) from error

    def _explain(self, node: Node) -> str:
        """A node's edges, and whether they are followed, for an error."""
        followed = self._follow(node)
        edges = [
            f"to {edge.target!r} ({edge.label or 'always'}: {'yes' if edge.target in followed else 'no'})"
            for edge in self._graph[node]
        ]
        return f"From {node!r}{'' if node in self.order else ', who is not there'}: {', '.join(edges) or 'no edges'}"

    def _agents(self) -> list[Node]:
        return [node for node in self._graph if node is not END]

    def _check_names(self) -> None:
        for agent in self.order:
            self._check_agent(agent)
        for node in self._agents():
            if node not in self.order and node not in self._joins:
                raise SelectorError(
                    f"the node {node!r} of {self._name} is no agent; {did_you_mean(node, self.order)} "
                    f"{'(Or END itself, not the text?) ' if node == 'END' else ''}"
                    f"Name agents that join later in GraphSelector(..., joins=...)"
                )

    def _check_agent(self, agent: str) -> None:
        if agent not in self._graph:
            raise SelectorError(
                f"the agent {agent!r} is no node of {self._name} and would never act; "
                f"{did_you_mean(agent, self._agents())} Let an agent that only listens be a node without edges"
            )


class _Edge(NamedTuple):
    target: Node
    when: Condition | None
    otherwise: bool
    label: str


class _Graph(dict[Node, tuple[_Edge, ...]]):
    """The edges out of each node. It never changes, so all copies of a selector share it."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _read(graph: Any) -> _Graph:
    """Copy a graph, and refuse one that is inconsistent."""
    adjacency = getattr(graph, "adj", graph)
    if adjacency is not graph and (graph.is_multigraph() or not graph.is_directed()):
        raise SelectorError(f"a turn order is a networkx.DiGraph, not a {type(graph).__name__}")
    if not isinstance(adjacency, Mapping):
        raise SelectorError(f"a turn order is a networkx.DiGraph or a mapping, not {graph!r}")
    edges: dict[Node, tuple[_Edge, ...]] = {}
    for source, targets in adjacency.items():
        attributes = targets if isinstance(targets, Mapping) else {target: {} for target in _nodes(targets)}
        edges[source] = tuple(_edge(source, target, attributes[target]) for target in _nodes(attributes))
        _check_edges(source, edges[source])
    for edge in [edge for some in edges.values() for edge in some]:
        edges.setdefault(edge.target, ())
    _nodes(edges)
    return _Graph(edges)


def _edge(source: Node, target: Node, attributes: Mapping[str, Any]) -> _Edge:
    where = f"the edge from {source!r} to {target!r}"
    if not isinstance(attributes, Mapping):
        raise SelectorError(f"{where} needs its attributes as a mapping, such as {{'when': ...}}, not {attributes!r}")
    known = ("when", "otherwise", "label")
    for name in attributes:
        if name not in known:
            raise SelectorError(f"{where} has the unknown attribute {name!r}; {did_you_mean(name, known)}")
    when, otherwise = attributes.get("when"), attributes.get("otherwise", False)
    if when is not None and not callable(when):
        raise SelectorError(f"{where} has when={when!r}, which must be a function of the selector's state")
    if when is not None and otherwise:
        raise SelectorError(f"{where} has both when and otherwise; give it one of them")
    name = getattr(when, "__name__", type(when).__name__) if when else "otherwise" if otherwise else ""
    return _Edge(target, when, bool(otherwise), str(attributes.get("label", "a condition" if "<" in name else name)))


def _check_edges(source: Node, edges: Sequence[_Edge]) -> None:
    if source is END and edges:
        raise SelectorError(f"END ends the episode, so no edge leads on from it, but one leads to {edges[0].target!r}")
    always = [edge.target for edge in edges if edge.when is None and not edge.otherwise]
    never = [edge.target for edge in edges if edge.otherwise]
    if always and never:
        raise SelectorError(
            f"the edge from {source!r} to {never[0]!r} has otherwise=True and can never be followed, "
            f"because the edge to {always[0]!r} is always followed; give that one a condition"
        )


def _nodes(given: object) -> tuple[Node, ...]:
    """One node, or several, as a tuple."""
    nodes = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for node in nodes:
        if not isinstance(node, Node):
            raise SelectorError(f"a node is an agent id, which is a text, or marl_gem.END, not {node!r}")
    return cast(tuple[Node, ...], nodes)
