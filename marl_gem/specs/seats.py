"""Which policy is which agent: `AGENT=WHO`."""

from __future__ import annotations

from collections.abc import Iterable

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

    Raises:
        AgentError: an assignment names an agent that the scenario does not have.
    """
    seats: dict[str, tuple[PolicySpec, ...]] = dict.fromkeys(info.agents, ())
    for agent, spec in assignments:
        if agent not in info.agents and not info.joins:
            raise AgentError(f"{info.scenario} has no agent {agent!r}; its agents are {', '.join(info.agents)}")
        seats[agent] = (*seats.get(agent, ()), spec)
    return {agent: specs or (RANDOM,) for agent, specs in seats.items()}
