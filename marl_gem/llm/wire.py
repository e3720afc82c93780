"""The JSON of OpenAI's chat-completions API, as vLLM, SGLang, llama.cpp and many services speak it.

Converts records to request bodies, and replies to records. Nothing here uses the network.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from marl_gem.llm import Sampling
from marl_gem.llm.wire_messages import function_schema, write_messages
from marl_gem.tools.calls import write_call
from marl_gem.types import Message, Response, ToolSpec, read_json

# Requests


def write_request(
    model: str,
    messages: Sequence[Message],
    sampling: Sampling,
    seed: int,
    tools: Sequence[ToolSpec],
    *,
    tokens: bool,
    logprobs: bool,
    refused: Collection[str] = (),
    extra_body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a request.

    `sampling` alone shapes the distribution: what servers would take from the model's default generation settings
    (top_k and the like) is turned off.

    Args:
        tokens: request the token ids of prompt and answer.
        logprobs: request the log-probabilities of the answer's tokens.
        refused: fields that the server does not accept, from `refusals`; they are left out or replaced.
        extra_body: fields that are added last, and replace others.

    Raises:
        LLMError: a message has content that a chat API cannot express.
    """
    limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": write_messages(messages, native=bool(tools)),
        **({} if sampling.max_tokens is None else {limit: sampling.max_tokens}),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed & 0x7FFF_FFFF,  # llama.cpp takes 32 bits, and the greatest number means a random seed
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if tools:
        body["tools"] = [function_schema(tool) for tool in tools]
        if "tool_choice" in refused:
            body["tool_choice"] = "none"
    if tokens:
        body["return_token_ids"] = True
    if logprobs:
        body["logprobs"] = True
    for name in DISPENSABLE:
        if name in refused:
            body.pop(name, None)
    return body | dict(extra_body or {})


DISPENSABLE = ("return_token_ids", "logprobs", "top_k", "min_p", "repetition_penalty", "seed")
"""Fields that a server may refuse; a request is valid without them."""

BEYOND_OPENAI = frozenset({"return_token_ids", "logprobs", "top_k", "min_p", "repetition_penalty"})
"""Fields that OpenAI's API does not know, and log-probabilities, which are useless without token ids."""

_REFUSALS = {
    **{name: re.compile(rf"\b{name}\b") for name in DISPENSABLE},
    "max_tokens": re.compile("max_completion_tokens"),  # OpenAI's newer models name the new field
    "tool_choice": re.compile("tool.choice|tool-call-parser"),  # vLLM without a tool-call parser
}


def refusals(error: str, fields: Collection[str]) -> frozenset[str]:
    """Those of the optional fields of a request that an error message names."""
    return frozenset(name for name, pattern in _REFUSALS.items() if name in fields and pattern.search(error))


def is_cut_short(error: str) -> bool:
    """Whether a refusal says that a valid request allowed too few tokens, as OpenAI's reasoning models answer."""
    return "max_tokens or model output limit was reached" in error


def write_json(body: object) -> bytes:
    """JSON in UTF-8. Lone surrogates, which UTF-8 cannot encode, become question marks."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


# Replies

MAX_COUNT = 10**9
"""The most tokens that a server is believed to have read or written for one answer."""

MAX_WAIT = 366 * 86_400.0
"""The most seconds that a server is believed to ask for in Retry-After."""

LOGPROB_TOLERANCE = 1e-3
"""How far above 0 a log-probability may be by rounding."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
TokenId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000)]


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: Any = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Token(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Name | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[TokenId] | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count = 0
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class Reply(msgspec.Struct):
    """The fields of a chat completion that are read. `token_ids` and `prompt_token_ids` are vLLM's."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    prompt_token_ids: list[TokenId] | None = None


_read_reply = msgspec.json.Decoder(Reply).decode


def read_reply(body: bytes) -> Reply:
    """Parse the body of a reply.

    Raises:
        ValueError: it is no chat completion, or damaged; the message says why.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (at byte {error.start})") from None
    try:
        reply = _read_reply(body)
    except msgspec.ValidationError as error:
        raise ValueError(f"it is no chat completion: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        reply = _read_invalid_reply(body)
    if not reply.choices:
        raise ValueError("it holds no choices")
    return reply


def _read_invalid_reply(body: bytes) -> Reply:
    """Parse a body that msgspec refuses: Python's parser accepts lone surrogates, and has better messages."""
    try:
        return msgspec.convert(read_json(body.decode("utf-8")), Reply)
    except msgspec.ValidationError as error:
        raise ValueError(f"it is no chat completion: {error}") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def read_response(
    reply: Reply, *, version: int = 0, seconds: float = 0.0, price: tuple[float, float] | None = None
) -> Response:
    """Convert a reply to a response.

    Native tool calls are written into the text, reasoning is separated from it, and token ids stay as sampled.

    Args:
        version: the version of the policy that answered.
        seconds: how long the call took.
        price: US dollars for a million tokens read and written; None leaves the cost unknown.

    Raises:
        ValueError: the reply is inconsistent; the message says how.
    """
    choice = reply.choices[0]
    message = choice.message
    _check_answer(choice)
    text = message.content or message.refusal or ""
    reasoning = message.reasoning_content or message.reasoning or ""
    if reasoning:
        text = text.lstrip()
    else:
        reasoning, text = split_reasoning(text)
    if message.tool_calls:
        calls = [write_call(call.function.name, call.function.arguments or "") for call in message.tool_calls]
        text = "\n".join([text.strip(), *calls] if text.strip() else calls)
    token_ids, logprobs = _tokens(choice, reply.usage)
    usage, cost = _usage(reply.usage), None
    if usage and price:
        cost = (usage["prompt_tokens"] * price[0] + usage["completion_tokens"] * price[1]) / 1e6
    return Response(
        text=text,
        prompt_ids=tuple(reply.prompt_token_ids or ()),
        token_ids=token_ids,
        logprobs=logprobs,
        finish_reason=choice.finish_reason or ("tool_calls" if message.tool_calls else "stop"),
        version=version,
        usage=usage,
        reasoning=reasoning,
        cost=cost,
        seconds=round(seconds, 6),
        call_ids=_call_ids(message.tool_calls or ()),
    )


MAX_ID = 100_000
"""The most characters of the ids of a response's calls; litellm writes what a model has thought into them."""


def _call_ids(calls: Sequence[_Call]) -> tuple[str, ...]:
    """The ids of calls; none unless each has its own, as requests need them."""
    ids = [call.id for call in calls if isinstance(call.id, str) and call.id]
    return tuple(ids) if len({*ids}) == len(calls) and sum(map(len, ids)) <= MAX_ID else ()


def _check_answer(choice: _Choice) -> None:
    """Raise a ValueError where there is no answer.

    An empty text is one, and so is a refusal. No text at all is one if the model called tools or thought, or if
    `finish_reason` says that something cut the answer off, such as "length" or "content_filter".
    """
    message, why = choice.message, choice.finish_reason
    if why in ("abort", "error"):
        raise ValueError(f"the server broke the answer off (finish_reason {why!r})")
    something = message.refusal or message.tool_calls or message.reasoning or message.reasoning_content
    if message.content is None and not something and why in (None, "stop", "tool_calls", "function_call"):
        raise ValueError(f"its content is null, though finish_reason is {why!r}")


def _tokens(choice: _Choice, usage: _Usage | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The sampled tokens and their log-probabilities; of the latter none without the former.

    Raises:
        ValueError: they do not fit each other or the usage, or a log-probability is none.
    """
    token_ids = tuple(choice.token_ids or ())
    if token_ids and usage and usage.completion_tokens not in (None, len(token_ids)):
        raise ValueError(f"it holds {len(token_ids)} token ids, but a usage of {usage.completion_tokens} tokens")
    if not (token_ids and choice.logprobs and choice.logprobs.content):
        return token_ids, ()
    logprobs = [token.logprob for token in choice.logprobs.content]
    if len(logprobs) != len(token_ids):
        raise ValueError(f"it holds {len(token_ids)} token ids, but {len(logprobs)} log-probabilities")
    if not all(-math.inf < value <= LOGPROB_TOLERANCE for value in logprobs):
        raise ValueError(f"it holds a log-probability of {max(logprobs):g}")
    return token_ids, tuple([min(value, 0.0) for value in logprobs])


def split_reasoning(text: str) -> tuple[str, str]:
    """Split a text that begins with reasoning in think tags into the reasoning and the rest.

    If the reasoning has no end, because the limit on tokens was reached, the rest is empty.
    """
    head = text.lstrip()
    if not head.startswith("<think>"):
        return "", text
    reasoning, _, rest = head.removeprefix("<think>").partition("</think>")
    return reasoning.strip(), rest.lstrip()


def _usage(usage: _Usage | None) -> dict[str, int]:
    """Tokens read and written; `cached_tokens` are part of those read."""
    if usage is None:
        return {}
    counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens or 0}
    if usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens is not None:
        counts["cached_tokens"] = usage.prompt_tokens_details.cached_tokens
    return counts


# Errors

_OVERFLOW = re.compile(
    r"context_length_exceeded|context_window_exceeded|exceed_context_size|maximum context length|prompt is too long"
    r"|(context|maximum model) (length|size|window)[^\n]{0,200}exceed"
    r"|(exceed|longer than)[^\n]{0,200}(context|maximum model) (length|size|window)"
    r"|max_tokens must be at least 1, got (0|-)",  # vLLM: the prompt fills the context
    re.IGNORECASE,
)
"""The messages of OpenAI, vLLM, SGLang, llama.cpp and others for a prompt that is too long."""


def is_overflow(error: str) -> bool:
    """Whether an error message says that the prompt is too long for the model."""
    return bool(_OVERFLOW.search(error[:4096]))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait that a server asks for, in numbers or as a date; None if it does not ask, or for more than a
    year."""
    value = headers.get("Retry-After", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if -math.inf < seconds <= MAX_WAIT else None


class _Card(msgspec.Struct):
    id: Name
    parent: str | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


def read_models(body: bytes, adapters: bool) -> list[str]:
    """The names of the models in a server's list, with or without those of their adapters.

    Raises:
        ValueError: the body is no such list.
    """
    cards = msgspec.json.decode(body, type=_Cards).data
    return [card.id for card in cards if adapters or card.parent is None]
