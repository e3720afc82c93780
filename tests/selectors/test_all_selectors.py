"""What holds for every selector, and pictures of turn orders."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marl_gem import AgentSelector, DirectedSelector, ParallelSelector, SequentialSelector
from marl_gem.errors import MissingPackage, ScenarioFault, SelectorError
from marl_gem.selectors.graph import END, GraphSelector
from marl_gem.selectors.phases import PhaseSelector
from marl_gem.selectors.picture import draw
from marl_gem.selectors.random import RandomSelector
from tests.selectors.stories import (
    NIGHT_AND_DAY,
    TRIO,
    Company,
    Story,
    always,
    by_hand,
    debate,
    play_on,
    through_env,
)

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
    with pytest.raises(SelectorError, match=r"names \[\] after step 0|is no agent|no phase has agents"):
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
    with pytest.raises(SelectorError, match="no agents to draw; reset the env first"):
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
