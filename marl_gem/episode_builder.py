"""Build the record of an episode while it is being played.

A turn's reward is the sum of all that its agent received from this action until its next one. Rewards that come
after an agent has ended, which appear in `env.returns` alone, are added to its last turn.

What envs and agents give is copied as plain data (`marl_gem.plain_data`), so that an episode fails where something
else was given, and not when its record is written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import attrgetter, is_
from typing import Any

import msgspec

from marl_gem.errors import AgentError, RecordError, ScenarioFault
from marl_gem.faults import shown
from marl_gem.plain_data import PlainCopier
from marl_gem.types import (
    Ending,
    Episode,
    EpisodeError,
    Limits,
    Observation,
    Response,
    Role,
    SentMessage,
    ToolSpec,
    Turn,
)

_DEFAULTS = msgspec.structs.asdict(Response(""))
_without_usage = attrgetter(*(name for name in _DEFAULTS if name not in ("text", "usage")))
_NO_MODEL = _without_usage(Response(""))


class EpisodeBuilder:
    """Collects agents' responses and the results of steps, and makes an `Episode` of them.

    `observed` takes what `reset` and each step gave, `set_role` an agent's role before its first turn, `response` each
    answer; they return copies. For each step call `begin` and then `complete` with these copies, and, also after
    `reset`, `sent`; at the end `episode`.

    Args:
        record_limit: the greatest size of the record, in characters; None sets no limit.
    """

    def __init__(self, record_limit: int | None = Limits().record) -> None:
        self.turns: list[OpenTurn] = []
        self.last: dict[str, OpenTurn] = {}
        """Each agent's newest turn."""
        self.error: EpisodeError | None = None
        self.roles: dict[str, Role] = {}
        """The role of each agent that was asked to act."""
        self.tags: dict[str, dict[str, str]] = {}
        """The team and the role of each agent, as infos name them."""
        self._copier = PlainCopier(record_limit)
        self._final_infos: dict[str, dict[str, Any]] = {}
        self._returns_at_end: dict[str, float] = {}
        self._terminated = False
        self._steps = 0
        self._messages: Sequence[SentMessage] = ()
        self._sent_in: list[int] = []  # the step in which each message was sent
        self._started = time.monotonic()

    def observed(
        self, observations: Mapping[str, Observation], infos: Mapping[str, dict[str, Any]]
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Copies of the observations and infos that `reset` or `step` gave.

        Raises:
            RecordError: something in them is not plain data, or makes the record too large.
        """
        return (
            {agent: self._observation(given, "observations", agent) for agent, given in observations.items()},
            {agent: self._tagged(self._info(given, agent), agent) for agent, given in infos.items()},
        )

    def _tagged(self, info: dict[str, Any], agent: str) -> dict[str, Any]:
        if "team" in info or "role" in info:
            found = {name: info[name] for name in ("team", "role") if type(info.get(name)) is str}
            self.tags[agent] = {**self.tags.get(agent, {}), **found}
        return info

    def _observation(self, given: Any, *where: object) -> Observation:
        copied: Any = self._copier.copy(given, *where)
        if type(copied) is not str:
            path = "".join([str(where[0]), *(f"[{key!r}]" for key in where[1:])])
            if type(copied) is not list or any(type(part) is not dict for part in copied):
                raise RecordError(f"{path} is {shown(given)}; an observation is text or a list of content parts")
            for part in copied:
                for name in ("type", "text", "url", "name"):
                    if type(part.get(name, "")) is not str:
                        raise RecordError(f"{path} has a part whose {name} is {shown(part[name])}; it must be text")
        return copied  # type: ignore[no-any-return]

    def _info(self, given: Any, agent: str) -> dict[str, Any]:
        if type(given) is dict and not given:
            return {}
        copied = self._copier.copy(given, "infos", agent)
        if type(copied) is not dict:
            raise RecordError(f"infos[{agent!r}] is {shown(given)}; an info is a dict")
        if "final_observation" in copied:
            self._observation(given["final_observation"], "infos", agent, "final_observation")
        return copied

    def set_role(self, agent: str, role: Role) -> Role:
        """Keep the role of an agent that is about to be asked for the first time.

        Raises:
            ScenarioFault: it is no Role.
            RecordError: something in it is not plain data or of another type, or makes the record too large.
        """
        if type(role) is not Role:
            raise ScenarioFault(f"role({agent!r}) gave {shown(role)}; it must give a Role")
        name = f"role({agent!r})"
        if type(role.tools) not in (tuple, list):
            raise ScenarioFault(f"{name}.tools is {shown(role.tools)}; it must be a tuple of ToolSpecs")
        tools = [_tool(tool, f"{name}.tools[{index}]") for index, tool in enumerate(role.tools)]
        plain = self._copier.copy({"instructions": role.instructions, "tools": tools}, name)
        copied = Role(plain["instructions"], tuple(ToolSpec(**tool) for tool in plain["tools"]))
        _check_types(copied, name)
        self.roles[agent] = copied
        return copied

    def response(self, agent: str, given: Response) -> Response:
        """A copy of an agent's response; the tokens are shared.

        Raises:
            AgentError: it is no Response with a text.
            RecordError: something in it is not plain data or of another type, or makes the record too large.
        """
        if type(given) is not Response or not issubclass(type(given.text), str):
            text = f"Response({shown(given.text)})" if type(given) is Response else shown(given)
            raise AgentError(f"{agent!r} must answer with a Response that holds a text, not {text}")
        if (
            type(given.usage) is dict and not given.usage and all(map(is_, _without_usage(given), _NO_MODEL))
        ):  # a script's
            text = self._copier.copy(given.text, f"response of {agent!r}: text")
            return given if text is given.text else Response(text)
        where = f"response of {agent!r}"
        fields = {
            name: self._response_field(value, f"{where}: {name}")
            for name, value in msgspec.structs.asdict(given).items()
            if value is not _DEFAULTS[name] and not (type(value) is dict and not value)
        }
        copied = msgspec.structs.replace(given, **fields)
        if len(fields) > 1:  # not the text alone
            _check_types(copied, where)
        return copied

    def _response_field(self, value: Any, where: str) -> Any:
        if type(value) is not tuple:
            return self._copier.copy(value, where)
        kinds = set(map(type, value))
        if kinds == {int} or (kinds == {float} and all(map(isfinite, value))):  # ids of tokens, log-probabilities
            self._copier.count(len(value), where)
            return value
        return tuple(self._copier.copy(list(value), where))

    def begin(self, observations: Mapping[str, Observation], responses: Mapping[str, Response]) -> None:
        """Add a turn for each response, with the observation that it answers."""
        self._steps += 1
        step = self._steps if len(responses) > 1 else 0
        for agent, response in responses.items():
            self.last[agent] = turn = OpenTurn(agent, observations[agent], response, step)
            self.turns.append(turn)

    def complete(
        self,
        returns: Mapping[str, float],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, dict[str, Any]],
    ) -> None:
        """Add the results of a step to the turns: the env's returns so far, and the four dicts that `step` gave."""
        for agent, reward in rewards.items():
            turn = self.last.get(agent)
            if turn:
                turn.reward += reward
                if turn.info is None:
                    turn.info = dict(infos[agent])  # a copy: the agent or a wrapper may go on writing into its dict
            if terminations[agent] or truncations[agent]:
                self._final_infos[agent] = dict(infos[agent])
                self._returns_at_end[agent] = returns[agent]
                self._terminated = self._terminated or terminations[agent]

    def sent(self, messages: Sequence[SentMessage]) -> None:
        """Add the messages that the env sent in the step that was begun last, or in `reset`.

        Args:
            messages: all of the episode so far.

        Raises:
            RecordError: they make the record too large.
        """
        for message in messages[len(self._sent_in) :]:
            self._copier.count(len(message.text) + 16 * len(message.hearers), "messages")
            self._sent_in.append(self._steps)
        self._messages = messages

    def episode(self, *, returns: Mapping[str, float], cut_short: bool, **episode_fields: Any) -> Episode:
        """The record. Call it once, at the end.

        Args:
            returns: each agent's undiscounted sum of rewards.
            cut_short: the episode was left before it was over.
            episode_fields: the other fields of the `Episode`.

        Raises:
            RecordError: the returns or a field are not plain data, or the rewards of a turn sum up to infinity.
        """
        copy = PlainCopier().copy
        sums: dict[str, float] = copy(dict(returns), "returns")
        for agent, before in self._returns_at_end.items():
            if turn := self.last.get(agent):
                turn.reward += sums[agent] - before
        for turn in self.turns:
            if not isfinite(turn.reward):
                raise RecordError(f"the rewards of {turn.agent!r} from one of its turns to the next are {turn.reward}")
        terminated = self._terminated and not cut_short
        ending: Ending = "error" if self.error else "terminated" if terminated else "truncated"
        return Episode(
            turns=tuple(Turn(t.agent, t.observation, t.response, t.reward, t.info or {}, t.step) for t in self.turns),
            returns=sums,
            ending=ending,
            error=self.error,
            roles=self.roles,
            final_infos=self._final_infos,
            tags=self.tags,
            messages=tuple(
                msgspec.structs.replace(message, text=copy(message.text), sender=copy(message.sender), step=step)
                for message, step in zip(self._messages, self._sent_in, strict=False)  # more in a step that failed
            ),
            seconds=round(time.monotonic() - self._started, 6),
            **{name: copy(value, name) for name, value in episode_fields.items()},
        )


@dataclass(slots=True)
class OpenTurn:
    """A turn whose reward may still grow, and whose info is not known yet."""

    agent: str
    observation: Observation
    response: Response
    step: int = 0
    reward: float = 0.0
    info: dict[str, Any] | None = None


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not ToolSpec:
        raise ScenarioFault(f"{where} is {shown(tool)}; it must be a ToolSpec")
    return msgspec.structs.asdict(tool)


def _check_types(record: msgspec.Struct, where: str) -> None:
    """Raise RecordError if a field has another type than it declares, which no reader would take."""
    try:
        msgspec.convert(msgspec.to_builtins(record), type(record))
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {error}") from error
