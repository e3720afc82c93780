"""A policy that asks a person at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, Info
from marl_gem.tools.calls import write_call
from marl_gem.types import Observation, Response, Role, ToolSpec, read_json
from marl_gem.views import as_text

HELP = "/quit leaves the game, /help shows this, //... says a text that begins with /"


class PersonLeft(AgentError):
    """The person has left the game by /quit."""


class InputEnded(PersonLeft):
    """The person has left by Ctrl-D, or the input of a program ended."""


class Interrupted(PersonLeft):
    """The person has left by Ctrl-C."""


class HumanPolicy:
    """Asks a person at the terminal.

    The person answers with text. A line `/NAME argument=value ...` or `/tool NAME {"argument": value}` calls a tool of
    the seat, `/quit` leaves the game.

    `show` and `ask` are how: they default to print and input, and the command line passes prettier ones.

    Raises:
        PersonLeft: from an agent's `act`, when the person leaves.
    """

    name = "human"

    def __init__(self, show: Callable[[str], None] | None = None, ask: Callable[[str], str] = input) -> None:
        self._show = show or _print
        self._ask = ask

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        if role.instructions:
            self._show(role.instructions)
        if role.tools:
            self._show("\n".join(["Tools:", *map(_usage, role.tools)]))
        return _HumanAgent(agent_id, role.tools, self._show, self._ask)


class _HumanAgent:
    def __init__(
        self, agent_id: str, tools: tuple[ToolSpec, ...], show: Callable[[str], None], ask: Callable[[str], str]
    ) -> None:
        self._agent_id, self._show, self._ask = agent_id, show, ask
        self._tools = {tool.name: tool for tool in tools}

    async def act(self, observation: Observation, info: Info) -> Response:
        self._show(as_text(observation))
        while True:
            try:
                line = self._ask(f"{self._agent_id}> ")  # in this thread, where Ctrl-C arrives
            except EOFError:
                raise InputEnded(f"the input of {self._agent_id!r} ended before the episode did") from None
            except KeyboardInterrupt:
                raise Interrupted(f"{self._agent_id!r} was interrupted by Ctrl-C") from None
            if line.strip() == "/quit":
                raise PersonLeft(f"{self._agent_id!r} left the game")
            if line.strip() == "/help":
                self._show("\n".join([*map(_usage, self._tools.values()), HELP]))
                continue
            try:
                return Response(read_line(line, self._tools))
            except ValueError as error:
                self._show(str(error))


def read_line(line: str, tools: Mapping[str, ToolSpec]) -> str:
    """The action in a line that a person typed: the line itself, or the call of a tool.

    Args:
        line: `/NAME argument=value ...`, `/tool NAME {JSON}`, or any text; `//` begins a text with one stroke.
        tools: the tools of the person's seat by name. Without any, every line but one with `//` is a text.

    Raises:
        ValueError: it is no call of a tool; the message says why.
    """
    if line.startswith("//"):
        return line[1:]
    if not line.startswith("/") or not tools:
        return line
    name, _, rest = line[1:].strip().partition(" ")
    if name == "tool" and "tool" not in tools:
        name, _, rest = rest.strip().partition(" ")
    if name not in tools:
        raise ValueError(f"there is no tool {name!r}, only {', '.join(tools)}; // begins a text with one stroke")
    rest = rest.strip()
    arguments = _json_arguments(rest) if rest.startswith("{") else _named_arguments(rest, tools[name])
    missing = [key for key in tools[name].parameters.get("required", ()) if key not in arguments]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing:{_usage(tools[name])}")
    return write_call(name, arguments)


def _json_arguments(text: str) -> dict[str, Any]:
    arguments = read_json(text)  # JSON's own message says where it breaks off
    assert isinstance(arguments, dict)  # it begins with a brace
    return arguments


def _named_arguments(text: str, tool: ToolSpec) -> dict[str, Any]:
    """Arguments as `name=value`, each read as its type says; a value with spaces stands in quotes."""
    properties = tool.parameters.get("properties") or {}
    arguments: dict[str, Any] = {}
    for word in shlex.split(text):
        key, equals, value = word.partition("=")
        if not equals or (properties and key not in properties):
            raise ValueError(f"{word!r} is no argument:{_usage(tool)}")
        schema = properties.get(key)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        try:
            arguments[key] = value if kind in ("string", None) else read_json(value)
        except ValueError:
            raise ValueError(f"{key} is of the type {kind}, not {value!r}") from None
    return arguments


def _usage(tool: ToolSpec) -> str:
    """A line that says how a tool is called."""
    properties = tool.parameters.get("properties") or {}
    types = {
        key: schema.get("type", "text") if isinstance(schema, Mapping) else "text" for key, schema in properties.items()
    }
    arguments = " ".join(f"{key}={str(kind).upper()}" for key, kind in types.items())
    return f"  /{tool.name} {arguments}".rstrip() + (
        f"   {' '.join(tool.description.split())}" if tool.description else ""
    )


def _print(text: str) -> None:
    print(text)  # noqa: T201 - a person is asked here
