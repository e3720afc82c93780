"""An episode as it is shown, on the page and in the terminal: every observation and response as parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from marl_gem.runs.parts import Part, observation_parts, pretty, response_parts, role_parts
from marl_gem.types import Episode, Response, Turn


class ShownRole(msgspec.Struct, frozen=True):
    """An agent's role: its instructions, then its tools."""

    agent: str
    parts: list[Part]


class ShownTurn(msgspec.Struct, frozen=True):
    """A turn.

    `number` counts the turns of the episode from 1. `total` is the sum of the agent's rewards so far. `illegal` is the
    env's reason if the move was illegal, `info` the complete info as JSON. `notes` are facts about the response, such
    as its time, its cost and its retries. `tokens` counts the recorded tokens.
    """

    number: int
    agent: str
    observation: list[Part]
    response: list[Part]
    reward: float
    total: float
    illegal: str
    info: str
    notes: list[str]
    tokens: int


class ShownEnd(msgspec.Struct, frozen=True):
    """The final observation and info of an agent."""

    agent: str
    observation: list[Part]
    info: str


class Transcript(msgspec.Struct, frozen=True):
    """The roles, turns and final infos of an episode, of all agents or of one."""

    roles: list[ShownRole]
    turns: list[ShownTurn]
    ends: list[ShownEnd]


def transcript(episode: Episode, agent: str = "") -> Transcript:
    """The transcript of an episode: of all agents, or what one agent observed and answered."""
    roles = {name: role_parts(role) for name, role in episode.roles.items() if agent in ("", name)}
    totals: dict[str, float] = {}
    turns = []
    for number, turn in enumerate(episode.turns, 1):
        totals[turn.agent] = totals.get(turn.agent, 0.0) + turn.reward
        if agent in ("", turn.agent):
            turns.append(_turn(number, turn, totals[turn.agent]))
    return Transcript(
        roles=[ShownRole(name, parts) for name, parts in roles.items() if parts],
        turns=turns,
        ends=[_end(name, info) for name, info in episode.final_infos.items() if agent in ("", name)],
    )


def _turn(number: int, turn: Turn, total: float) -> ShownTurn:
    illegal = turn.info.get("illegal", "")
    return ShownTurn(
        number=number,
        agent=turn.agent,
        observation=observation_parts(turn.observation),
        response=response_parts(turn.response),
        reward=turn.reward,
        total=total,
        illegal=illegal if isinstance(illegal, str) and illegal else "illegal" if "illegal" in turn.info else "",
        info=pretty(turn.info) if turn.info else "",
        notes=list(_notes(turn.response)),
        tokens=len(turn.response.token_ids),
    )


def _end(agent: str, info: Mapping[str, Any]) -> ShownEnd:
    rest = {name: value for name, value in info.items() if name != "final_observation"}
    seen = info.get("final_observation", [])
    is_observation = isinstance(seen, str) or (isinstance(seen, list) and all(isinstance(part, dict) for part in seen))
    parts = observation_parts(seen if is_observation else [{"type": "other", "value": seen}])
    return ShownEnd(agent, parts, pretty(rest) if rest else "")


def _notes(response: Response) -> Iterator[str]:
    """Facts about a response, each in a few words."""
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
