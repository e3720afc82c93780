"""Turn orders under random joins and departures, against models short enough to be plainly right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem import AgentSelector, DirectedSelector, MultiAgentEnv, ParallelSelector, SequentialSelector

turns = st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.integers(0, 2)), max_size=30)


def drive(selector: AgentSelector, count: int, events: list[tuple[list[int], int]]) -> list[tuple[str, ...]]:
    """Who acts, turn for turn, as an env would drive the selector; ends when nobody is left."""
    present, total = [f"p{number}" for number in range(count)], count
    selector.reset(present)
    acted = [selector.acting]
    for leaving, joining in events:
        for _ in range(joining):
            present.append(f"p{total}")
            selector.add(f"p{total}")
            total += 1
        for place in leaving:
            if place < len(present):
                selector.remove(present.pop(place))
        if not present:
            break
        selector.advance()
        acted.append(selector.acting)
    return acted


def queue_model(count: int, events: list[tuple[list[int], int]]) -> list[tuple[str, ...]]:
    """One at a time: those who have yet to act this round, then those who have acted in it."""
    present, total = [f"p{number}" for number in range(count)], count
    waiting, done = present[1:], present[:1]
    acted = [(present[0],)]
    for leaving, joining in events:
        new = [f"p{number}" for number in range(total, total + joining)]
        present, waiting, total = present + new, waiting + new, total + joining
        for place in leaving:
            if place < len(present):
                gone = present.pop(place)
                waiting, done = [a for a in waiting if a != gone], [a for a in done if a != gone]
        if not present:
            break
        if not waiting:
            waiting, done = done, []
        done.append(waiting.pop(0))
        acted.append((done[-1],))
    return acted


@given(st.integers(1, 5), turns)
def test_sequential_is_a_queue(count: int, events: list[tuple[list[int], int]]) -> None:
    assert drive(SequentialSelector(), count, events) == queue_model(count, events)


def test_sequential_goes_round_and_round() -> None:
    assert drive(SequentialSelector(), 3, [([], 0)] * 4) == [("p0",), ("p1",), ("p2",), ("p0",), ("p1",)]


@pytest.mark.parametrize(
    ("leaving", "following"),
    [([0], "p2"), ([1], "p2"), ([2], "p3"), ([0, 0], "p2"), ([1, 1], "p3"), ([3, 2], "p0"), ([0, 0, 0], "p3")],
    ids=str,
)
def test_sequential_skips_nobody_when_others_leave_on_p1_s_turn(leaving: list[int], following: str) -> None:
    assert drive(SequentialSelector(), 4, [([], 0), (leaving, 0)])[-1] == (following,)


@given(st.integers(1, 5), turns)
def test_parallel_is_everybody(count: int, events: list[tuple[list[int], int]]) -> None:
    selector = ParallelSelector()
    acted = drive(selector, count, events)
    assert acted[0] == tuple(f"p{number}" for number in range(count))
    if selector.order:
        assert acted[-1] == tuple(selector.order)
    assert all(len(set(acting)) == len(acting) > 0 for acting in acted)


@given(st.integers(1, 5), turns, st.data())
def test_directed_is_who_was_named_less_who_left(
    count: int, events: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    selector, present, total = DirectedSelector(), [f"p{number}" for number in range(count)], count
    selector.reset(present)
    expected = [present[0]]
    for leaving, joining in events:
        assert selector.acting == tuple(expected)
        new = [f"p{number}" for number in range(total, total + joining)]
        present, total = present + new, total + joining
        for agent in new:
            selector.add(agent)
        if data.draw(st.booleans()) or not expected:
            expected = data.draw(st.lists(st.sampled_from(present), min_size=1, unique=True)) if present else []
            selector.direct(*expected)
        for place in leaving:
            if place < len(present):
                gone = present.pop(place)
                selector.remove(gone)
                expected = [agent for agent in expected if agent != gone]
        if not present:
            break
        selector.advance()
        assert selector.acting == tuple(expected)


@pytest.mark.parametrize("make", [SequentialSelector, ParallelSelector, DirectedSelector])
def test_a_selector_on_the_class_is_not_shared(make: Callable[[], AgentSelector]) -> None:
    class Pair(MultiAgentEnv):
        possible_agents = ("a", "b")
        selector = make()

        def observe(self, agent: str) -> str:
            return ""

        def _process_actions(self, actions: dict[str, str]) -> None:
            if isinstance(self.selector, DirectedSelector):
                self.selector.direct("b")

    one, other = Pair(), Pair()
    one.reset()
    other.reset()
    untouched = other.acting
    one.step(dict.fromkeys(one.acting, ""))
    one.selector.remove("a")
    assert other.acting == other.selector.acting == untouched
    assert one.selector is not other.selector is not Pair.selector is not one.selector
    assert not hasattr(Pair.selector, "order")


def test_a_fork_has_a_selector_of_its_own() -> None:
    class Trio(MultiAgentEnv):
        possible_agents = ("a", "b", "c")
        selector = SequentialSelector()

        def observe(self, agent: str) -> str:
            return ""

        def _process_actions(self, actions: dict[str, str]) -> None:
            pass

    env = Trio()
    env.reset()
    twin = env.fork()
    env.step({"a": ""})
    assert (env.acting, twin.acting) == (("b",), ("a",))
    twin.step({"a": ""})
    twin.step({"b": ""})
    assert (env.acting, twin.acting) == (("b",), ("c",))
