"""How an agent's history becomes its next prompt.

A view is a function from a role and a history to chat messages. The history alternates: what the agent
observed, what it answered, ..., and ends with what it observes now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from marl_gem.errors import ConfigError
from marl_gem.types import Message, Observation, Response, Role


class Exchange(NamedTuple):
    """An observation and the answer to it; the answer to the current observation is still None."""

    observation: Observation
    response: Response | None


View: TypeAlias = Callable[[Role, Sequence[Exchange]], list[Message]]


def chat(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The whole conversation: the role as system message, then all observations and answers."""
    messages = _system(role)
    for observation, response in history:
        messages.append({"role": "user", "content": observation})
        if response is not None:
            messages.append({"role": "assistant", "content": response.text, "token_ids": response.token_ids})
    return messages


def latest(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The role and the newest observation: for scenarios whose observation tells the whole state."""
    return [*_system(role), *bare(role, history)]


def bare(role: Role, history: Sequence[Exchange]) -> list[Message]:
    """The newest observation and nothing else: the shortest prompt, for the smallest models."""
    return [{"role": "user", "content": history[-1].observation}]


VIEWS: dict[str, View] = {"chat": chat, "latest": latest, "bare": bare}


def view(name: str) -> View:
    """The view with this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in VIEWS:
        raise ConfigError(f"there is no view {name!r}; choose one of {', '.join(VIEWS)}")
    return VIEWS[name]


def _system(role: Role) -> list[Message]:
    return [{"role": "system", "content": role.instructions}] if role.instructions else []
