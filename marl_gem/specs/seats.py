"""Which policy is which agent: `AGENT=WHO`, or a pattern of agents, as in `*=WHO` and `wolf_?=WHO`."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from marl_gem.errors import AgentError
from marl_gem.llm.secrets import hide_in_urls
from marl_gem.specs.policy import RANDOM, PolicySpec
from marl_gem.specs.scenario import ScenarioInfo


def parse_assignment(text: str) -> tuple[str, PolicySpec]:
    """The two sides of `AGENT=WHO`, or of `NAME=WHO` for a tournament's player.

    Raises:
        AgentError: a side is missing, or there is no such policy.
        ConfigError: a value of the policy makes no sense.
    """
    name, _, who = text.partition("=")
    if not name or not who:
        raise AgentError(f"{hide_in_urls(text)!r} lacks a side; write NAME=WHO, as in player_0=random")
    return name, PolicySpec.parse(who)


def assign_seats(assignments: Iterable[tuple[str, PolicySpec]], info: ScenarioInfo) -> dict[str, PolicySpec]:
    """A policy for every agent of a scenario, in its order; random for those that no assignment names.

        assign_seats(map(parse_assignment, ["player_0=human"]), spec.inspect())

    Raises:
        AgentError: an assignment names an agent that the scenario does not have, or one that has a policy already.
    """
    seats = assign_candidates(assignments, info)
    if doubled := next((agent for agent, specs in seats.items() if len(specs) > 1), None):
        raise AgentError(f"{doubled!r} is given {len(seats[doubled])} policies; an agent has one")
    return {agent: spec for agent, (spec,) in seats.items()}


def assign_candidates(
    assignments: Iterable[tuple[str, PolicySpec]], info: ScenarioInfo
) -> dict[str, tuple[PolicySpec, ...]]:
    """As `assign_seats`, for a grid: an agent that several assignments name has several policies.

    An assignment's name may be a pattern with `*` and `?`. An agent's own name counts more than a pattern, and of
    several patterns the last one that fits.

    Raises:
        AgentError: an assignment names an agent that the scenario does not have.
    """
    named: dict[str, list[PolicySpec]] = {}
    for name, spec in assignments:
        named.setdefault(name, []).append(spec)
    joining = [name for name in named if not _is_pattern(name)] if info.joins else []
    agents = list(dict.fromkeys([*info.agents, *joining]))
    for name in named:
        if not any(fnmatchcase(agent, name) for agent in agents) and name not in agents:
            raise AgentError(f"{info.scenario} has no agent {name!r}; its agents are {', '.join(info.agents)}")
    seats: dict[str, tuple[PolicySpec, ...]] = {}
    for agent in agents:
        fitting = [name for name in named if _is_pattern(name) and fnmatchcase(agent, name)]
        seats[agent] = tuple(named.get(agent) or (named[fitting[-1]] if fitting else (RANDOM,)))
    return seats


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name
