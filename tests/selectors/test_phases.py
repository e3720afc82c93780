"""PhaseSelector."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem import AgentSelector
from marl_gem.errors import SelectorError
from marl_gem.selectors.phases import Phase, PhaseSelector
from tests.selectors.stories import (
    NIGHT_AND_DAY,
    Acted,
    Company,
    Driver,
    Story,
    Tell,
    both,
    changes,
    play_on,
    stories,
    through_env,
)

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
    members, together = frozenset[str](), True
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
    with pytest.raises(SelectorError, match=r"no phase has agents \('night': wolves\)\. Present are \['a', 'b'\]"):
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
