"""Phases one after the other, as in games with night and day.

    selector = PhaseSelector(Phase("night", group="wolves", together=True), Phase("talk"), Phase("vote", together=True))

The scenario sets the groups in its `_reset`: `self.selector.groups["wolves"] = [...]`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import Any

from marl_gem.errors import SelectorError
from marl_gem.selectors.base import AgentSelector, DiGraph, build_graph, did_you_mean
from marl_gem.selectors.graph import END


@dataclass(frozen=True)
class Phase:
    """A phase: its name, its agents and how they act."""

    name: str
    """Unique among the phases."""

    group: str | Collection[str] | None = None
    """The agents of the phase: a name in `selector.groups`, a collection of agent ids, or None for all agents.

    They act in the order of the collection; if it is a set, in the order of the episode's agents.
    """

    together: bool = False
    """Whether they act at the same time, in one step; otherwise they act one at a time."""

    rounds: int = 1
    """In each round every agent of the phase acts once; from 1 up."""


class PhaseSelector(AgentSelector):
    """Phases one after the other; the first follows the last, or the episode ends after the last.

    A scenario sets groups in its `_reset`, and may change them at any time:
    `self.selector.groups["wolves"] = ["ann", "bob"]`. Every group that a phase names must be set there; it may be
    empty. A group may hold agents that have left.

    When agents leave, nobody is skipped and nobody acts twice in a round. An agent that joins while agents act one at
    a time acts in the current round, last unless the group has another order; one that joins in a step of a phase
    whose agents act together acts from the next round on. A phase without agents is skipped.

    Args:
        phases: at least one, with different names.
        cycle: whether the first phase follows the last.
        joins: the agents that groups may name before they have joined.

    Raises:
        SelectorError: the phases are inconsistent. Also during an episode: a phase's group is not set or names unknown
            agents, or all phases are empty.
    """

    def __init__(self, *phases: Phase, cycle: bool = True, joins: Collection[str] = ()) -> None:
        _check(phases)
        self._phases = phases
        self._cycle = cycle
        self._joins = frozenset([joins] if isinstance(joins, str) else joins)
        self.groups: dict[str, Collection[str]] = {}
        self._begin: int | None = None
        self._index, self._round = 0, 1
        self._acted: set[str] = set()  # in this round

    @property
    def phase(self) -> str:
        """The name of the current phase."""
        return self._phases[self._index].name

    @property
    def waiting(self) -> tuple[str, ...]:
        """The agents that will act in this round of the phase, after those in `acting`."""
        return self._still_to_act({*self._acted, *self.acting})

    @property
    def phase_ends(self) -> bool:
        """Whether the current step is the last of its phase: then votes can be counted, for instance.

        An agent that the scenario terminates in this step is still in `waiting`.
        """
        last_round = self._round == self._phases[self._index].rounds
        return self._begin is not None or (last_round and not self.waiting)

    def begin(self, name: str) -> None:
        """Let the phase with this name come next, from its start, even if agents have not acted in the current one.

        Raises:
            SelectorError: there is no such phase.
        """
        names = [phase.name for phase in self._phases]
        if name not in names:
            raise SelectorError(f"there is no phase {name!r}; {did_you_mean(name, names)}")
        self._begin = names.index(name)

    def reset(self, agents: Sequence[str]) -> None:
        super().reset(agents)
        self.groups = {}
        self._known = {*agents, *self._joins}
        self._begin = None
        self._enter(0)

    def advance(self) -> None:
        first = not self.acting
        if first:
            for phase in self._phases:
                self._members(phase)  # a group that is not set raises at once
        self._acted.update(self.acting)
        if self._begin is not None:
            self._enter(self._begin)
            self._begin = None
        elif self._round < self._phases[self._index].rounds and not self._still_to_act(self._acted):
            self._round += 1
            self._acted = set()
        present = self._still_to_act(self._acted) or self._enter_next()
        if not present and (first or self._cycle):
            raise SelectorError(self._nobody())
        self.finished = not present
        self.acting = present if self._phases[self._index].together else present[:1]

    def add(self, agent: str) -> None:
        super().add(agent)
        self._known.add(agent)

    def graph(self, agents: Sequence[str] = ()) -> DiGraph:
        names = [phase.name for phase in self._phases]
        after = [*names[1:], names[0] if self._cycle else END]
        edges: list[tuple[Any, Any, dict[str, Any]]] = [
            (name, other, {}) for name, other in zip(names, after, strict=True)
        ]
        graph = build_graph(edges, start=names[:1], title="phases")
        for phase in self._phases:
            graph.nodes[phase.name]["note"] = f"{_who(phase)}\n{_how(phase)}"
        return graph

    def _enter(self, index: int) -> None:
        self._index, self._round, self._acted = index, 1, set()

    def _enter_next(self) -> tuple[str, ...]:
        """Go on to the next phase that has agents, and return these."""
        count = len(self._phases)
        last = self._index + count if self._cycle else count - 1
        for index in range(self._index + 1, last + 1):
            self._enter(index % count)
            if present := self._still_to_act(self._acted):
                return present
        return ()

    def _still_to_act(self, acted: Set[str]) -> tuple[str, ...]:
        phase = self._phases[self._index]
        if phase.together and acted:
            return ()  # an agent that joined meanwhile acts in the next round
        return tuple(agent for agent in self._members(phase) if agent not in acted)

    def _members(self, phase: Phase) -> list[str]:
        """The agents of a phase that are in the episode, in the order in which they act."""
        if phase.group is None:
            return self.order
        group = self._group(phase)
        strangers = [agent for agent in group if not isinstance(agent, str) or agent not in self._known]
        if strangers:
            raise SelectorError(
                f"{strangers[0]!r} in the group of the phase {phase.name!r} never was in this episode; "
                f"{did_you_mean(strangers[0], self.order)} Name agents that join later in PhaseSelector(..., joins=...)"
            )
        if isinstance(group, Set):
            return [agent for agent in self.order if agent in group]
        return [agent for agent in dict.fromkeys(group) if agent in self.order]

    def _group(self, phase: Phase) -> Collection[str]:
        if not isinstance(phase.group, str):
            return phase.group or ()
        if phase.group not in self.groups:
            raise SelectorError(
                f"the phase {phase.name!r} is for the group {phase.group!r}, which is not set; "
                f"{did_you_mean(phase.group, self.groups)} Set it in _reset: "
                f"self.selector.groups[{phase.group!r}] = [...]"
            )
        group = self.groups[phase.group]
        if isinstance(group, str) or not isinstance(group, Collection):
            raise SelectorError(f"the group {phase.group!r} must be a collection of agent ids, not {group!r}")
        return group

    def _nobody(self) -> str:
        phases = "; ".join(f"{phase.name!r}: {_who(phase)}" for phase in self._phases)
        return (
            f"no phase has agents ({phases}). Present are {self.order}, the groups are {self.groups}; "
            "put an agent into a group, or end the episode"
        )


def _check(phases: Sequence[Phase]) -> None:
    if not phases:
        raise SelectorError("PhaseSelector needs one phase at least, for instance PhaseSelector(Phase('talk'))")
    for phase in phases:
        if not isinstance(phase, Phase) or not isinstance(phase.name, str):
            raise SelectorError(f"a phase is Phase('its name', ...), not {phase!r}")
        if not isinstance(phase.rounds, int) or phase.rounds < 1:
            raise SelectorError(f"the phase {phase.name!r} has a number of rounds from 1 up, not {phase.rounds!r}")
        if not isinstance(phase.group, Collection | None):
            raise SelectorError(
                f"the group of the phase {phase.name!r} is a name, a collection of agent ids or None, "
                f"not {phase.group!r}"
            )
    names = [phase.name for phase in phases]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SelectorError(f"two phases are called {twice[0]!r}; give each another name")


def _who(phase: Phase) -> str:
    if phase.group is None:
        return "everybody"
    return phase.group if isinstance(phase.group, str) else ", ".join(map(str, phase.group))


def _how(phase: Phase) -> str:
    how = "together" if phase.together else "one at a time"
    return f"{how}, {phase.rounds} rounds" if phase.rounds > 1 else how
