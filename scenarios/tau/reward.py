"""What the user's seat earns, so that it can be trained too.

A reward is a function of the finished dialogue. "task": the assistant's reward; a user who tells what is
needed when it is needed earns more. "fidelity": how true the user stays to its instruction, so that it does
not learn to make things easy by inventing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from marl_gem.errors import LLMError
from marl_gem.llm import LLM, Sampling
from marl_gem.scenarios.tau.domain import Task, Verdict

_DETAIL = re.compile(r"[\w#@.\-]*\d[\w#@.\-]*|[\w.\-]+@[\w.\-]+")
"""Whatever holds a digit or looks like an email address: numbers, ids, zip codes, dates."""


class Dialogue(NamedTuple):
    """A finished dialogue: `messages` are (speaker, text), tool calls left out; `stopped`: the user ended it well."""

    task: Task
    messages: tuple[tuple[str, str], ...]
    verdict: Verdict
    stopped: bool


UserReward: TypeAlias = Callable[[Dialogue], float]


def task_reward(dialogue: Dialogue) -> float:
    """The assistant's reward."""
    return dialogue.verdict.reward


def fidelity(dialogue: Dialogue) -> float:
    """The share of details the user gave that it could know, from 0 to 1; 0 if it did not end the dialogue itself.

    A detail is known if it stands in the instruction or if the assistant said it before.
    """
    known = set(_details(dialogue.task.instruction))
    told = invented = 0
    for speaker, text in dialogue.messages:
        details = _details(text)
        if speaker == "user":
            told += len(details)
            invented += sum(detail not in known for detail in details)
        else:
            known.update(details)
    return 0.0 if not dialogue.stopped else 1.0 if not told else 1 - invented / told


class Judge:
    """A language model reads instruction and dialogue, and says from 0 to 10 how well the user played its part."""

    blocking = True

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    def __deepcopy__(self, memo: dict[int, Any]) -> Judge:
        return self  # forked envs ask the same model

    def __call__(self, dialogue: Dialogue) -> float:
        """From 0 to 1.

        Raises:
            LLMError: the model fails, or answers without a number from 0 to 10.
        """
        spoken = "\n".join(f"{speaker}: {text}" for speaker, text in dialogue.messages)
        question = (
            "Somebody was to play a customer by an instruction. Say how well they did: whether all they said follows "
            "from the instruction, whether they told what was needed, and stayed in their part. Answer with one whole "
            f"number from 0 (not at all) to 10 (perfectly).\n\nInstruction:\n{dialogue.task.instruction}\n\n"
            f"Dialogue:\n{spoken}"
        )
        answer = asyncio.run(
            self.llm.complete([{"role": "user", "content": question}], Sampling(max_tokens=8, temperature=0.0), 0)
        )
        number = re.search(r"\b(10|\d)\b", answer.text)
        if not number:
            raise LLMError(f"{self.llm.name} should judge a user from 0 to 10, but said {answer.text[:80]!r}")
        return int(number[1]) / 10


USER_REWARDS: dict[str, UserReward] = {"task": task_reward, "fidelity": fidelity}


def _details(text: str) -> list[str]:
    return [detail.strip(".-").lower() for detail in _DETAIL.findall(text)]
