"""GraphSelector."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem import AgentSelector, MultiAgentEnv
from marl_gem.errors import EpisodeOver, SelectorError
from marl_gem.selectors.graph import END, GraphSelector
from marl_gem.selectors.phases import Phase, PhaseSelector
from tests.selectors.stories import (
    TRIO,
    Acted,
    Company,
    Driver,
    Story,
    always,
    both,
    by_hand,
    debate,
    play_on,
    stories,
    through_env,
)

# A graph

Ways = dict[Any, list[tuple[Any, Any]]]
"""Edges with what they hang on: None, "otherwise", or the number of a bit of the state."""


@st.composite
def ways(draw: st.DrawFn, nodes: Sequence[str]) -> Ways:
    made: Ways = {}
    for node in nodes:
        targets = draw(st.lists(st.sampled_from([*nodes, END]), unique=True, max_size=3))
        conditions = [draw(st.sampled_from([None, "otherwise", 0, 1, 2])) for _ in targets]
        if None in conditions:
            conditions = [None if condition == "otherwise" else condition for condition in conditions]
        made[node] = list(zip(targets, conditions, strict=True))
    return made


def as_graph(made: Ways) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(made)
    for node, edges in made.items():
        for target, condition in edges:
            if condition is None:
                graph.add_edge(node, target)
            elif condition == "otherwise":
                graph.add_edge(node, target, otherwise=True)
            else:
                graph.add_edge(node, target, when=lambda state, bit=condition: state["bits"] >> bit & 1)
    return graph


def led_to(made: Ways, bits: int, present: list[str], node: Any, passed: frozenset[Any] = frozenset()) -> set[Any]:
    """Who acts, or END, if the turn comes to this node."""
    if node in present or node is END:
        return {node}
    return set().union(
        *(led_to(made, bits, present, after, passed | {node}) for after in afters(made, bits, node) - passed)
    )


def afters(made: Ways, bits: int, node: Any) -> set[Any]:
    held = {target for target, on in made[node] if on is None or (on != "otherwise" and bits >> on & 1)}
    return held or {target for target, on in made[node] if on == "otherwise"}


@both
@given(data=st.data())
def test_a_graph_is_followed(drive: Driver, data: st.DataObject) -> None:
    story = data.draw(stories(drive, most=3))
    made = data.draw(ways(story.everybody))
    start = data.draw(st.lists(st.sampled_from(story.everybody), min_size=1, max_size=2, unique=True))
    bits = data.draw(st.lists(st.integers(0, 7), min_size=len(story.steps), max_size=len(story.steps)))
    late = [agent for agent in story.everybody if agent not in story.casts[0]]

    def tell(selector: AgentSelector, step: int) -> None:
        selector.state["bits"] = bits[step]  # type: ignore[attr-defined]

    expected: Acted = []
    targets: set[Any] = set(start)
    for number, present in enumerate(story.casts):
        if number:
            targets = {after for agent in expected[-1] for after in afters(made, bits[number], agent)}
        reached: set[Any] = set().union(*(led_to(made, bits[number], present, target) for target in targets))
        acting = tuple(agent for agent in present if agent in reached)
        expected.append(acting or ("end" if END in reached and number else "stuck"))
        if not acting:
            break
    selector = GraphSelector(as_graph(made), start=start, state={"bits": None}, joins=late)
    assert drive(selector, story, tell) == expected


def test_a_conversation_comes_to_its_end() -> None:
    def tell(selector: AgentSelector, step: int) -> None:
        selector.state["agreed"] = step == 3  # type: ignore[attr-defined]

    env = Company(debate(), Story(TRIO, [([], [])] * 9), tell)
    for _ in range(2):  # and begins anew
        env.reset(seed=0)
        assert play_on(env) == [("host",), ("ann", "bob"), ("host",), "end"]
        assert env.done and env.terminations == dict.fromkeys(TRIO, True)
        assert env.infos["ann"] == {"final_observation": ""}


def test_the_state_starts_anew_every_episode() -> None:
    seen = []

    def tell(selector: AgentSelector, step: int) -> None:
        seen.append(copy.deepcopy(selector.state))  # type: ignore[attr-defined]
        selector.state["said"].append(step)  # type: ignore[attr-defined]

    given = {"agreed": False, "said": []}
    env = Company(debate(state=given), Story(TRIO, [([], [])] * 3), tell)
    for _ in range(2):
        env.reset(seed=0)
        play_on(env)
    assert [state["said"] for state in seen] == [[], [0], [0, 1]] * 2
    assert given == {"agreed": False, "said": []}


def test_end_waits_for_those_who_still_act() -> None:
    selector = GraphSelector({"a": ["b", END], "b": END}, start="a")
    assert through_env(selector, Story(["a", "b"], [([], [])] * 5)) == [("a",), ("b",), "end"]


def test_a_graph_is_copied() -> None:
    graph = nx.DiGraph([("a", "b"), ("b", "a")])
    selector = GraphSelector(graph, start="a")
    graph.remove_edge("a", "b")
    graph["b"]["a"]["when"] = lambda state: False
    assert through_env(selector, Story(["a", "b"], [([], [])] * 3)) == [("a",), ("b",), ("a",)]


class Uncopyable:
    """A condition that stands for a graph too large to have many copies of."""

    def __call__(self, state: dict[str, Any]) -> bool:
        return bool(state["on"])

    def __deepcopy__(self, memo: object) -> None:
        raise AssertionError("the graph is being copied")


def test_all_copies_share_the_graph_and_none_the_state() -> None:
    class Pair(MultiAgentEnv):
        possible_agents = ("a", "b")
        selector = GraphSelector(
            {"a": {"b": {"when": Uncopyable()}, "a": {"otherwise": True}}, "b": "a"}, start="a", state={"on": 0}
        )

        def observe(self, agent: str) -> str:
            return ""

        def _process_actions(self, actions: dict[str, str]) -> None:
            pass

    env = Pair()
    env.reset()
    twin = env.fork()
    twin.selector.state["on"] = 1
    for each in (env, twin):
        each.step({"a": ""})
    assert (env.acting, twin.acting) == (("a",), ("b",))
    assert env.selector.state == Pair.selector.state == {"on": 0}


def test_a_graph_can_be_pickled() -> None:
    selector = GraphSelector({"a": {"b": {"when": always}, END: {"otherwise": True}}, "b": "a"}, start="a")
    story = Story(["a", "b"], [([], [])] * 4)
    assert by_hand(pickle.loads(pickle.dumps(selector)), story) == by_hand(selector, story) == [("a",), ("b",)] * 2


MISTAKES = {
    "no graph": (lambda: GraphSelector(7, start="a"), "a networkx.DiGraph or a mapping, not 7"),
    "undirected": (lambda: GraphSelector(nx.Graph([("a", "b")]), start="a"), "a networkx.DiGraph, not a Graph"),
    "multi": (lambda: GraphSelector(nx.MultiDiGraph([("a", "b")]), start="a"), "not a MultiDiGraph"),
    "no agent": (lambda: GraphSelector({"a": [1]}, start="a"), "a node is an agent id.*not 1"),
    "no agents": (lambda: GraphSelector({"a": 1}, start="a"), "a node is an agent id.*not 1"),
    "no agent, networkx": (lambda: GraphSelector(nx.path_graph(3, nx.DiGraph), start=0), "a node is an agent id.*not"),  # type: ignore[arg-type]
    "nobody starts": (lambda: GraphSelector({"a": "a"}, start=()), "needs a start"),
    "a stranger starts": (lambda: GraphSelector({"ann": "ann"}, start="anne"), "'anne' is no agent in.*'ann'?"),
    "the end starts": (lambda: GraphSelector({"ann": END}, start=END), "END is no agent in"),  # type: ignore[arg-type]
    "a stranger joins": (lambda: GraphSelector({"ann": END}, start="ann", joins="anne"), "'anne'.*did you mean 'ann'"),
    "after the end": (lambda: GraphSelector({"a": END, END: "a"}, start="a"), "END ends.*leads to 'a'"),
    "an attribute": (lambda: GraphSelector({"a": {"b": {"wehn": always}}}, start="a"), "'a' to 'b'.*'wehn'.*'when'"),
    "no attributes": (lambda: GraphSelector({"a": {"b": always}}, start="a"), "'a' to 'b' needs its attributes"),
    "no function": (lambda: GraphSelector({"a": {"b": {"when": True}}}, start="a"), "when=True.*must be a function"),
    "both": (lambda: GraphSelector({"a": {"b": {"when": always, "otherwise": True}}}, start="a"), "both"),
    "never": (
        lambda: GraphSelector({"a": {"b": {"otherwise": True}, "c": {}}}, start="a"),
        "'b'.*never.*'c' is alw",
    ),
    "a bad name": (lambda: GraphSelector(nx.DiGraph(name="desk"), start="a"), "'a' is no agent in the graph 'desk'"),
    "no phases": (lambda: PhaseSelector(), "one phase at least"),
    "no phase": (lambda: PhaseSelector("night"), r"a phase is Phase\('its name', ...\), not 'night'"),  # type: ignore[arg-type]
    "no name": (lambda: PhaseSelector(Phase(7)), r"a phase is Phase\('its name', ...\), not .*7"),  # type: ignore[arg-type]
    "no rounds": (lambda: PhaseSelector(Phase("day", rounds=0)), "'day'.*rounds from 1 up, not 0"),
    "half a round": (lambda: PhaseSelector(Phase("day", rounds=1.5)), "'day'.*rounds from 1 up, not 1.5"),  # type: ignore[arg-type]
    "no group": (lambda: PhaseSelector(Phase("day", group=3)), "group of the phase 'day'.*not 3"),  # type: ignore[arg-type]
    "twice": (lambda: PhaseSelector(Phase("day"), Phase("day")), "two phases are called 'day'"),
    "no such phase": (lambda: PhaseSelector(Phase("night")).begin("nigth"), "no phase 'nigth'; did you mean 'night'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_at_once(mistake: str) -> None:
    make, complaint = MISTAKES[mistake]
    with pytest.raises(SelectorError, match=complaint):
        make()


@pytest.mark.parametrize(
    ("graph", "agents", "complaint"),
    [
        ({"ann": "bobb", "bobb": "ann"}, ["ann", "bob"], "the agent 'bob' is no node.*did you mean 'bobb'"),
        ({"ann": ["bob", "cat"], "bob": "ann"}, ["ann", "bob"], r"the node 'cat'.*is no agent.*joins="),
        ({"ann": ["bob", "bobb"], "bob": "ann"}, ["ann", "bob"], r"the node 'bobb'.*did you mean 'bob'\?"),
        ({"ann": ["bob", "END"], "bob": "ann"}, ["ann", "bob"], r"the node 'END'.*END itself"),
        ({"ann": "ann"}, ["ann", "bob"], "'bob' is no node.*would never act"),
    ],
    ids=str,
)
def test_names_that_do_not_fit_are_told_at_the_start(graph: Any, agents: list[str], complaint: str) -> None:
    for early in (agents, []):
        story = Story(early, [([agent for agent in agents if agent not in early], [])])
        with pytest.raises(SelectorError, match=complaint):
            Company(GraphSelector(graph, start="ann"), story).reset()


def test_an_agent_that_is_no_node_cannot_join() -> None:
    env = Company(debate(), Story(TRIO, [([], []), (["bobby"], [])]))
    env.reset()
    with pytest.raises(SelectorError, match=r"'bobby' is no node.*did you mean 'bob'"):
        env.step({"host": ""})
    with pytest.raises(EpisodeOver):
        env.step({"host": ""})


def test_an_agent_may_only_listen() -> None:
    selector = GraphSelector({"a": "a", "audience": []}, start="a")
    assert through_env(selector, Story(["a", "audience"], [([], [])] * 3)) == [("a",)] * 3


def test_where_a_graph_leads_on_to_nobody_it_says_why() -> None:
    graph = nx.DiGraph(name="desk")
    graph.add_edge("ann", "bob", when=lambda state: state["open"], label="is open")
    graph.add_edge("ann", END, when=lambda state: not state["busy"], label="is free")
    graph.add_edge("bob", "bob")
    env = Company(
        GraphSelector(graph, start="ann", state={"open": True, "busy": True}),
        Story(["ann", "bob"], [([], []), ([], ["bob"])]),
    )
    env.reset()
    with pytest.raises(SelectorError) as caught:
        env.step({"ann": ""})
    assert str(caught.value) == (
        "the graph 'desk' leads to no agent after ['ann']. From 'ann': to 'bob' (is open: yes), to END (is free: no); "
        "From 'bob', who is not there: to 'bob' (always: yes). Present are ['ann'], the state is "
        "{'busy': True, 'open': True}. Add an edge without a condition, or one with otherwise=True, to an agent or "
        "to END"
    )


def test_a_condition_that_raises_says_which() -> None:
    env = Company(debate(state={}), Story(TRIO, [([], [])] * 2))
    env.reset()
    with pytest.raises(
        SelectorError, match=r"'agreed' of the edge from 'host' to END raised KeyError: 'agreed'.*state="
    ):
        env.step({"host": ""})
