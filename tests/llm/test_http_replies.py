"""Replies to a model behind HTTP: how they become responses."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("aiohttp")


from marl_gem import Response
from marl_gem.llm.http import HTTPModel
from marl_gem.tools.calls import read_calls
from marl_gem.types import ToolCall, from_json, to_json
from tests.event_loop import async_test
from tests.fake_server import (
    Behaviour,
    FakeServer,
    edited,
    raw,
    say,
)
from tests.llm.http_helpers import ask, response_to


@async_test
async def test_a_response_holds_what_was_sampled() -> None:
    def cached(reply: dict[str, Any]) -> None:
        reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 3}

    response = await response_to(edited(cached, "hi!"), price=(2.0, 10.0))
    assert (response.text, response.finish_reason, response.reasoning) == ("hi!", "stop", "")
    assert response.prompt_ids == tuple(range(7))
    assert response.token_ids == tuple(map(ord, "hi!")) and response.logprobs == (-0.25,) * 3
    assert response.usage == {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 3}
    assert response.cost == pytest.approx((7 * 2 + 3 * 10) / 1e6)
    assert 0 < response.seconds < 5 and response.retries == 0
    assert from_json(to_json(response), Response) == response


@async_test
async def test_what_a_server_does_not_return_stays_empty() -> None:
    response = await response_to(edited(lambda reply: reply.pop("usage")), price=(1.0, 1.0))
    assert response.usage == {} and response.cost is None
    assert (await response_to(say("ok"))).cost is None
    response = await response_to(say("ok", has_tokens=False))
    assert response.prompt_ids == response.token_ids == response.logprobs == ()

    def only_logprobs(reply: dict[str, Any]) -> None:
        reply["choices"][0]["token_ids"] = reply["prompt_token_ids"] = None

    assert (await response_to(edited(only_logprobs))).logprobs == (), "log-probabilities of which tokens?"


@pytest.mark.parametrize(
    ("kind", "sampling", "expected"),
    [
        ("raw", {}, True),
        ("raw", {"temperature": 0.5}, False),
        ("raw", {"top_p": 0.9}, False),
        ("processed", {"temperature": 0.5, "top_p": 0.9}, True),
        ("off", {}, False),
    ],
)
@async_test
async def test_log_probabilities_are_those_of_the_sampling_distribution(
    kind: Any, sampling: dict[str, Any], expected: bool
) -> None:
    async with FakeServer() as server:
        response = await ask(HTTPModel(server.url, "tiny", logprobs=kind), **sampling)
        assert bool(response.logprobs) == expected == ("logprobs" in server.calls[0].body)
        assert bool(response.token_ids) == (kind != "off")


@pytest.mark.parametrize(
    ("content", "fields", "text", "reasoning"),
    [
        ("\n\nyes", {"reasoning_content": "Hm."}, "yes", "Hm."),
        ("yes", {"reasoning": "Hm."}, "yes", "Hm."),
        ("\n<think>\nHm.\n</think>\n\nyes", {}, "yes", "Hm."),
        ("<think>Hm. Then", {}, "", "Hm. Then"),
        ("a <think>b</think> c", {}, "a <think>b</think> c", ""),
        ("  yes \n", {}, "  yes \n", ""),
        (None, {"refusal": "I will not."}, "I will not.", ""),
        ("", {"tool_calls": [], "reasoning": None, "function_call": None}, "", ""),
    ],
)
@async_test
async def test_reasoning_is_separated_from_the_text(
    content: str | None, fields: dict[str, Any], text: str, reasoning: str
) -> None:
    response = await response_to(say(content, **fields))
    assert (response.text, response.reasoning) == (text, reasoning)
    assert response.token_ids == tuple(map(ord, content or "")), "the token ids are complete"


def ending(finish_reason: str | None, content: str | None = None, **fields: Any) -> Behaviour:
    """A reply that ends so; `fields` go into the message."""

    def edit(reply: dict[str, Any]) -> None:
        choice = reply["choices"][0]
        choice["finish_reason"] = finish_reason
        choice["message"] |= {"content": content, **fields}

    return edited(edit, content or "")


@pytest.mark.parametrize(
    ("behaviour", "finish_reason"),
    [
        (ending("stop", ""), "stop"),
        (ending("length"), "length"),
        (ending("content_filter"), "content_filter"),
        (ending("stop", reasoning_content="Hm."), "stop"),
        (ending("length", reasoning="Hm."), "length"),
    ],
)
@async_test
async def test_an_answer_may_be_empty(behaviour: Behaviour, finish_reason: str) -> None:
    response = await response_to(behaviour)
    assert (response.text, response.finish_reason) == ("", finish_reason)


@async_test
async def test_log_probabilities_a_little_above_0_are_rounding() -> None:
    def rounded(reply: dict[str, Any]) -> None:
        reply["choices"][0]["logprobs"]["content"][0]["logprob"] = 1e-5

    assert (await response_to(edited(rounded))).logprobs == (0.0, -0.25)


def native(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}


@async_test
async def test_native_calls_and_calls_in_text_end_up_the_same() -> None:
    calls = [native("look", '{"id": "</tool_call>", "n":1.50}'), native("no such tool", {"id": 2})]
    response = await response_to(say("Wait.\n", tool_calls=calls))
    assert response.finish_reason == "tool_calls"
    spoken, read = read_calls(response.text)
    assert spoken == "Wait." and read == [
        ToolCall("look", {"id": "</tool_call>", "n": 1.5}),
        ToolCall("no such tool", {"id": 2}),
    ]
    assert '"n":1.50' in response.text, "arguments stand as the server gave them"
    in_text = await response_to(say(response.text))
    assert in_text.text == response.text
    broken = await response_to(say(None, tool_calls=[native("look", '{"id": '), native("look", None)]))
    assert [type(call).__name__ for call in read_calls(broken.text).calls] == ["BrokenCall", "ToolCall"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"choices":[{"message":{"content":"a"}}],"choices":[{"message":{"content":"b"}}]}', "b"),
        (b'{"choices":[{"message":{"content":"a\\ud800"}}]}', "a\ud800"),
        (b'{"choices":[{"message":{"content":"a\\u0000"}}]}', "a\x00"),
        (b'{"choices":[{"message":{"content":"%s"}}]}' % (b"x" * 2**20), "x" * 2**20),
        (b' \n{"choices":[{"message":{"content":"ok"},"finish_reason":null}],"usage":null}', "ok"),
    ],
    ids=["duplicate keys", "surrogate", "NUL", "1 MB", "nulls"],
)
@async_test
async def test_unusual_replies_with_an_answer(body: bytes, text: str) -> None:
    response = await response_to(raw(body, "text/plain"))
    assert response.text == text and response.finish_reason == "stop"
    assert from_json(to_json(response), Response) == response
