"""SequentialSelector, ParallelSelector, DirectedSelector and RandomSelector."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem import AgentSelector, DirectedSelector, ParallelSelector, SequentialSelector
from marl_gem.errors import EpisodeOver, SelectorError
from marl_gem.selectors.random import RandomSelector
from tests.selectors.stories import (
    Acted,
    Company,
    Driver,
    Story,
    both,
    changes,
    play_on,
    stories,
    through_env,
)

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
