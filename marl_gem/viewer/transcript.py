"""An episode as it is shown, on the page and in the terminal: every observation and response as parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from marl_gem.runs.outcomes import Outcome, outcomes
from marl_gem.runs.parts import Part, observation_parts, pretty, response_parts, role_parts
from marl_gem.types import Episode, Response, Turn
from marl_gem.viewer.messages import Messages, ShownPart
from marl_gem.viewer.reasons import Reason, illegal_text, reasons


class ShownRole(msgspec.Struct, frozen=True):
    """An agent's role: its instructions, then its tools."""

    agent: str
    parts: list[Part]


class ShownTurn(msgspec.Struct, frozen=True):
    """A turn.

    `number` counts the turns of the episode from 1. `total` is the sum of the agent's rewards so far. `illegal` is the
    env's reason if the move was illegal, `info` the complete info as JSON. `notes` are facts about the response, such
    as its time, its cost and its retries. `tokens` counts the recorded tokens. `heard` are the agents that observed
    the message. Turns with the same `step` above 0 were taken at the same time.
    """

    number: int
    agent: str
    observation: list[ShownPart]
    response: list[Part]
    reward: float
    total: float
    illegal: str
    info: str
    notes: list[str]
    tokens: int
    heard: list[str] = []
    step: int = 0


class ShownEnd(msgspec.Struct, frozen=True):
    """The final observation and info of an agent."""

    agent: str
    observation: list[ShownPart]
    info: str


class Transcript(msgspec.Struct, frozen=True):
    """The roles, turns and final infos of an episode, of all agents or of one.

    `reasons` say why it did not succeed. `groups` has the group of each agent: its team or role, where an info names
    one, or else its name without a number.
    """

    roles: list[ShownRole]
    turns: list[ShownTurn]
    ends: list[ShownEnd]
    reasons: list[Reason] = []
    groups: dict[str, str] = {}


def transcript(episode: Episode, agent: str = "", judged: Mapping[str, Outcome] | None = None) -> Transcript:
    """The transcript of an episode: of all agents, or what one agent observed and answered.

    Args:
        episode: the episode.
        agent: the agent whose view it is; empty for all.
        judged: what the episode came to for each agent, if a run's reader has judged it.
    """
    roles = {name: role_parts(role) for name, role in episode.roles.items() if agent in ("", name)}
    messages = Messages(episode.messages)
    seen = _observations(episode, messages)
    ends = [_end(name, info, messages, episode) for name, info in episode.final_infos.items()]
    totals: dict[str, float] = {}
    turns = []
    for number, (turn, observed) in enumerate(zip(episode.turns, seen, strict=True), 1):
        totals[turn.agent] = totals.get(turn.agent, 0.0) + turn.reward
        if agent in ("", turn.agent):
            heard = messages.heard.get(number, [])
            turns.append(_turn(number, turn, observed, totals[turn.agent], heard))
    return Transcript(
        roles=[ShownRole(name, parts) for name, parts in roles.items() if parts],
        turns=turns,
        ends=[end for end in ends if agent in ("", end.agent)],
        reasons=reasons(episode, outcomes(episode) if judged is None else judged),
        groups=_groups(episode),
    )


def _observations(episode: Episode, messages: Messages) -> list[list[ShownPart]]:
    """Each turn's observation, with what it repeats. Agents that act at the same time hear nothing of each other."""
    seen: list[list[ShownPart]] = []
    waiting: list[tuple[int, Turn]] = []
    step = 0
    last: dict[str, tuple[int, Response]] = {}
    for number, turn in enumerate(episode.turns, 1):
        if waiting and not (turn.step and turn.step == waiting[-1][1].step):
            step += 1
            for earlier, spoken in waiting:
                messages.add(earlier, spoken.agent, spoken.response, step)
            waiting = []
        parts = messages.split(number, turn.agent, observation_parts(turn.observation))
        seen.append(_answering(parts, last.get(turn.agent)))
        waiting.append((number, turn))
        last[turn.agent] = (number, turn.response)
    for earlier, spoken in waiting:
        messages.add(earlier, spoken.agent, spoken.response, step + 1)
    return seen


def _answering(parts: list[ShownPart], last: tuple[int, Response] | None) -> list[ShownPart]:
    """Results of tools with the turn whose calls they answer, in their order, as far as the names fit."""
    if not last or not any(part.kind == "result" for part in parts):
        return parts
    number, response = last
    calls = iter([part for part in response_parts(response) if part.kind in ("call", "broken call")])
    paired, fits = [], True
    for part in parts:
        if part.kind == "result" and fits:
            call = next(calls, None)
            fits = call is not None and (call.kind == "broken call" or part.name in ("", call.name))
            part = msgspec.structs.replace(part, turn=number) if fits else part
        paired.append(part)
    return paired


def _groups(episode: Episode) -> dict[str, str]:
    agents = dict.fromkeys([*episode.returns, *episode.models, *(turn.agent for turn in episode.turns)])
    named: dict[str, str] = {}
    for agent, info in [*episode.final_infos.items(), *((turn.agent, turn.info) for turn in episode.turns)]:
        group = next((info[key] for key in ("team", "role") if isinstance(info.get(key), str)), "")
        if group:
            named.setdefault(agent, group)
    return {agent: named.get(agent) or re.sub(r"[\W_]*\d+$", "", agent) or agent for agent in agents}


def _turn(number: int, turn: Turn, observed: list[ShownPart], total: float, heard: list[str]) -> ShownTurn:
    return ShownTurn(
        number=number,
        agent=turn.agent,
        observation=observed,
        response=response_parts(turn.response),
        reward=turn.reward,
        total=total,
        illegal=illegal_text(turn.info),
        info=pretty(turn.info) if turn.info else "",
        notes=list(_notes(turn.response)),
        tokens=len(turn.response.token_ids),
        heard=heard,
        step=turn.step,
    )


def _end(agent: str, info: Mapping[str, Any], messages: Messages, episode: Episode) -> ShownEnd:
    rest = {name: value for name, value in info.items() if name != "final_observation"}
    seen = info.get("final_observation", [])
    is_observation = isinstance(seen, str) or (isinstance(seen, list) and all(isinstance(part, dict) for part in seen))
    parts = observation_parts(seen if is_observation else [{"type": "other", "value": seen}])
    last = next(((n, t.response) for n, t in reversed([*enumerate(episode.turns, 1)]) if t.agent == agent), None)
    shown = _answering(messages.split(len(episode.turns) + 1, agent, parts), last)
    return ShownEnd(agent, shown, pretty(rest) if rest else "")


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
