"""Commands in responses, in three formats.

calls   native calls of tools: shell(command, timeout) and finish()
plain   the response is a command, or has it in its last block of code; "exit" finishes
gem     <bash>cmd: ls -l
        timeout_secs: 10</bash> and <finish>, as GEM's terminal tasks have them
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeAlias

from marl_gem.tools.calls import BrokenCall, read_calls, write_call
from marl_gem.tools.unit_tests import last_program
from marl_gem.types import ToolSpec

Format: TypeAlias = Literal["calls", "plain", "gem"]

SHELL = ToolSpec(
    "shell",
    "Run a command of bash. Folder, variables and files stay for later commands.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "One or several lines of bash."},
            "timeout": {"type": "number", "description": "The seconds it may take, from 5 to 600."},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)
FINISH = ToolSpec(
    "finish",
    "Say that the task is done; then it is tested.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)


class Command(NamedTuple):
    """A command, and the seconds it may take, if the agent says so."""

    text: str
    seconds: float | None = None


class Broken(NamedTuple):
    """What should have been a command, and what is wrong with it."""

    reason: str
    name: str = ""


class Read(NamedTuple):
    """A response taken apart: what is to be done in order, and whether the agent finishes then."""

    steps: list[Command | Broken]
    finished: bool


INSTRUCTIONS: dict[str, str] = {
    "calls": "Solve the task in a shell, with the tool shell. Call finish when it is done; then it is tested.",
    "plain": "Solve the task in a shell. Each of your responses is run as a command of bash, and you are shown what it "
    "prints. Answer exit when the task is done; then it is tested.",
    "gem": "Solve the task in a shell. Run commands as\n<bash>\ncmd: ls -l\ntimeout_secs: 10\n</bash>\nand answer "
    "<finish> when the task is done; then it is tested.",
}


def read(text: str, format: Format) -> Read:
    """The commands in a response. Takes any text."""
    return {"calls": _read_calls, "plain": _read_plain, "gem": _read_gem}[format](text)


def written(command: str, format: Format) -> str:
    """A response that runs a command."""
    if format == "calls":
        return write_call("shell", {"command": command})
    if format == "plain":
        return command
    indented = command.replace("\n", "\n  ")
    return f"<bash>\ncmd: |\n  {indented}\n</bash>"


def finished(format: Format) -> str:
    """A response that finishes."""
    return {"calls": write_call("finish", {}), "plain": "exit", "gem": "<finish>"}[format]


def _read_calls(text: str) -> Read:
    steps: list[Command | Broken] = []
    calls = read_calls(text).calls
    for call in calls:
        if isinstance(call, BrokenCall):
            steps.append(Broken(call.reason))
        elif call.name == "finish":
            return Read(steps, True)
        elif call.name != "shell":
            steps.append(Broken(f"there is no tool {call.name[:80]!r}; there are shell and finish", call.name[:80]))
        else:
            steps.append(_command(call.arguments))
    return Read(steps, not calls)


def _command(arguments: dict[str, Any]) -> Command | Broken:
    command, seconds = arguments.get("command"), arguments.get("timeout")
    unknown = sorted(arguments.keys() - {"command", "timeout"})
    if not isinstance(command, str) or unknown:
        return Broken("it takes command, a text, and perhaps timeout, a number", "shell")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
        return Broken("timeout is a positive number of seconds", "shell")
    return Command(command, seconds)


def _read_plain(text: str) -> Read:
    command = last_program(text)
    command = text.strip() if command is None else command.strip()
    return Read([], True) if command in ("exit", "") else Read([Command(command)], False)


_TAG = re.compile(r"<bash>(.*?)(?:</bash>|\Z)|<finish\s*/?>", re.DOTALL)


def _read_gem(text: str) -> Read:
    steps: list[Command | Broken] = []
    for tag in _TAG.finditer(text):
        if tag[1] is None:
            return Read(steps, True)
        steps.append(_gem_command(tag[1]))
    return Read(steps, not steps)


_FIELD = re.compile(r"^(cmd|timeout_secs):[ \t]*(.*)$")


def _gem_command(text: str) -> Command | Broken:
    """The part of YAML that GEM's format uses: two keys, with a value on the line or in an indented block."""
    fields: dict[str, list[str]] = {}
    name, rest = "", text.strip("\n").splitlines()
    for line in rest:
        found = _FIELD.match(line)
        if found:
            name = found[1]
            fields[name] = [found[2].strip()] if found[2].strip() not in ("|", "|-", ">", ">-") else []
        elif name:
            fields[name].append(line)
        elif line.strip():
            return Broken("write cmd: and perhaps timeout_secs: between <bash> and </bash>")
    lines = fields.get("cmd", [])
    indents = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip() and line[:1] == " "]
    indent = min(indents, default=0)
    command = "\n".join(line[indent:] if line[:1] == " " else line for line in lines)
    if len(lines) == 1 and len(command) > 1 and command[0] == command[-1] and command[0] in "'\"":
        command = command[1:-1]
    if not command.strip():
        return Broken("there is no cmd:")
    try:
        seconds = float(fields["timeout_secs"][0]) if fields.get("timeout_secs") else None
    except ValueError:
        return Broken("timeout_secs is a number")
    if seconds is not None and not 0 < seconds < float("inf"):
        return Broken("timeout_secs is a positive number")
    return Command(command, seconds)
