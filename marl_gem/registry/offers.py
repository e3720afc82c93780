"""What comes with a scenario: scripted policies, and strategies for the agents.

Both belong to a scenario or to a family, whose scenarios then all offer them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from marl_gem.errors import ConfigError, RegistryError
from marl_gem.faults import foreign_code
from marl_gem.registry.scenarios import find, make
from marl_gem.registry.tables import Offers, resolve

if TYPE_CHECKING:  # to list scenarios takes no policies, which take long to import
    from marl_gem.policies import Policy

Need: TypeAlias = Literal["judge", "env"]
"""What a strategy may ask for besides the policy it is made of: another policy that judges, or an env to look at."""


@dataclass(frozen=True)
class RegisteredPolicy:
    """A policy that comes with a scenario or a family; `scripted:NAME` names it."""

    name: str
    entry_point: str | Callable[..., Policy]
    description: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisteredStrategy:
    """A way to make more of a model as one agent; `MODEL,strategy=NAME` names it."""

    name: str
    agent: str
    entry_point: str | Callable[..., Policy]
    description: str = ""
    needs: tuple[Need, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)


_policies: Offers[RegisteredPolicy] = Offers("scripted policy")
_strategies: Offers[RegisteredStrategy] = Offers("strategy")


def register_policy(
    scenario: str, name: str, entry_point: str | Callable[..., Policy], *, description: str = "", **arguments: Any
) -> None:
    """Register a policy that comes with a scenario; `scripted:NAME` then names it.

        register_policy("tau", "oracle", "marl_gem.scenarios.tau.scripts:policy", script="oracle")

    Args:
        scenario: an id, or a family, whose scenarios then all offer it.
        name: its name there.
        entry_point: a callable that returns a policy, or where to find it: `"package.module:function"`. It is
            called with the scenario's id, the options that the scenario is made with, and `arguments` by name.
        description: one line about it.

    Raises:
        RegistryError: the name is empty or taken.
    """
    _policies.add(scenario, name, RegisteredPolicy(name, entry_point, description, arguments))


def policies(id: str) -> dict[str, RegisteredPolicy]:
    """The policies that a scenario offers, by name: its own and its family's.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    find(id)
    return _policies.by_agent(id).get("", {})


def make_policy(id: str, name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """A scenario's own policy of this name.

    Args:
        id: the scenario.
        name: one of `policies(id)`.
        options: what the scenario is made with.

    Raises:
        UnknownScenario: there is no such scenario.
        RegistryError: it offers no such policy; the message names those that it offers.
    """
    scenario = find(id)
    registered = _policies.get(id, name)
    with foreign_code(f"the policy scripted:{name} of {id} cannot be made", RegistryError):
        policy: Policy = resolve(registered.entry_point)(
            id, {**scenario.options, **(options or {})}, **registered.arguments
        )
    return policy


def register_strategy(
    scenario: str,
    agent: str,
    name: str,
    entry_point: str | Callable[..., Policy],
    *,
    description: str = "",
    needs: Sequence[Need] = (),
    **arguments: Any,
) -> None:
    """Register a way to make more of a policy as one agent; `MODEL,strategy=NAME` then names it.

        register_strategy("tau", "user", "verify", "marl_gem.scenarios.tau.users:verify", needs=["judge"])

    Args:
        scenario: an id, or a family, whose scenarios then all offer it.
        agent: the agent. Another agent may offer something else by the same name.
        name: its name there.
        entry_point: a callable that takes a policy and returns one, or where to find it: `"package.module:function"`.
            It is called with the policy, and with `needs` and `arguments` by name.
        description: one line about it.
        needs: "judge", the policy that judges; "env", a fresh env of the scenario, only to look at.

    Raises:
        RegistryError: the name is empty or taken for this agent, or a need is unknown.
    """
    if unknown := [need for need in needs if need not in get_args(Need)]:
        raise RegistryError(f"the strategy {name!r} needs {unknown}; there is only {', '.join(get_args(Need))}")
    _strategies.add(
        scenario, name, RegisteredStrategy(name, agent, entry_point, description, tuple(needs), arguments), agent
    )


def strategies(id: str) -> dict[str, dict[str, RegisteredStrategy]]:
    """The strategies that a scenario offers, by agent and name: its own and its family's.

    Raises:
        UnknownScenario: there is no such scenario.
    """
    find(id)
    return _strategies.by_agent(id)


def make_strategy(
    id: str,
    agent: str,
    name: str,
    policy: Policy,
    *,
    judge: Policy | None = None,
    options: Mapping[str, Any] | None = None,
) -> Policy:
    """Apply a strategy to a policy.

    Args:
        id: the scenario.
        agent: the agent that the policy is to be.
        name: one of `strategies(id)[agent]`.
        policy: the policy to make more of.
        judge: judges, where the strategy needs that; by default the policy judges itself.
        options: what the scenario is made with.

    Raises:
        UnknownScenario: there is no such scenario.
        RegistryError: it offers no such strategy for this agent; the message names those that it offers.
        ConfigError: a judge is given where nothing is judged, or the strategy cannot be made of this policy.
    """
    find(id)
    strategy = _strategies.get(id, name, agent)
    arguments = dict(strategy.arguments)
    if "judge" in strategy.needs:
        arguments["judge"] = judge or policy
    elif judge:
        raise ConfigError(f"{id}: the strategy {name!r} of {agent!r} needs no judge; leave the judge out")
    if "env" in strategy.needs:
        arguments["env"] = make(id, **(options or {}))
    with foreign_code(f"the strategy {name!r} of {agent!r} in {id} cannot be applied", RegistryError):
        made: Policy = resolve(strategy.entry_point)(policy, **arguments)
    return made
