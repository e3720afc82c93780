"""The rewards of both seats, and the reasons for a reward of 0.

The assistant's reward is the official one; `failure` names what is wrong. The user's is a function of the
finished dialogue:

    task        the same as the assistant's
    fidelity    how closely the user follows its instruction: invents nothing, gives what is needed
    judge:MODEL a language model's score, see `judge.Judge`
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from marl_gem.errors import InvalidOption
from marl_gem.scenarios.tau.dialogue import Dialogue, End, UserReward
from marl_gem.scenarios.tau.domain import Task, Verdict
from marl_gem.scenarios.tau.judge import Judge

_NUMBER = re.compile(r"\d{3,}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_NAME = re.compile("[A-Z0-9@]")
_WORD = re.compile(r"\w+")
_COPIED = 12
"""A message with this many consecutive words of the instruction counts as copied."""


def failure(verdict: Verdict, end: End, may_hand_over: bool = True) -> str:
    """The kind of a failure: "cut off", "broken call", "handed over", "data", "outputs" or "data and outputs".

    Args:
        verdict: the official reward's parts.
        end: how the dialogue ended.
        may_hand_over: whether a transfer to a human is allowed in this task.

    Returns:
        The kind; empty if the task was solved.
    """
    if end in ("cut off", "broken call"):
        return end
    if end == "handed over" and not may_hand_over:
        return end
    return " and ".join(["data"] * bool(verdict.differences) + ["outputs"] * bool(verdict.missing))


def task_reward(dialogue: Dialogue) -> float:
    """The assistant's reward."""
    return dialogue.verdict.reward


def fidelity(dialogue: Dialogue) -> float:
    """How closely the user follows its instruction, from 0 to 1: the product of the shares in `Fidelity`."""
    return math.prod(measure_fidelity(dialogue))


class Fidelity(NamedTuple):
    """Shares from 0 to 1."""

    # Of the details (long numbers, email addresses) that the user gave: those in the instruction or in an earlier
    # message of the assistant. Others are invented.
    known: float

    # Of the names, ids and numbers of the instruction that are arguments of reference calls: those that the user gave.
    # If there are none: of the details in the instruction. If there are none either: 1 if the user wrote anything.
    needed: float

    # Of the user's messages: those without 12 consecutive words of the instruction.
    own_words: float

    # 0 if the dialogue was cut off, else 1.
    ended: float


def measure_fidelity(dialogue: Dialogue) -> Fidelity:
    """The shares that `fidelity` multiplies."""
    messages = dialogue.user_messages
    stretches = set(_stretches(dialogue.task.instruction))
    own_words = [not stretches.intersection(_stretches(text)) for text in messages]
    return Fidelity(
        known=_known(dialogue),
        needed=_needed(dialogue.task, messages),
        own_words=_share(own_words),
        ended=float(dialogue.end != "cut off"),
    )


USER_REWARDS: dict[str, UserReward] = {"task": task_reward, "fidelity": fidelity}


def reward_named(name: str) -> UserReward:
    """The user's reward by a name: "task", "fidelity" or "judge:MODEL", as in judge:qwen@http://127.0.0.1:8000/v1.

    Raises:
        InvalidOption: there is no reward of this name.
        ConfigError, LLMError, MissingPackage: the judge's model cannot be made.
    """
    kind, colon, model = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind == "judge" and colon:
        return _judge(model)
    if colon or kind not in USER_REWARDS:
        raise InvalidOption(
            f"user_reward is one of {', '.join(sorted(USER_REWARDS))}, judge:MODEL, or a function of a Dialogue, "
            f"not {name!r}"
        )
    return USER_REWARDS[kind]


@lru_cache(None)
def _judge(model: str) -> UserReward:
    """The judge for a model, shared by all envs, and so the model's connections and its circuit breaker."""
    from marl_gem.llm.models import Models

    return Judge(Models().get(model))


def _known(dialogue: Dialogue) -> float:
    known = set(_details(dialogue.task.instruction))
    given: list[bool] = []
    for speaker, text in dialogue.messages:
        details = _details(text)
        if speaker == "user":
            given += [detail in known for detail in details]
        else:
            known.update(details)
    return _share(given)


def _needed(task: Task, messages: list[str]) -> float:
    instruction = _words(task.instruction)
    named = {_words(text) for action in task.actions for text in _texts(action.arguments) if _NAME.search(text)}
    spoken = "".join(map(_words, messages))
    if given := [words in spoken for words in named if words and words in instruction]:
        return _share(given)
    details = {detail for text in messages for detail in _details(text)}
    if given := [detail in details for detail in set(_details(task.instruction))]:
        return _share(given)
    return float(bool(messages))


def _details(text: str) -> list[str]:
    """Numbers of three digits or more, also within ids, and email addresses."""
    text = _THOUSANDS.sub("", text.lower())
    return _NUMBER.findall(text) + [word.strip("<>()[],.;:!?\"'") for word in text.split() if "@" in word]


def _stretches(text: str) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return (tuple(words[start : start + _COPIED]) for start in range(len(words) - _COPIED + 1))


def _words(text: str) -> str:
    """The words of a text with a space before and after each, so that a search finds complete words; empty if none."""
    words = _WORD.findall(text.lower())
    return f" {' '.join(words)} " if words else ""


def _texts(value: Any) -> Iterator[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _share(holds: list[bool]) -> float:
    """The share of true values; 1 if there are none."""
    return sum(holds) / len(holds) if holds else 1.0
