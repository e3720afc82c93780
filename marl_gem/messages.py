"""Messages between agents: who may hear what, who heard it, and what of it is new to whom.

    class Town(MultiAgentEnv):
        channels = {"wolves": Channel(lambda env: env.wolves)}

        def _process_action(self, agent, action):
            self.send(action, to="wolves" if self.night else None, sender=agent)

A scenario sends with `MultiAgentEnv.send`; the log of an episode is kept here. Copies of a log are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from marl_gem.errors import ScenarioFault
from marl_gem.faults import shown
from marl_gem.types import SentMessage


@dataclass(frozen=True)
class Channel:
    """Who hears what is sent to a name, see `MultiAgentEnv.channels`.

    Args:
        members: agent ids, or a function that gives them when it is called with the env. It must take the env as its
            argument and not keep one: forks of the env share the function.
        backlog: an agent that becomes a member hears what was sent to the channel before, too.
    """

    members: Sequence[str] | Callable[[Any], Iterable[str]]
    backlog: bool = False

    def of(self, env: Any) -> tuple[str, ...]:
        """The members now, each once."""
        return tuple(dict.fromkeys(self.members(env) if callable(self.members) else self.members))


class MessageLog:
    """All messages of an episode, and for each agent those that it has not been shown."""

    __slots__ = ("_joined", "_lines", "_unread", "messages")

    def __init__(self) -> None:
        self.messages: list[SentMessage] = []
        self._lines: list[str] = []  # each message as its hearers observe it
        self._unread: dict[str, list[int]] = {}  # by agent: indices of messages
        self._joined: dict[str, set[str]] = {}  # by channel with a backlog: members that have it

    def __deepcopy__(self, memo: object) -> Self:
        copy = type(self)()
        copy.messages = self.messages.copy()  # a message never changes
        copy._lines = self._lines.copy()
        copy._unread = {agent: unread.copy() for agent, unread in self._unread.items()}
        copy._joined = {channel: joined.copy() for channel, joined in self._joined.items()}
        return copy

    def send(self, env: Messaging, text: str, to: str | Iterable[str] | None, sender: str) -> None:
        """Add a message, see `MultiAgentEnv.send`.

        Raises:
            ScenarioFault: the text or the sender is no text, or `to` names neither an agent nor a channel, or both.
        """
        if not (isinstance(text, str) and isinstance(sender, str)):
            raise ScenarioFault(
                f"{env.scenario}: send takes a text and the id of its sender, not {shown(text)} and {shown(sender)}"
            )
        channel = to if isinstance(to, str) and to in env.channels else ""
        hearers = env.agents
        if to is not None:
            alive = set(env.agents)
            hearers = tuple(agent for agent in self._named(env, to, channel) if agent in alive)
        if sender in hearers:
            index = hearers.index(sender)
            hearers = hearers[:index] + hearers[index + 1 :]
        message = SentMessage(str.__str__(text), str.__str__(sender), hearers, channel, env.steps)
        index = len(self.messages)
        self.messages.append(message)
        self._lines.append(str(message))
        unread = self._unread
        for agent in hearers:
            if agent in unread:
                unread[agent].append(index)
            else:
                unread[agent] = [index]

    def _named(self, env: Messaging, to: str | Iterable[str], channel: str) -> tuple[str, ...]:
        """The agents that `to` names, also those that have left."""
        if channel:
            if channel in env.returns:
                raise ScenarioFault(f"{env.scenario}: {channel!r} is an agent and a channel; rename the channel")
            named = env.channels[channel].of(env)
        else:
            named = (to,) if isinstance(to, str) else tuple(dict.fromkeys(to))
        if strangers := [agent for agent in named if agent not in env.returns]:
            known = f"the agents {list(env.returns)} and the channels {list(env.channels)}"
            raise ScenarioFault(f"{env.scenario}: a message to {shown(strangers)}; there are {known}")
        return named

    def deliver_backlogs(self, env: Messaging) -> None:
        """Agents that have become members of a channel with a backlog since the last call hear what it has."""
        for name, channel in env.channels.items():
            if not channel.backlog:
                continue
            members = {agent for agent in channel.of(env) if agent in env.agents}
            for index, message in enumerate(self.messages) if members - self._joined.get(name, set()) else ():
                if message.channel != name:
                    continue
                new = members - {message.sender, *message.hearers} - self._joined.get(name, set())
                if new:
                    hearers = (*message.hearers, *(agent for agent in env.agents if agent in new))
                    self.messages[index] = msgspec.structs.replace(message, hearers=hearers)
                for agent in new:
                    self._unread.setdefault(agent, []).append(index)
            self._joined[name] = members

    def mark_read(self, agents: Iterable[str]) -> None:
        """These agents have been shown all that is new to them."""
        for agent in agents:
            self._unread.pop(agent, None)

    def new_to(self, agent: str) -> list[SentMessage]:
        """What an agent has not been shown, in the order in which it was sent."""
        return [self.messages[index] for index in sorted(self._unread.get(agent, ()))]

    def text_for(self, agent: str) -> str:
        """The same as text."""
        return "\n".join(map(self._lines.__getitem__, sorted(self._unread.get(agent, ()))))


class Messaging:
    """The part of `MultiAgentEnv` that is about messages."""

    channels: Mapping[str, Channel] = {}
    """Names that a scenario may send to, and who hears it."""

    scenario: str
    steps: int
    agents: tuple[str, ...]
    returns: dict[str, float]
    _log: MessageLog | None = None

    def send(self, text: str, to: str | Iterable[str] | None = None, sender: str = "") -> None:
        """Send a message, which is new to its hearers until they have acted; call it where `add_agent` may be called.

        Args:
            text: what they hear.
            to: an agent, several, or one of `channels`; by default everybody. Who has left hears nothing.
            sender: an agent, who does not hear itself, or a narrator; by default the scenario speaks without a name.

        Raises:
            ScenarioFault: an argument is no text, or `to` names nobody who was in this episode.
        """
        if self._log is None:
            self._log = MessageLog()
        self._log.send(self, text, to, sender)

    @property
    def message_log(self) -> Sequence[SentMessage]:
        """All messages of this episode so far."""
        return () if self._log is None else self._log.messages

    def new_messages(self, agent: str) -> list[SentMessage]:
        """The messages that an agent has heard since it last acted."""
        return [] if self._log is None else self._log.new_to(agent)
