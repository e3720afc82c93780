"""Strategies for the assistant. Without one, an `LLMPolicy` calls tools in its back end's format.

    act         every answer is one action, written as JSON; the instructions list the tools
    react       the same, after a thought that is not sent
    few_shot    the instructions hold example dialogues

These are the agents that tau-bench compares (arXiv 2406.12045); on the command line they are
`--seat assistant=MODEL@URL,strategy=act`. `act` and `react` work with models that were not trained to call tools.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from marl_gem.errors import ConfigError
from marl_gem.policies import Policy
from marl_gem.scenarios.tau.policies import Rephrased, split_thought
from marl_gem.seeding import derive_seed
from marl_gem.tools.calls import CLOSE, OPEN, read_calls
from marl_gem.types import Episode, Observation, Role, ToolCall, ToolSpec
from marl_gem.views import as_text

SPEAK = "respond"
"""The action that sends its argument `content` to the customer."""

_SPEAKING = ToolSpec(
    SPEAK,
    "Say something to the customer.",
    {
        "type": "object",
        "properties": {"content": {"type": "string", "description": "What you say."}},
        "required": ["content"],
    },
)
_TOOLS = """\
# Actions

What you can do, each as JSON with the schema of its arguments:

{tools}"""
_ACT = """\
Every answer is one action and nothing else, with its arguments as JSON, in this form:

Action: {"name": "...", "arguments": {...}}"""
_REACT = """\
Every answer is a thought, which nobody else reads, and then one action, with its arguments as JSON, in this form:

Thought: what you make of it, and what to do next
Action: {"name": "...", "arguments": {...}}"""
_EXAMPLES = """\
# Examples

Dialogues that went well:

{examples}"""


def act(policy: Policy) -> Policy:
    """An assistant that writes each action as JSON.

    Broken JSON is answered with an error; plain text is sent to the customer.

    Args:
        policy: the policy to wrap, mostly an `LLMPolicy`.
    """
    return Rephrased(policy, "act", role=_in_text(_ACT), say=_action, hear=_with_speakers)


def react(policy: Policy) -> Policy:
    """As `act`, with a thought before the action; the thought is only in `Response.reasoning`."""
    return Rephrased(policy, "react", role=_in_text(_REACT), say=_action, hear=_with_speakers)


def few_shot(policy: Policy, examples: Sequence[str], shots: int = 5) -> Policy:
    """An assistant with examples in its instructions, drawn for each episode from its seed.

    Args:
        policy: the policy to wrap.
        examples: dialogues as `example` writes them; their tasks should not be those of the evaluation.
        shots: the number of examples per episode; all of them if there are fewer.

    Raises:
        ConfigError: there are no examples, or `shots` is not a whole number from 1 up.
    """
    if not examples or not isinstance(shots, int) or shots < 1:
        raise ConfigError(f"few_shot needs examples and a number of shots from 1 up, not {len(examples)} and {shots!r}")

    def shown(role: Role, seed: int) -> Role:
        drawn = random.Random(derive_seed(seed, "examples")).sample(examples, min(shots, len(examples)))
        shown_examples = "\n\n".join(f"Example {number}\n\n{text}" for number, text in enumerate(drawn, 1))
        return Role(f"{role.instructions.rstrip()}\n\n{_EXAMPLES.format(examples=shown_examples)}", role.tools)

    return Rephrased(policy, f"{min(shots, len(examples))}-shot", role=shown)


def example(episode: Episode, longest: int = 400) -> str:
    """A recorded dialogue as the text of an example; tool results are cut after `longest` characters."""
    lines: list[str] = []
    for turn in episode.turns_of("assistant"):
        lines += _overheard(turn.observation, longest)
        text, calls = read_calls(turn.response.text)
        called = [call for call in calls if isinstance(call, ToolCall)]
        lines += [f"You call: {_json(name=call.name, arguments=call.arguments)}" for call in called]
        lines += [] if calls else [f"You: {text}"]
    return "\n".join(lines)


# What the model reads


def _in_text(form: str) -> Callable[[Role, int], Role]:
    def with_tools(role: Role, seed: int) -> Role:
        lines = [
            _json(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in (*role.tools, _SPEAKING)
        ]
        return Role("\n\n".join([role.instructions.rstrip(), _TOOLS.format(tools="\n".join(lines)), form]))

    return with_tools


def _with_speakers(observation: Observation) -> str:
    """Each message with its speaker in front, so that a customer's message cannot pass for a tool result."""
    return "\n".join(_overheard(observation))


def _overheard(observation: Observation, longest: int | None = None) -> list[str]:
    parts = [{"type": "text", "text": observation}] if isinstance(observation, str) else observation
    return [
        _line(f"Answer of {part['name'] or 'your call'}", _cut(part["text"], longest))
        if part.get("type") == "tool_result"
        else _line("Customer", as_text([part]))
        for part in parts
    ]


def _line(speaker: str, text: str) -> str:
    """A message with its speaker; later lines are indented, so that none of them can start with another speaker."""
    return "\n  ".join(f"{speaker}: {text}".splitlines())


def _cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[:longest]} ..."


def _json(**fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False)


# What the model writes


def _action(text: str) -> tuple[str, str]:
    """The action in the env's format, and the thought.

    A text that begins like JSON becomes a call even if it is broken: the env answers with the error, and the customer
    does not see it.
    """
    thought, action = split_thought(text, "action")
    if action is None:
        return _as_call(""), thought
    written = action.removeprefix("```").removeprefix("json").lstrip()
    if not written.startswith("{"):
        return action, thought
    call, end = _first_object(written)
    if isinstance(call, dict) and call.get("name") == SPEAK and isinstance(call.get("arguments"), dict):
        content = call["arguments"].get("content")
        if isinstance(content, str):
            return content.replace(OPEN, "<tool call>"), thought  # text to the customer must not become a call
    return _as_call(written[:end]), thought


def _as_call(text: str) -> str:
    return OPEN + text.replace("</", "<\\/") + CLOSE  # the same JSON, and no closing tag within it


def _first_object(text: str) -> tuple[Any, int]:
    """The JSON value at the start of a text and the index of its end; None and the length if it is broken."""
    try:
        return json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, len(text)
