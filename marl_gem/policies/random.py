"""A policy that plays at random."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from marl_gem.policies.base import Agent, FunctionAgent, Info
from marl_gem.types import Observation, Role, ToolSpec

SMALL_TALK = ("yes", "no", "1", "2", "A", "I pass.", "What do you think?", "I agree.")
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_BRACKETED_WITHIN_A_LINE = re.compile(r"(?<=[^\n])\[[^\[\]\n]{1,40}\]")


class RandomPolicy:
    """Picks any legal action, each as likely as the other; where none are listed it babbles, see `babble`.

    So any scenario can be played without a model. Babble is a baseline only where a scenario lists no actions.
    """

    name = "random"

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        rng = random.Random(seed)

        def pick(observation: Observation, info: Info) -> str:
            legal = info.get("legal_actions")
            return str(rng.choice(legal)) if legal else babble(rng, role, observation)

        return FunctionAgent(pick)


def babble(rng: random.Random, role: Role, observation: Observation) -> str:
    """A text where no actions are listed: a call of a tool, a text in brackets that the agent was shown, or small talk.

    Args:
        rng: draws it.
        role, observation: what the agent was shown.
    """
    if role.tools and rng.random() < 0.5:
        return _call(rng, rng.choice(role.tools))
    shown = f"{role.instructions}\n{observation}"
    # Brackets at the start of a line are mostly the name of a speaker.
    in_brackets = _BRACKETED_WITHIN_A_LINE.findall(shown) or _BRACKETED.findall(shown)
    return str(rng.choice(in_brackets or SMALL_TALK))


def _call(rng: random.Random, tool: ToolSpec) -> str:
    """A call whose arguments fit the tool's schema, as far as its types go."""
    properties = tool.parameters.get("properties") or {}
    arguments = {name: _argument(rng, schema) for name, schema in properties.items()}
    return f"<tool_call>{json.dumps({'name': tool.name, 'arguments': arguments})}</tool_call>"


def _argument(rng: random.Random, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    ready = {
        "integer": rng.randrange(10),
        "number": rng.random(),
        "boolean": rng.random() < 0.5,
        "array": [],
        "object": {},
    }
    return ready.get(str(schema.get("type")), rng.choice(SMALL_TALK))
