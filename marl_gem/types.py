"""The records that cross boundaries, and how they fit together.

    Role          an agent's instructions and tools, which it gets before its first turn
      ToolSpec    one tool that an agent may call, with its JSON schema
    Observation   what is new to an agent since it last acted: text or content parts
    InfoKeys      the keys of an agent's info that have a fixed meaning
    Message       one message of the chat that a model gets
    ToolCall      a call of a tool, as it is written in a response's text
    Response      an agent's answer: the action as text, with its tokens if a model made it
    Turn          one agent's observation, response, reward and info
    SentMessage   what an agent or the scenario sent, and the agents that heard it
    Episode       all turns of one play-through, with seed, returns, ending and errors
      Limits        the most that an episode may take
      EpisodeError  why an episode could not be played to its end, and where the error came from
    Metadata      what a scenario declares of itself, which checks compare with play

Every record is frozen plain data: `to_json` writes any of them as one line, `from_json` reads it back
equal. Text may hold any Unicode, lone surrogates included.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NoReturn, NotRequired, TypeAlias, TypedDict, TypeVar

import msgspec

from marl_gem import bounds
from marl_gem.errors import RecordError
from marl_gem.faults import message_of
from marl_gem.plain_data import PlainCopier

ContentPart: TypeAlias = dict[str, Any]
"""One part of an observation.

    {"type": "text", "text": ...}                              text
    {"type": "image", "url": ...}                              an image; a data: URL contains it
    {"type": "tool_result", "name": ..., "text": ...}          the result of a tool that the agent called

Only an env makes tool results: text that another agent wrote is text, whatever it looks like.
"""

Observation: TypeAlias = str | list[ContentPart]


class Message(TypedDict):
    """One chat message: of the role system, user, assistant or tool.

    An assistant's message may have the ids of the tokens that were sampled, the model's reasoning, and the ids that its
    server gave to its calls of tools. A tool's message has the tool's `name`; such messages answer the calls of the
    last assistant's message in order.
    """

    role: str
    content: str | list[ContentPart]
    token_ids: NotRequired[tuple[int, ...]]
    reasoning: NotRequired[str]
    call_ids: NotRequired[tuple[str, ...]]
    name: NotRequired[str]


class InfoKeys(TypedDict, total=False):
    """The keys of an agent's info, `infos[agent]`, that have a fixed meaning; every one may be missing.

    A scenario may add keys of its own, with values that are plain data (text, finite numbers, booleans, None, lists,
    and dicts with text keys). `marl_gem.testing.check_infos` compares what a scenario writes with these types.
    """

    # The text of every legal action, in the info of an agent that acts next. Written by the env, from the scenario's
    # `legal_actions(agent)`. Read by RandomPolicy, scripted policies, the adapters to other libraries and training.
    legal_actions: list[str]

    # What was wrong with the agent's last action; missing if nothing was. Written by the scenario, in the step of the
    # action. Read by evaluation, training metrics and the viewer, which count the actions that have it.
    illegal: str

    # What the agent would have observed next, in the info with which it terminates or is truncated. Written by the
    # env. Read by loops, the adapters to other libraries and the viewer.
    final_observation: Observation

    # Whether the agent solved its task, in its last info. Written by scenarios whose returns do not say it. Read by
    # evaluation, training and the viewer, before anything else.
    success: bool

    # Why the agent did not solve its task, in a word or two; empty if it did. Written by the scenario in the agent's
    # last info. Read by evaluation, which counts episodes by it.
    failure: str

    # Why the agent terminated, as a sentence for people. Written by the scenario in the agent's last info. Read by
    # `marl-gem play`.
    reason: str

    # The agent's team and its role in this episode, such as "wolves" and "seer", where a scenario has them. Written by
    # the scenario, mostly in `_reset`; what is written last counts. Read by evaluation, which has rows for each, and in
    # contests: the agents of a team win together. A language model is never shown them.
    team: str
    role: str

    # The number of the task this episode is about, from 0 to `env.tasks - 1`. Written by scenarios with several tasks,
    # in the infos of `reset`. Read by scripted policies; a language model is never shown it.
    task: int

    # The action that a parser found in the agent's response, None if it found none. Written by
    # `wrappers.ParseAction`, in the step of the response.
    parsed: str | None

    # The calls of tools in the agent's response, in order: {"name": ..., "error": ...}. The error is empty, or says in
    # a word or two why the call failed, see `tools.ToolResult`. Written by `wrappers.ToolEnv`.
    tool_calls: list[dict[str, str]]

    # The agent's return, and the number of steps and of its own turns: {"return": float, "steps": int, "turns": int}.
    # Written by `wrappers.EpisodeStatistics`, in the agent's last info.
    episode: dict[str, float]


Ending: TypeAlias = Literal["terminated", "truncated", "error"]
Origin: TypeAlias = Literal["env", "agent", "llm", "tool"]


TurnOrder: TypeAlias = Literal["sequential", "parallel", "mixed"]


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a scenario declares of itself; `marl_gem.testing.check_env` compares it with play. None: not declared."""

    # The agents' returns sum to zero in every episode: the scenario is a contest.
    zero_sum: bool | None = None

    # "sequential": one agent acts at a time; "parallel": all agents that are alive act together; "mixed": it varies.
    turn_order: TurnOrder | None = None

    # The least and the greatest reward of one agent in one step.
    reward_range: tuple[float, float] | None = None

    # Agents beyond `possible_agents` may join.
    joins: bool = False


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that an agent may call: its name, what it does, and the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class Role(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent gets before its first turn: its instructions (a system prompt) and its tools."""

    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool. `marl_gem.tools.calls` reads calls from a response's text, and writes them there."""

    name: str
    arguments: dict[str, Any]


class Response(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent's answer. A language model adds what it read and sampled, so that training never tokenizes again."""

    # The action. Calls of tools are written in it as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`,
    # whether the model wrote them so or its server returned them apart.
    text: str

    # The token ids of the prompt.
    prompt_ids: tuple[int, ...] = ()

    # The token ids that the model sampled.
    token_ids: tuple[int, ...] = ()

    # For each of `token_ids` the natural logarithm of its probability under the distribution it was drawn from.
    logprobs: tuple[float, ...] = ()

    # Why the model stopped: "stop", "length" or "tool_calls".
    finish_reason: str = "stop"

    # The number of updates of the policy that answered.
    version: int = 0

    # Counts of tokens: "prompt_tokens", "completion_tokens", and others that are parts of these.
    usage: dict[str, int] = {}

    # The model's reasoning, which no other agent observes; not a part of the action.
    reasoning: str = ""

    # In US dollars; None if unknown.
    cost: float | None = None

    # The time that the answer took.
    seconds: float = 0.0

    # The number of times that the request was repeated.
    retries: int = 0

    # Whether it is an earlier answer to the same request.
    cached: bool = False

    # The number of exchanges that the view left out of the prompt because they did not fit.
    cut: int = 0

    # Fields of the request that should have shaped the answer and were not sent, because the server does not take them.
    unsent: tuple[str, ...] = ()

    # The ids that the server gave to the calls of tools, in their order, where it returned them apart from the text.
    # They are sent back with the calls and their results.
    call_ids: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most that one episode may take; an episode that reaches a limit is truncated. None sets no limit.

    Raises:
        ConfigError: a limit is out of range, see `marl_gem.bounds`.
    """

    # Responses of all agents.
    turns: int | None = None

    # Tokens that all models read and wrote.
    tokens: int | None = None

    # Seconds in which agents and env worked; retries and outages of a server do not count, see `episode_clock`.
    seconds: float | None = None

    # In US dollars.
    cost: float | None = None

    # The size of its record, in characters; an episode that exceeds it has failed, and its record is dropped.
    record: int | None = 200_000_000

    def __post_init__(self) -> None:
        ranges = {
            "turns": bounds.TURNS,
            "tokens": bounds.TOKENS,
            "seconds": bounds.SECONDS,
            "cost": bounds.DOLLARS,
            "record": bounds.TOKENS,
        }
        bounds.check_all("limits.", self, ranges)


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One agent's turn. `reward` is the sum of its rewards from this action until its next one.

    `step` is the number of the env's step, from 1, if several agents acted in it; turns of the same step belong
    together. It is 0 if the agent acted alone, and in records of older versions.
    """

    agent: str
    observation: Observation
    response: Response
    reward: float = 0.0
    info: dict[str, Any] = {}
    step: int = 0


class SentMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was sent to agents by `MultiAgentEnv.send`; as text, the line that its hearers observe.

    `sender` is an agent's id, or a narrator's name; empty if the scenario speaks without one. `hearers` are the agents
    that heard it, the sender not among them. `channel` is the name of the channel that it was sent to; empty if it was
    sent to agents. `step` is the number of the step in which it was sent, 0 before the first. In a record, steps are
    those of its turns, see `Turn.step`.
    """

    text: str
    sender: str = ""
    hearers: tuple[str, ...] = ()
    channel: str = ""
    step: int = 0

    def __str__(self) -> str:
        """A sender's further lines are indented, so that none can pass for another sender's."""
        if not self.sender:
            return self.text
        return f"{self.sender}: " + "\n    ".join(self.text.splitlines())


class EpisodeError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an episode failed: where the error came from, the exception's type, its message, the agent."""

    origin: Origin
    type: str
    message: str
    agent: str | None = None


class Episode(msgspec.Struct, frozen=True, omit_defaults=True):
    """All turns of one play-through, in the order in which they were taken.

    `returns` holds every agent's undiscounted sum of rewards, including those before its first and after
    its last turn. `final_infos` holds each agent's last info. `ending` is "terminated" if any agent terminated,
    "truncated" if all agents that were left were cut off, "error" if something failed; `error` says what. `limit` is
    the name of the one of `Limits` that was reached. `repeat` distinguishes episodes with the same seed; `options` are
    those of `reset`. `cost` is in US dollars, None if the price of any model's answer is unknown, or no model
    answered.

    `zero_sum` is what the scenario's `Metadata` declared: True for a contest, which agents win or lose, None if it
    declared nothing, or in a record of an older version.

    `roles` holds the role of each agent that was asked to act. (A policy may give its model more instructions; these
    are in the tokens only.) Records of older versions have none.

    `tags` holds for each agent its "team" and its "role", where the scenario's infos named them.

    `messages` are those that the scenario sent by `MultiAgentEnv.send`; records of older versions have none.
    """

    id: str
    scenario: str
    seed: int
    turns: tuple[Turn, ...]
    returns: dict[str, float]
    ending: Ending
    error: EpisodeError | None = None
    models: dict[str, str] = {}
    usage: dict[str, int] = {}
    cost: float | None = None
    limit: str = ""
    repeat: int = 0
    options: dict[str, Any] = {}
    roles: dict[str, Role] = {}
    final_infos: dict[str, dict[str, Any]] = {}
    seconds: float = 0.0
    zero_sum: bool | None = None
    tags: dict[str, dict[str, str]] = {}
    messages: tuple[SentMessage, ...] = ()

    def turns_of(self, agent: str) -> list[Turn]:
        """The turns of one agent, in order."""
        return [turn for turn in self.turns if turn.agent == agent]


Record = TypeVar("Record", bound=msgspec.Struct)


def to_json(record: msgspec.Struct) -> str:
    """Write a record as one line of JSON, ASCII only, so that any text survives any file.

    Raises:
        RecordError: it holds something that is not plain data, NaN or an infinite float, or a value of another type
            than its field declares; the message says where. `from_json` reads all that is written.
    """
    try:
        _check_record(record, PlainCopier())
        plain = msgspec.to_builtins(record)
        msgspec.convert(plain, type(record))
        return json.dumps(plain, allow_nan=False, separators=(",", ":"))
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"this {type(record).__name__} is not plain data: {message_of(error)}") from error


msgspec.json.Decoder(Episode)
"""msgspec looks at a type when it first decodes one, and crashes if two threads do so at once (0.22): it looks now."""


def from_json(line: str, kind: type[Record]) -> Record:
    """Read back what `to_json` wrote.

    Raises:
        RecordError: if the line is not JSON or does not fit `kind`; the message names the field.
    """
    try:
        return msgspec.convert(read_json(line), kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise RecordError(f"not a {kind.__name__}: {error}") from error


def read_json(text: str) -> Any:
    """Read JSON.

    Raises:
        ValueError: it is no JSON, or holds NaN or infinities, or more levels than Python can take.
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _check_record(record: msgspec.Struct, copier: PlainCopier, path: str = "") -> None:
    """Raise for values that JSON would change: sets, bytes, dates, keys that are not text."""
    for name in record.__struct_fields__:
        field = getattr(record, name)
        if type(field) in _SCALARS or (type(field) is tuple and _SCALARS.issuperset(map(type, field))):
            continue
        if isinstance(record, Episode) and name == "roles":  # the one dict that holds records
            copier.copy(dict.fromkeys(field), f"{path}{name}")
            field = tuple(field.values())
        several = isinstance(field, tuple)
        for index, part in enumerate(field if several else (field,)):
            where = f"{path}{name}[{index}]" if several else f"{path}{name}"
            if isinstance(part, msgspec.Struct):
                _check_record(part, copier, f"{where}.")
            else:
                copier.copy(part, where)


_SCALARS = frozenset({str, int, float, bool, type(None)})
"""The types that JSON keeps; it refuses NaN and integers that are too long."""
