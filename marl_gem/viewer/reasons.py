"""Why an episode did not succeed: the error, the limit, what agents failed at, and their illegal moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from marl_gem.runs.outcomes import Outcome
from marl_gem.types import Episode

MOST_ILLEGAL, MOST_CHECKS = 10, 50
"""So many illegal moves, and failed checks, are listed."""

Kind: TypeAlias = Literal["error", "limit", "failure", "illegal"]

OTHER_LISTS = {"legal_actions", "final_observation", "calls", "notes", "ignored"}
"""Lists in infos that are no checks."""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an episode, or some of its agents, did not succeed.

    `checks` are the failed checks of a reward, as in "differences: orders #W1". `turn` is that of an illegal move.
    """

    kind: Kind
    text: str
    agents: list[str] = []
    checks: list[str] = []
    turn: int = 0


def reasons(episode: Episode, outcomes: Mapping[str, Outcome]) -> list[Reason]:
    """Everything that went wrong in an episode; empty if nothing did, or if a game was only lost.

    Args:
        episode: the episode.
        outcomes: what it came to, by agent.
    """
    found = list(_ending(episode))
    failed: dict[tuple[str, ...], list[str]] = {}
    for agent, outcome in outcomes.items():
        info = episode.final_infos.get(agent, {})
        checks = list(_checks(info))
        sentence = info.get("reason")
        words = [outcome.reason, sentence if isinstance(sentence, str) and (outcome.reason or checks) else ""]
        is_task = outcome.result is None
        if not outcome.success and (is_task or outcome.reason):
            text = ": ".join(word for word in words if word) or "the task was not solved"
            failed.setdefault((text, *checks), []).append(agent)
    found += [Reason("failure", text, agents, checks) for (text, *checks), agents in failed.items()]
    illegal = [(number, turn) for number, turn in enumerate(episode.turns, 1) if "illegal" in turn.info]
    found += [
        Reason("illegal", illegal_text(turn.info), [turn.agent], turn=number) for number, turn in illegal[:MOST_ILLEGAL]
    ]
    if len(illegal) > MOST_ILLEGAL:
        found.append(Reason("illegal", f"and {len(illegal) - MOST_ILLEGAL} more illegal moves"))
    return found


def illegal_text(info: Mapping[str, Any]) -> str:
    """The env's reason why a move was illegal; empty if it was not."""
    illegal = info.get("illegal", "")
    return illegal if isinstance(illegal, str) and illegal else "illegal" if "illegal" in info else ""


def _ending(episode: Episode) -> Iterator[Reason]:
    if error := episode.error:
        agents = [error.agent] if error.agent else []
        yield Reason("error", f"{error.type} in {error.origin}: {error.message}", agents)
    if episode.limit:
        yield Reason("limit", f"ended by the limit on {episode.limit}")
    elif episode.ending == "truncated":
        yield Reason("limit", "the scenario cut the episode short")


def _checks(info: Mapping[str, Any]) -> Iterator[str]:
    """The lists of texts in a last info, and checks that are false: what a reward missed."""
    lines = []
    for name, value in info.items():
        title = name.replace("_", " ")
        if name not in OTHER_LISTS and isinstance(value, list) and value and all(isinstance(i, str) for i in value):
            lines += [f"{title}: {item}" for item in value]
        elif isinstance(value, dict):
            lines += [f"{title}: {check}" for check, passed in value.items() if passed is False]
    yield from lines[:MOST_CHECKS]
    if len(lines) > MOST_CHECKS:
        yield f"and {len(lines) - MOST_CHECKS} more"
