"""The default of `MultiAgentEnv.render`: a text picture of an episode's present moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import indent
from typing import Protocol

from marl_gem.faults import FAULTS, message_of
from marl_gem.types import Observation
from marl_gem.views import as_text

LISTED = 4
"""So many agents that see the same are named; of more, how many there are."""


class Pictured(Protocol):
    """What the picture is made of; see `MultiAgentEnv`."""

    scenario: str
    seed: int
    steps: int
    returns: dict[str, float]

    @property
    def acting(self) -> Sequence[str]: ...

    @property
    def done(self) -> bool: ...

    def observe(self, agent: str) -> Observation: ...


def text_picture(env: Pictured) -> str:
    """What the acting agents see; at the end, what each agent saw last. Below it all returns.

    game:KuhnPoker-v0, seed 7, after 1 step
    player_1 acts next and sees
      Your card: K. Moves so far: check. Your moves: [check] [bet]
    returns: player_0 +0, player_1 +0
    """
    if not hasattr(env, "returns"):
        return f"{env.scenario}, not reset yet"
    end = env.done or not env.acting
    infos: Mapping[str, Mapping[str, Observation]] = getattr(env, "infos", {})
    if end:
        last = {agent: info["final_observation"] for agent, info in infos.items() if "final_observation" in info}
        views = {agent: _text(last.__getitem__, agent) for agent in last}
    else:
        views = {agent: _text(env.observe, agent) for agent in env.acting}
    alike: dict[str, list[str]] = {}
    for agent, view in views.items():
        alike.setdefault(view, []).append(agent)
    lines = [f"{env.scenario}, seed {env.seed}, {'over ' if end else ''}after {env.steps} step{'s' * (env.steps != 1)}"]
    for text, agents in alike.items():
        several = len(agents) > 1
        verb = ("saw last" if end else "act next and see") if several else "saw last" if end else "acts next and sees"
        lines += [f"{_names(agents)} {verb}", indent(text, "  ")]
    values = {f"{value:+g}" for value in env.returns.values()}
    if len(env.returns) > LISTED and len(values) == 1:
        return "\n".join([*lines, f"returns: all {values.pop()}"])
    return "\n".join([*lines, "returns: " + ", ".join(f"{agent} {value:+g}" for agent, value in env.returns.items())])


def _text(observe: Callable[[str], Observation], agent: str) -> str:
    """What an agent observes; that of a broken scenario as far as it can be shown."""
    try:
        return as_text(observe(agent))
    except FAULTS as error:
        return f"({type(error).__name__}: {message_of(error)})"


def _names(agents: Sequence[str]) -> str:
    named = agents if len(agents) <= LISTED else [*agents[: LISTED - 1], f"{len(agents) - LISTED + 1} others"]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
