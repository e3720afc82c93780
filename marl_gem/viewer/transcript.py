"""An episode as it is shown: every observation and response taken apart into what is said, thought, called and seen.

The page and the terminal both show this. All of it is text that somebody else wrote, and may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from marl_gem.tools.calls import CLOSE, OPEN, BrokenCall, read_calls
from marl_gem.types import Episode, Observation, Response, Role, ToolSpec, Turn

Kind: TypeAlias = Literal["text", "reasoning", "call", "broken call", "result", "image", "tool", "other"]


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a role, an observation or a response.

    `name` is the tool's for a tool, a call and its result, what is wrong for a broken call, and the type for other
    content parts. `text` is what is said, what a tool does and takes, the arguments of a call, or the URL of an image.
    """

    kind: Kind
    text: str
    name: str = ""


class Told(msgspec.Struct, frozen=True):
    """What an agent was told before its first turn: its instructions, then its tools."""

    agent: str
    parts: list[Part]


class Shown(msgspec.Struct, frozen=True):
    """A turn. `number` counts the turns of the episode from 1; `total` is the sum of the agent's rewards so far.

    `illegal` is what the env said of an illegal move, `info` all it said, as JSON. `notes` are facts about the
    answer: how long it took, what it cost, what went wrong on the way. `tokens` counts those that are recorded.
    """

    number: int
    agent: str
    saw: list[Part]
    did: list[Part]
    reward: float
    total: float
    illegal: str
    info: str
    notes: list[str]
    tokens: int


class Final(msgspec.Struct, frozen=True):
    """What an agent was told when its part ended."""

    agent: str
    saw: list[Part]
    info: str


class Transcript(msgspec.Struct, frozen=True):
    """All turns of an episode, or one agent's, and what everybody was told in the beginning and at the end."""

    told: list[Told]
    turns: list[Shown]
    finals: list[Final]


def transcript(episode: Episode, agent: str = "") -> Transcript:
    """The episode as the whole table sees it, or as one agent does: what that one was shown, and what it did."""
    roles = {name: role for name, role in episode.roles.items() if agent in ("", name)}
    told = [Told(name, parts) for name, role in roles.items() if (parts := parts_told(role))]
    totals: dict[str, float] = {}
    turns = []
    for number, turn in enumerate(episode.turns, 1):
        totals[turn.agent] = totals.get(turn.agent, 0.0) + turn.reward
        if agent in ("", turn.agent):
            turns.append(_shown(number, turn, totals[turn.agent]))
    finals = [_final(name, info) for name, info in episode.final_infos.items() if agent in ("", name)]
    return Transcript(told, turns, finals)


def parts_told(role: Role) -> list[Part]:
    """The parts of a role; none of one that tells nothing."""
    instructions = [Part("text", role.instructions)] if role.instructions else []
    return [*instructions, *[Part("tool", _usage(tool), tool.name) for tool in role.tools]]


def parts_of(observation: Observation) -> list[Part]:
    """The parts of an observation; those of an unknown form are told as JSON."""
    if isinstance(observation, str):
        return [Part("text", observation)]
    return [_part(part) for part in observation]


def parts_said(response: Response) -> list[Part]:
    """The parts of a response, in their order: what was thought, what was said, and the calls of tools."""
    text, parts = response.text, []
    if response.reasoning:
        parts.append(Part("reasoning", response.reasoning))
    if text.lstrip().startswith("<think>"):  # of a back end that does not tell it apart
        thought, _, text = text.lstrip().removeprefix("<think>").partition("</think>")
        parts.append(Part("reasoning", thought))
    place = 0
    while (start := text.find(OPEN, place)) >= 0:
        end = text.find(CLOSE, start)
        end = len(text) if end < 0 else end + len(CLOSE)
        parts += [Part("text", text[place:start].strip("\n")), *map(_call, read_calls(text[start:end]).calls)]
        place = end
    parts.append(Part("text", text[place:].lstrip("\n") if parts else text))
    kept = [part for part in parts if part.text.strip() or part.kind != "text"]
    return kept or [Part("text", "")]


def pretty(value: Any) -> str:
    """Plain data as JSON that people can read."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _shown(number: int, turn: Turn, total: float) -> Shown:
    illegal = turn.info.get("illegal", "")
    return Shown(
        number=number,
        agent=turn.agent,
        saw=parts_of(turn.observation),
        did=parts_said(turn.response),
        reward=turn.reward,
        total=total,
        illegal=illegal if isinstance(illegal, str) and illegal else "illegal" if "illegal" in turn.info else "",
        info=pretty(turn.info) if turn.info else "",
        notes=list(_notes(turn.response)),
        tokens=len(turn.response.token_ids),
    )


def _final(agent: str, info: Mapping[str, Any]) -> Final:
    rest = {name: value for name, value in info.items() if name != "final_observation"}
    seen = info.get("final_observation", [])
    is_observation = isinstance(seen, str) or (isinstance(seen, list) and all(isinstance(part, dict) for part in seen))
    return Final(
        agent, parts_of(seen if is_observation else [{"type": "other", "value": seen}]), pretty(rest) if rest else ""
    )


def _part(part: Mapping[str, Any]) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return Part("text", text)
        case {"type": "image", "url": str(url)}:
            return Part("image", url)
        case {"type": "tool_result", "text": str(text)}:
            return Part("result", text, str(part.get("name", "")))
    return Part("other", pretty(part), str(part.get("type", "")))


def _usage(tool: ToolSpec) -> str:
    """What a tool does, and the schema of what it takes."""
    return "\n".join([*[tool.description] * bool(tool.description), pretty(tool.parameters)])


def _call(call: Any) -> Part:
    if isinstance(call, BrokenCall):
        return Part("broken call", call.text, call.reason)
    return Part("call", pretty(call.arguments), call.name)


def _notes(response: Response) -> Iterator[str]:
    """What is worth knowing of an answer, each in a few words."""
    read, written = (response.usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    if read is not None or written is not None:
        yield f"{read or 0:,} + {written or 0:,} tokens"
    if response.seconds:
        yield f"{response.seconds:.2f} s" if response.seconds < 100 else f"{response.seconds:.0f} s"
    if response.cost is not None:
        yield f"${response.cost:.4f}"
    if response.finish_reason not in ("stop", "tool_calls"):
        yield f"ended by: {response.finish_reason}"
    if response.retries:
        yield f"asked {response.retries + 1} times"
    if response.cached:
        yield "from the cache"
    if response.cut:
        yield f"{response.cut} earlier exchange{'s' * (response.cut > 1)} left out of the prompt"
    if response.version:
        yield f"policy version {response.version}"
