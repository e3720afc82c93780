"""Who sits where, as people write it: `player_0=human`, `player_1=runs/demo`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from marl_gem.agents import HumanPolicy, Policy, RandomPolicy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import AgentError


def parse_seats(seats: Sequence[str], env: MultiAgentEnv, load: Callable[[str], Policy]) -> dict[str, Policy]:
    """A policy for every agent of `env`.

    Args:
        seats: assignments `agent=who`; an agent that none names is played at random.
        env: gives the agents.
        load: makes a policy from `who`; it is called once for each, however many seats it holds.

    Raises:
        AgentError: an assignment makes no sense, or names an agent that the scenario does not have.
    """
    agents = tuple(env.possible_agents)
    who = dict.fromkeys(agents, "random")
    for seat in seats:
        agent, equals, name = seat.partition("=")
        if not equals or not name:
            raise AgentError(f"{seat!r} seats nobody; write agent=who, for instance {agents[0]}=human")
        if agent not in agents:
            raise AgentError(f"{env.scenario} has no agent {agent!r}; its agents are {', '.join(agents)}")
        who[agent] = name
    policies = {name: load(name) for name in dict.fromkeys(who.values())}
    return {agent: policies[name] for agent, name in who.items()}


def options_of(seats: Sequence[str], scenario: str) -> dict[str, Any]:
    """What `make` should be given so that the trained policies in these seats see what they were trained on."""
    options: dict[str, Any] = {}
    for seat in seats:
        name = seat.partition("=")[2]
        if name and Path(name).is_dir():
            from marl_gem.trainers.checkpoint import newest, read_state

            state = read_state(newest(Path(name)))
            if state["scenario"] == scenario:
                options |= state["config"].get("options", {})
    return options


def policy(name: str, scenario: str, human: Callable[[], HumanPolicy] = HumanPolicy) -> Policy:
    """The policy behind a name: `random`, `human`, or a run's folder or checkpoint.

    Raises:
        AgentError: there is no such policy.
        CheckpointError: the checkpoint is missing, damaged, or of another scenario.
    """
    if name == "random":
        return RandomPolicy()
    if name == "human":
        return human()
    if Path(name).is_dir():
        from marl_gem.trainers.checkpoint import load_policy

        return load_policy(Path(name), scenario)
    raise AgentError(f"nobody is called {name!r}; seat random, human, or a run's folder such as runs/demo")
