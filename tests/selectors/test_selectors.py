"""Turn orders under random joins and departures, against models short enough to be plainly right."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem import AgentSelector, DirectedSelector, MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.errors import EpisodeOver, MissingPackage, ScenarioFault, SelectorError
from marl_gem.selectors.graph import END, GraphSelector
from marl_gem.selectors.phases import Phase, PhaseSelector
from marl_gem.selectors.picture import draw
from marl_gem.selectors.random import RandomSelector

# A story says who joins and leaves; two drivers play it out, by hand and through an env


@dataclass
class Story:
    """Who is there at first, and who joins and leaves: while the scenario resets, and then in each step."""

    agents: list[str]
    steps: list[tuple[list[str], list[str]]]

    @property
    def casts(self) -> list[list[str]]:
        """Who is there at each turn, in the order in which they came; until nobody is."""
        casts, present = [], self.agents
        for joining, leaving in self.steps:
            present = [agent for agent in [*present, *joining] if agent not in leaving]
            casts.append(present)
        return list(itertools.takewhile(bool, casts))

    @property
    def everybody(self) -> list[str]:
        return self.agents + [agent for joining, _ in self.steps for agent in joining]


Tell = Callable[[AgentSelector, int], None]
"""What the scenario does to the selector: in its reset (0), in the first step (1), and so on."""

Acted = list[Any]
"""Who acted, turn for turn; then "end" if the order came to its end, "stuck" if it raised or named nobody."""


class Driver(Protocol):
    def __call__(self, selector: AgentSelector, story: Story, tell: Tell = ...) -> Acted: ...


def nothing(selector: AgentSelector, step: int) -> None:
    pass


def by_hand(selector: AgentSelector, story: Story, tell: Tell = nothing) -> Acted:
    selector.reset(story.agents)
    present, acted = list(story.agents), []
    try:
        for number, (joining, leaving) in enumerate(story.steps):
            for agent in joining:
                selector.add(agent)
            tell(selector, number)
            for agent in leaving:
                selector.remove(agent)
            present = [agent for agent in [*present, *joining] if agent not in leaving]
            if not present:
                break
            if number:
                selector.advance()
            if selector.finished:
                return [*acted, "end"]
            if not selector.acting:
                return [*acted, "stuck"]
            acted.append(selector.acting)
    except SelectorError:
        acted.append("stuck")
    return acted


class Company(MultiAgentEnv):
    """Plays out a story."""

    def __init__(self, selector: AgentSelector, story: Story, tell: Tell = nothing) -> None:
        self.selector, self.story, self.tell = selector, story, tell
        self.possible_agents = story.agents

    def observe(self, agent: str) -> str:
        return ""

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self._play()

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.terminations.update(dict.fromkeys(self._play(), True))

    def _play(self) -> list[str]:
        joining, leaving = self.story.steps[self.steps]
        for agent in joining:
            self.add_agent(agent)
        self.tell(self.selector, self.steps)
        return leaving


def through_env(selector: AgentSelector, story: Story, tell: Tell = nothing) -> Acted:
    env = Company(selector, story, tell)
    try:
        env.reset(seed=0)
    except SelectorError:
        return ["stuck"]
    return play_on(env)


def play_on(env: Company) -> Acted:
    acted: Acted = []
    while not env.done:
        acted.append(env.acting)
        if env.steps + 1 == len(env.story.steps):
            return acted
        try:
            env.step(dict.fromkeys(env.acting, ""))
        except SelectorError:
            return [*acted, "stuck"]
    return [*acted, "end"] if env.selector.finished else acted


both = pytest.mark.parametrize("drive", [by_hand, through_env])


@st.composite
def stories(draw: st.DrawFn, drive: Driver, most: int = 4) -> Story:
    """By hand also such that agents leave before the first turn, and in the step in which they join."""
    sudden = drive is by_hand
    names = (f"p{number}" for number in itertools.count())
    agents = list(itertools.islice(names, draw(st.integers(1, most))))
    story, present = Story(agents, []), list(agents)
    for number in range(draw(st.integers(1, 12))):
        joining = list(itertools.islice(names, draw(st.integers(0, 2)) if len(story.everybody) < 2 * most else 0))
        leaving = []
        if number or sudden:
            possible = present + joining if sudden else present
            leaving = draw(
                st.lists(st.sampled_from(possible), unique=True, max_size=3 if number else len(possible) - 1)
            )
        story.steps.append((joining, leaving))
        present = [agent for agent in [*present, *joining] if agent not in leaving]
        if not present:
            break
    return story


def changes(story: Story) -> list[tuple[list[str], list[str]]]:
    """Who was there a turn ago, and who is now."""
    return list(itertools.pairwise([[], *story.casts]))


# One after the other, all at once, whoever is named


@both
@given(data=st.data())
def test_sequential_is_a_queue(drive: Driver, data: st.DataObject) -> None:
    story = data.draw(stories(drive))
    waiting: list[str] = []
    expected = []
    for before, present in changes(story):
        newcomers = [agent for agent in present if agent not in before]
        waiting = [agent for agent in waiting if agent in present] + newcomers or list(present)
        expected.append((waiting.pop(0),))
    assert drive(SequentialSelector(), story) == expected


def test_sequential_goes_round_and_round() -> None:
    story = Story(["a", "b", "c"], [([], [])] * 5)
    assert through_env(SequentialSelector(), story) == [("a",), ("b",), ("c",), ("a",), ("b",)]


@pytest.mark.parametrize(
    ("leaving", "following"), [("a", "c"), ("b", "c"), ("c", "d"), ("ab", "c"), ("bc", "d"), ("dc", "a"), ("abc", "d")]
)
@both
def test_sequential_skips_nobody_when_others_leave_on_b_s_turn(drive: Driver, leaving: str, following: str) -> None:
    story = Story(["a", "b", "c", "d"], [([], []), ([], []), ([], list(leaving))])
    assert drive(SequentialSelector(), story) == [("a",), ("b",), (following,)]


@both
@given(data=st.data())
def test_parallel_is_everybody(drive: Driver, data: st.DataObject) -> None:
    story = data.draw(stories(drive))
    assert drive(ParallelSelector(), story) == [tuple(present) for present in story.casts]


@both
@given(data=st.data())
def test_directed_is_who_was_named_less_who_left(drive: Driver, data: st.DataObject) -> None:
    story = data.draw(stories(drive))
    named: dict[int, list[str]] = {}
    present = story.agents
    for number, (joining, leaving) in enumerate(story.steps):
        present = [*present, *joining]
        if data.draw(st.booleans()):
            named[number] = data.draw(st.lists(st.sampled_from(present), unique=True, min_size=1))
        present = [agent for agent in present if agent not in leaving]

    def direct(selector: AgentSelector, step: int) -> None:
        assert isinstance(selector, DirectedSelector)
        if step in named:
            selector.direct(*named[step])

    expected: Acted = []
    directed: list[str] | None = None
    for number, present in enumerate(story.casts):
        directed = named.get(number, directed)
        directed = directed and [agent for agent in directed if agent in present]
        expected.append(tuple(present[:1] if directed is None else directed) or "stuck")
        if expected[-1] == "stuck":
            break
    assert drive(DirectedSelector(), story, direct) == expected


def test_directed_takes_agents_one_by_one() -> None:
    def direct(selector: AgentSelector, step: int) -> None:
        selector.direct(["a", "b"])  # type: ignore[attr-defined]

    with pytest.raises(SelectorError, match=re.escape("such as direct('a', 'b'), not ['a', 'b']")):
        Company(DirectedSelector(), Story(["a", "b"], [([], [])]), direct).reset()


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ((), r"DirectedSelector names \[\] after step 2; it must name one or more of \['a', 'b'\]"),
        (("c",), r"names \['c'\] after step 2.*of \['a', 'b'\]"),
        (("z",), r"names \['z'\] after step 2"),
        (("a", "z"), r"names \['a', 'z'\]"),
        (("a", "a"), r"names \['a', 'a'\].*each once"),
    ],
    ids=str,
)
def test_nobody_the_departed_and_strangers_cannot_act(named: tuple[str, ...], complaint: str) -> None:
    def direct(selector: AgentSelector, step: int) -> None:
        if step == 2:
            selector.direct(*named)  # type: ignore[attr-defined]

    env = Company(DirectedSelector(), Story(["a", "b", "c"], [([], []), ([], ["c"]), ([], [])]), direct)
    env.reset()
    env.step({"a": ""})
    with pytest.raises(SelectorError, match=complaint):
        env.step({"a": ""})
    with pytest.raises(EpisodeOver, match="reset"):
        env.step({"a": ""})


# By lot


@both
@given(data=st.data(), seed=st.integers(0, 99))
def test_random_rounds_are_rounds(drive: Driver, data: st.DataObject, seed: int) -> None:
    story, selector = data.draw(stories(drive)), RandomSelector()
    selector.reseed(seed)
    waiting: set[str] = set()
    for (before, present), acting in zip(changes(story), drive(selector, story), strict=True):
        waiting = (waiting | (set(present) - set(before))) & set(present) or set(present)
        (agent,) = acting
        assert agent in waiting
        waiting.remove(agent)


@both
@given(data=st.data())
def test_random_without_rounds_is_anybody(drive: Driver, data: st.DataObject) -> None:
    story = data.draw(stories(drive))
    for present, acting in zip(story.casts, drive(RandomSelector(rounds=False), story), strict=True):
        assert len(acting) == 1 and acting[0] in present


def orders(rounds: bool, story: Story, count: int = 1200) -> list[Acted]:
    env, acted = Company(RandomSelector(rounds), story), []
    for seed in range(count):
        env.reset(seed=seed)
        acted.append(play_on(env))
    return acted


def about_equal(counts: Counter[Any], kinds: int, count: int = 1200) -> bool:
    return len(counts) == kinds and all(
        abs(number - count / kinds) < 0.35 * count / kinds for number in counts.values()
    )


def test_every_order_of_a_round_is_as_likely() -> None:
    story = Story(["a", "b"], [(["c"], []), *[([], [])] * 5])  # c joins while the scenario resets
    acted = orders(True, story)
    assert about_equal(Counter(tuple(turns[:3]) for turns in acted), 6)
    assert about_equal(Counter(tuple(turns[3:]) for turns in acted), 6)


def test_a_newcomer_comes_anywhere_among_those_still_to_come() -> None:
    story = Story(["a", "b", "c"], [([], []), (["x"], []), ([], []), ([], [])])
    acted = orders(True, story)
    assert about_equal(Counter(turns.index(("x",)) for turns in acted), 3)


def test_without_rounds_anybody_may_act_twice_in_a_row() -> None:
    acted = orders(False, Story(["a", "b"], [([], [])] * 2))
    assert about_equal(Counter(map(tuple, acted)), 4)


@pytest.mark.parametrize("rounds", [True, False])
def test_lots_are_drawn_from_the_env_s_seed_alone(rounds: bool) -> None:
    story = Story(list("abcde"), [([], [])] * 20)
    one, other = Company(RandomSelector(rounds), story), Company(RandomSelector(rounds), story)
    acted = set()
    for seed in range(10):
        one.reset(seed=seed)
        random.seed(seed)
        other.reset(seed=99)
        other.reset(seed=seed)
        other.rng.random()  # what the scenario draws does not matter
        turns = play_on(one)
        assert play_on(other) == turns
        acted.add(tuple(turns))
    assert len(acted) == 10


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


def debate(**given: Any) -> GraphSelector:
    def agreed(state: dict[str, Any]) -> bool:
        return bool(state["agreed"])

    graph = {
        "host": {"ann": {"otherwise": True}, "bob": {"otherwise": True}, END: {"when": agreed}},
        "ann": "host",
        "bob": ["host"],
    }
    return GraphSelector(**{"graph": graph, "start": "host", "state": {"agreed": False}} | given)


TRIO = ["host", "ann", "bob"]


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


def always(state: dict[str, Any]) -> bool:
    return True


def test_a_graph_can_be_pickled() -> None:
    selector = GraphSelector({"a": {"b": {"when": always}, END: {"otherwise": True}}, "b": "a"}, start="a")
    story = Story(["a", "b"], [([], [])] * 4)
    assert by_hand(pickle.loads(pickle.dumps(selector)), story) == by_hand(selector, story) == [("a",), ("b",)] * 2


MISTAKES = {
    "no graph": (lambda: GraphSelector(7, start="a"), "a networkx.DiGraph or a mapping, not by 7"),
    "undirected": (lambda: GraphSelector(nx.Graph([("a", "b")]), start="a"), "a networkx.DiGraph, not by a Graph"),
    "multi": (lambda: GraphSelector(nx.MultiDiGraph([("a", "b")]), start="a"), "not by a MultiDiGraph"),
    "no agent": (lambda: GraphSelector({"a": [1]}, start="a"), "a node is an agent id.*not 1"),
    "no agents": (lambda: GraphSelector({"a": 1}, start="a"), "a node is an agent id.*not 1"),
    "no agent, networkx": (lambda: GraphSelector(nx.path_graph(3, nx.DiGraph), start=0), "a node is an agent id.*not"),
    "nobody starts": (lambda: GraphSelector({"a": "a"}, start=()), "needs a start"),
    "a stranger starts": (lambda: GraphSelector({"ann": "ann"}, start="anne"), "'anne' is no agent in.*'ann'?"),
    "the end starts": (lambda: GraphSelector({"ann": END}, start=END), "END is no agent in"),
    "a stranger joins": (lambda: GraphSelector({"ann": END}, start="ann", joins="anne"), "'anne'.*did you mean 'ann'"),
    "after the end": (lambda: GraphSelector({"a": END, END: "a"}, start="a"), "END ends.*leads to 'a'"),
    "an attribute": (lambda: GraphSelector({"a": {"b": {"wehn": always}}}, start="a"), "'a' to 'b'.*'wehn'.*'when'"),
    "no attributes": (lambda: GraphSelector({"a": {"b": always}}, start="a"), "'a' to 'b' needs its attributes"),
    "no function": (lambda: GraphSelector({"a": {"b": {"when": True}}}, start="a"), "when=True.*must be a function"),
    "both": (lambda: GraphSelector({"a": {"b": {"when": always, "otherwise": True}}}, start="a"), "both"),
    "never": (lambda: GraphSelector({"a": {"b": {"otherwise": True}, "c": {}}}, start="a"), "'b'.*never.*'c' always"),
    "a bad name": (lambda: GraphSelector(nx.DiGraph(name="desk"), start="a"), "'a' is no agent in the graph 'desk'"),
    "no phases": (lambda: PhaseSelector(), "one phase at least"),
    "no phase": (lambda: PhaseSelector("night"), r"a phase is written Phase\('its name', ...\), not 'night'"),
    "no name": (lambda: PhaseSelector(Phase(7)), r"a phase is written Phase\('its name', ...\), not .*7"),
    "no rounds": (lambda: PhaseSelector(Phase("day", rounds=0)), "'day'.*rounds from 1 up, not 0"),
    "half a round": (lambda: PhaseSelector(Phase("day", rounds=1.5)), "'day'.*rounds from 1 up, not 1.5"),
    "no group": (lambda: PhaseSelector(Phase("day", group=3)), "group of the phase 'day'.*not 3"),
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
        "the graph 'desk' leads to nobody after ['ann']. From 'ann': to 'bob' (is open: yes), to END (is free: no); "
        "From 'bob', who is not there: to 'bob' (always: yes). Present are ['ann'], the state is "
        "{'busy': True, 'open': True}. Add an edge that always holds, or one with otherwise=True, to an agent or to END"
    )


def test_a_condition_that_raises_says_which() -> None:
    env = Company(debate(state={}), Story(TRIO, [([], [])] * 2))
    env.reset()
    with pytest.raises(
        SelectorError, match=r"'agreed' of the edge from 'host' to END raised KeyError: 'agreed'.*state="
    ):
        env.step({"host": ""})


# Phases


def setting(groups: Mapping[str, Any]) -> Tell:
    """A scenario that sets these groups in its reset and in every step."""
    return lambda selector, step: selector.groups.update(groups)  # type: ignore[attr-defined]


def everybody_or_some(story: Story) -> st.SearchStrategy[list[tuple[frozenset[str], bool, int]]]:
    some = st.sets(st.sampled_from(story.everybody)).map(frozenset)
    phases = st.lists(st.tuples(some, st.booleans(), st.integers(1, 2)), max_size=3)
    everybody = st.tuples(st.just(frozenset(story.everybody)), st.booleans(), st.integers(1, 2))
    return st.tuples(phases, everybody, phases).map(lambda parts: [*parts[0], parts[1], *parts[2]])


@both
@given(data=st.data(), cycle=st.booleans())
def test_phases_are_gone_through(drive: Driver, data: st.DataObject, cycle: bool) -> None:
    story = data.draw(stories(drive))
    drawn = data.draw(everybody_or_some(story))
    named = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))

    def tell(selector: AgentSelector, step: int) -> None:
        if step == 0:
            groups = {f"group {place}": members for place, (members, _, _) in enumerate(drawn)}
            selector.groups.update(groups)  # type: ignore[attr-defined]

    schedule = [(members, together) for members, together, rounds in drawn for _ in range(rounds)]
    rounds_to_come = itertools.cycle(schedule) if cycle else iter(schedule)
    members, together = frozenset(), True
    waiting: list[str] = []
    expected: Acted = []
    for before, present in changes(story):
        newcomers = [agent for agent in present if agent not in before and agent in members and not together]
        waiting = [agent for agent in waiting if agent in present] + newcomers
        while not waiting and (following := next(rounds_to_come, None)):
            members, together = following
            waiting = [agent for agent in present if agent in members]
        if not waiting:
            expected.append("end")
            break
        expected.append(tuple(waiting if together else waiting[:1]))
        waiting = [] if together else waiting[1:]
    phases = [
        Phase(f"phase {place}", f"group {place}" if name else members, together, rounds)
        for place, ((members, together, rounds), name) in enumerate(zip(drawn, named, strict=True))
    ]
    assert drive(PhaseSelector(*phases, cycle=cycle, joins=story.everybody), story, tell) == expected


NIGHT_AND_DAY = (Phase("night", group="wolves", together=True), Phase("day"), Phase("vote", together=True))


def phase_log(
    phases: Sequence[Phase], story: Story, *, groups: Mapping[str, Collection[str]] | None = None, **given: Any
) -> list[Any]:
    """Who acted in which phase; a star where the step ended the phase."""
    log: list[Any] = []
    begin: Mapping[int, str] = given.pop("begin", {})

    def tell(selector: AgentSelector, step: int) -> None:
        assert isinstance(selector, PhaseSelector)
        if step in begin:
            selector.begin(begin[step])
        if step:
            log.append(selector.phase + " " + "+".join(selector.acting) + "*" * selector.phase_ends)
        elif groups:
            selector.groups.update(groups)

    outcome = through_env(PhaseSelector(*phases, **given), story, tell)[-1]
    return [*log, outcome] if isinstance(outcome, str) else log


def test_night_and_day() -> None:
    log = phase_log(NIGHT_AND_DAY, Story(list("abcd"), [([], [])] * 9), groups={"wolves": ["c", "a"]})
    assert log == ["night c+a*", "day a", "day b", "day c", "day d*", "vote a+b+c+d*", "night c+a*", "day a"]


def test_eliminations_mid_phase() -> None:
    steps = [[], ["b"], [], ["a", "d"], [], []]
    log = phase_log(NIGHT_AND_DAY, Story(list("abcde"), [([], leaving) for leaving in steps]), groups={"wolves": {"a"}})
    assert log == ["night a*", "day a", "day c", "day e*", "vote c+e*"]


def test_with_the_last_wolf_the_night_goes() -> None:
    log = phase_log(
        NIGHT_AND_DAY,
        Story(list("ab"), [([], leaving) for leaving in ([], ["a"], [], [], [])]),
        groups={"wolves": {"a"}},
    )
    assert log == ["night a*", "day b*", "vote b*", "day b*"]


def test_rounds_of_a_phase() -> None:
    phases = (Phase("talk", rounds=2), Phase("vote", together=True, rounds=2))
    log = phase_log(phases, Story(list("ab"), [([], []), ([], []), (["c"], []), *[([], [])] * 9]), cycle=False)
    assert log == ["talk a", "talk b", "talk c", "talk a", "talk b", "talk c*", "vote a+b+c", "vote a+b+c*", "end"]


def test_who_joins_a_step_that_all_take_together_acts_from_the_next_round_on() -> None:
    phases = (Phase("vote", together=True, rounds=2), Phase("talk"))
    log = phase_log(phases, Story(["a"], [([], []), (["b"], []), (["c"], []), *[([], [])] * 3]))
    assert log == ["vote a", "vote a+b*", "talk a", "talk b", "talk c*"]


def test_begin_goes_to_another_phase() -> None:
    story = Story(list("ab"), [([], [])] * 9)
    log = phase_log(NIGHT_AND_DAY, story, groups={"wolves": []}, begin={0: "vote", 2: "vote", 5: "day"})
    assert log == ["vote a+b*", "day a*", "vote a+b*", "day a", "day b*", "day a", "day b*", "vote a+b*"]


def test_groups_may_change_at_any_time() -> None:
    def tell(selector: AgentSelector, step: int) -> None:
        assert isinstance(selector, PhaseSelector)
        selector.groups["speakers"] = [["c", "a"], ["a", "b", "c"], ["a", "b", "c"], ["b"], ["c", "b"], []][step]

    selector = PhaseSelector(Phase("talk", group="speakers"), Phase("rest", group=("a", "b")))
    acted = through_env(selector, Story(list("abc"), [([], [])] * 6), tell)
    assert acted == [("c",), ("a",), ("b",), ("a",), ("b",), ("a",)]


def test_who_is_still_waiting() -> None:
    seen = []

    def tell(selector: AgentSelector, step: int) -> None:
        assert isinstance(selector, PhaseSelector)
        if step:
            seen.append(selector.waiting)

    through_env(PhaseSelector(Phase("talk"), Phase("vote", together=True)), Story(list("abc"), [([], [])] * 5), tell)
    assert seen == [("b", "c"), ("c",), (), ()]


def test_groups_do_not_outlive_their_episode() -> None:
    groups = {"wolves": ["a"]}
    env = Company(PhaseSelector(*NIGHT_AND_DAY), Story(["a", "b"], [([], [])]), setting(groups))
    env.reset()
    del groups["wolves"]
    with pytest.raises(SelectorError, match="'wolves', which is not set"):
        env.reset()


@pytest.mark.parametrize(
    ("groups", "complaint"),
    [
        ({}, r"phase 'night' is for the group 'wolves', which is not set; there are none\..*groups\['wolves'\] = "),
        ({"wolfs": ["ann"]}, r"'wolves', which is not set; did you mean 'wolfs'\?"),
        ({"wolves": ["anne"]}, "'anne' in the group of the phase 'night' never was.*did you mean 'ann'"),
        ({"wolves": [["ann"]]}, r"\['ann'\] in the group of the phase 'night' never was"),
        ({"wolves": "ann"}, "the group 'wolves' must be a collection of agent ids, not 'ann'"),
        ({"wolves": None}, "the group 'wolves' must be a collection of agent ids, not None"),
    ],
    ids=str,
)
def test_groups_that_make_no_sense_are_told_at_the_start(groups: dict[str, Any], complaint: str) -> None:
    phases = (NIGHT_AND_DAY[1], NIGHT_AND_DAY[0])  # also if it is not the first phase
    with pytest.raises(SelectorError, match=complaint):
        Company(PhaseSelector(*phases), Story(["ann", "bob"], [([], [])]), setting(groups)).reset()


@pytest.mark.parametrize("cycle", [True, False])
def test_phases_that_are_all_empty_at_the_start(cycle: bool) -> None:
    tell = {"wolves": list[str]()}
    env = Company(PhaseSelector(NIGHT_AND_DAY[0], cycle=cycle), Story(["a", "b"], [([], [])]), setting(tell))
    with pytest.raises(SelectorError, match=r"nobody in any phase \('night': wolves\)\. Present are \['a', 'b'\]"):
        env.reset()


def test_phases_that_are_all_empty_later() -> None:
    acted = []
    for cycle in (True, False):
        wolves = {"wolves": ["a"]}
        env = Company(PhaseSelector(NIGHT_AND_DAY[0], cycle=cycle), Story(["a", "b"], [([], [])] * 3), setting(wolves))
        env.reset()
        wolves["wolves"] = []
        acted.append(play_on(env))
    assert acted == [[("a",), "stuck"], [("a",), "end"]]


def test_a_phase_that_is_unknown_is_an_error_of_the_turn_order() -> None:
    story = Story(["a", "b"], [([], [])] * 2)
    with pytest.raises(SelectorError, match="no phase 'dya'; did you mean 'day'"):
        Company(PhaseSelector(NIGHT_AND_DAY[1]), story, lambda selector, step: selector.begin("dya")).reset()  # type: ignore[attr-defined]


# What holds for all of them


def listed(selector: AgentSelector, step: int) -> None:
    if isinstance(selector, PhaseSelector):
        selector.groups.setdefault("wolves", ["a", "b"])


SELECTORS: dict[str, Callable[[], AgentSelector]] = {
    "sequential": SequentialSelector,
    "parallel": ParallelSelector,
    "directed": DirectedSelector,
    "random": RandomSelector,
    "anybody": lambda: RandomSelector(rounds=False),
    "graph": lambda: GraphSelector({"a": ["b", "c"], "b": ["a", "d"], "c": "a", "d": "b"}, start="a", joins="d"),
    "phases": lambda: PhaseSelector(*NIGHT_AND_DAY),
}
every_selector = pytest.mark.parametrize("make", SELECTORS.values(), ids=SELECTORS)
EVENTFUL = Story(list("abc"), [([], []), ([], []), (["d"], ["c"]), ([], []), ([], ["b"]), ([], []), ([], [])])


@every_selector
def test_a_selector_on_the_class_is_not_shared(make: Callable[[], AgentSelector]) -> None:
    class Shared(Company):
        selector = make()

        def __init__(self) -> None:
            self.story, self.tell, self.possible_agents = EVENTFUL, listed, EVENTFUL.agents

    one, other = Shared(), Shared()
    one.reset(seed=1)
    other.reset(seed=1)
    alone = play_on(one.fork())
    play_on(one)
    assert play_on(other) == alone
    assert one.selector is not other.selector is not Shared.selector is not one.selector
    assert not hasattr(Shared.selector, "order")


@every_selector
def test_a_fork_goes_its_own_way(make: Callable[[], AgentSelector]) -> None:
    env = Company(make(), EVENTFUL, listed)
    env.reset(seed=3)
    whole = play_on(env.fork())
    for turn in range(len(whole)):
        assert play_on(env.fork()) == whole[turn:]
        twin = env.fork()
        twin.story = Story(twin.story.agents, [*twin.story.steps[: twin.steps + 1], *[([], [])] * 9])
        play_on(twin)
        assert env.acting == whole[turn]
        if turn + 1 < len(whole):
            env.step(dict.fromkeys(env.acting, ""))


@every_selector
def test_same_seed_same_order(make: Callable[[], AgentSelector]) -> None:
    env, other = Company(make(), EVENTFUL, listed), Company(make(), EVENTFUL, listed)
    env.reset(seed=1)
    play_on(env)
    for each in (env, other):
        each.reset(seed=2)
    assert play_on(env) == play_on(other)


@every_selector
def test_everybody_leaves_and_somebody_joins(make: Callable[[], AgentSelector]) -> None:
    story = Story(list("abc"), [([], []), (["d"], ["a", "b", "c"]), ([], [])])
    acted = through_env(make(), story, listed)
    if make is DirectedSelector:
        assert acted == [("a",), ("d",), ("d",)]
    assert acted[1:] == [("d",), ("d",)]


@every_selector
def test_with_nobody_there_the_env_says_so(make: Callable[[], AgentSelector]) -> None:
    selector = make()
    env = Company(
        selector, Story([], [([], [])]), lambda selector, step: getattr(selector, "groups", {}).update(wolves=[])
    )
    with pytest.raises(SelectorError, match=r"names \[\] after step 0|is no agent|nobody in any phase"):
        env.reset()


def test_other_errors_of_a_selector_are_the_scenario_s() -> None:
    class Broken(SequentialSelector):
        def advance(self) -> None:
            super().advance()
            assert self.acting != ("b",), "oops"

    env = Company(Broken(), EVENTFUL)
    env.reset(seed=5)
    with pytest.raises(ScenarioFault, match=r"selector\.advance raised AssertionError at step 1 .* seed 5: oops"):
        env.step({"a": ""})


def test_an_order_of_one_s_own_needs_advance_alone() -> None:
    class Backwards(AgentSelector):
        def advance(self) -> None:
            after = self.order.index(self.acting[0]) - 1 if self.acting else -1
            self.acting = (self.order[after],)

    story = Story(["a", "b"], [(["c"], []), *[([], [])] * 3])
    assert by_hand(Backwards(), story) == through_env(Backwards(), story) == [("c",), ("b",), ("a",), ("c",)]


def test_an_order_may_come_to_its_end_in_every_episode() -> None:
    class Once(SequentialSelector):
        def advance(self) -> None:
            self.finished = self.acting == ("b",)
            super().advance()

    env = Company(Once(), Story(["a", "b"], [([], [])] * 4))
    for _ in range(2):
        env.reset()
        assert play_on(env) == [("a",), ("b",), "end"]


# Pictures


@every_selector
def test_a_picture_is_written(make: Callable[[], AgentSelector], tmp_path: Path) -> None:
    path = tmp_path / "turns.png"
    draw(make(), path, agents=["a", "b", "c"])
    assert path.read_bytes().startswith(b"\x89PNG")
    env = Company(make(), EVENTFUL, listed)
    env.reset(seed=1)
    untouched = play_on(env.fork())
    draw(env.selector, str(path))
    assert play_on(env) == untouched


def test_a_picture_of_nobody(tmp_path: Path) -> None:
    with pytest.raises(SelectorError, match="nobody to draw; reset the env first"):
        draw(SequentialSelector(), tmp_path / "turns.png")


def test_names_of_any_kind_can_be_drawn(tmp_path: Path) -> None:
    names = ["$x^2$", "a\nb", "", "\ud800", "a name " * 20, "<b>&", "\\frac", "%s {0}"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(SequentialSelector(), tmp_path / "turns.png", agents=names)
        draw(
            GraphSelector({name: {END: {"when": always, "label": name}} for name in names}, start=names[0]),
            tmp_path / "g.png",
        )


def edges(selector: AgentSelector, agents: str = "") -> list[Any]:
    return [(a, b, *looks.values()) for a, b, looks in selector.graph(list(agents)).edges(data=True)]


def test_what_the_graphs_say() -> None:
    assert edges(SequentialSelector(), "abc") == [("a", "b"), ("b", "c"), ("c", "a")]
    assert edges(ParallelSelector(), "ab") == [("everybody", "everybody")]
    assert edges(RandomSelector(), "ab") == [("a", "b"), ("b", "a")]
    assert edges(PhaseSelector(*NIGHT_AND_DAY)) == [("night", "day"), ("day", "vote"), ("vote", "night")]
    assert edges(PhaseSelector(*NIGHT_AND_DAY[:2], cycle=False)) == [("night", "day"), ("day", END)]
    assert edges(debate()) == [
        ("host", "ann", "otherwise", True),
        ("host", "bob", "otherwise", True),
        ("host", END, "agreed", False),
        ("ann", "host", "", False),
        ("bob", "host", "", False),
    ]
    assert PhaseSelector(*NIGHT_AND_DAY).graph().nodes["night"] == {"start": True, "note": "wolves\ntogether"}


def test_pyplot_is_left_alone(tmp_path: Path) -> None:
    code = (
        "import sys; from marl_gem import SequentialSelector; from marl_gem.selectors.picture import draw;"
        "assert 'matplotlib' not in sys.modules; draw(SequentialSelector(), sys.argv[1], agents=['a', 'b']);"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "turns.png")], check=True)


@pytest.mark.parametrize("package", ["networkx", "matplotlib"])
def test_without_the_packages_orders_work_and_pictures_say_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package] + [package]:
        monkeypatch.setitem(sys.modules, name, None)
    assert through_env(debate(), Story(TRIO, [([], [])] * 2)) == [("host",), ("ann", "bob")]
    with pytest.raises(MissingPackage, match=rf"'{package}'.*pip install 'marl-gem\[graph\]'"):
        draw(debate(), tmp_path / "turns.png")
