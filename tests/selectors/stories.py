"""Stories of who joins and leaves, played with a selector by hand and through an env."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from hypothesis import strategies as st

from marl_gem import AgentSelector, MultiAgentEnv
from marl_gem.errors import SelectorError
from marl_gem.selectors.graph import END, GraphSelector
from marl_gem.selectors.phases import Phase

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
    present = list(story.agents)
    acted: Acted = []
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


def always(state: dict[str, Any]) -> bool:
    return True


NIGHT_AND_DAY = (Phase("night", group="wolves", together=True), Phase("day"), Phase("vote", together=True))
