"""Requests of a model behind HTTP: what the server is sent."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("aiohttp")


from marl_gem import ToolSpec
from marl_gem.errors import (
    LLMError,
)
from marl_gem.llm import Sampling
from marl_gem.llm.http import HTTPModel
from marl_gem.tools.calls import write_call
from marl_gem.types import Message
from tests.event_loop import async_test
from tests.fake_server import (
    FakeServer,
)
from tests.llm.http_helpers import TOOLS, request_body, user


@async_test
async def test_a_request_holds_all_of_the_sampling_and_nothing_that_a_model_would_add() -> None:
    async with FakeServer() as server:
        sampling = Sampling(max_tokens=5, temperature=0.5, top_p=0.9, stop=("END",))
        await HTTPModel(server.url, "tiny").complete(user(), sampling, 2**62 + 5)
    assert server.calls[0].body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "seed": 5,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "return_token_ids": True,
    }
    assert "Authorization" not in server.calls[0].headers


@async_test
async def test_extra_fields_replace_others() -> None:
    body = await request_body(user(), extra_body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}})
    assert body["top_k"] == 20 and body["chat_template_kwargs"] == {"enable_thinking": False}


@async_test
async def test_parts_become_text_and_images() -> None:
    picture = "data:image/png;base64,AAAA"
    parts = [{"type": "text", "text": "Look:"}, {"type": "image", "url": picture}]
    texts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = await request_body([{"role": "system", "content": "Be brief."}, *user(parts), *user(texts)])
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": picture}}],
        },
        {"role": "user", "content": "one\ntwo"},
    ]
    with pytest.raises(LLMError, match="'smell'"):
        await request_body(user([{"type": "smell"}]))


@async_test
async def test_any_text_can_be_sent() -> None:
    body = await request_body(user("a\ud800b \x00 </tool_call> \U0001f600"))
    assert body["messages"][0]["content"] == "a?b \x00 </tool_call> \U0001f600"


CALLS = 'Wait. <tool_call>{"name": "look", "arguments": {"id": "#1"}}</tool_call>' + write_call("look", {"id": "ü"})
CONVERSATION: list[Message] = [
    *user(),
    {"role": "assistant", "content": CALLS, "token_ids": (1, 2), "reasoning": "Two orders."},
    {"role": "tool", "name": "look", "content": "shipped"},
    {"role": "tool", "name": "look", "content": [{"type": "text", "text": "lost"}]},
    {"role": "assistant", "content": write_call("look", {"id": "#3"})},
    {"role": "tool", "name": "look", "content": "unknown"},
]


@async_test
async def test_calls_in_the_text_become_calls_of_the_api() -> None:
    body = await request_body(CONVERSATION, TOOLS)
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look up an order.", "parameters": TOOLS[0].parameters},
        }
    ]
    _, first, *answers, second, last = body["messages"]
    assert first["content"] == "<think>\nTwo orders.\n</think>\n\nWait."
    assert [json.loads(call["function"]["arguments"]) for call in first["tool_calls"]] == [{"id": "#1"}, {"id": "ü"}]
    assert [call["function"]["name"] for call in first["tool_calls"]] == ["look", "look"]
    ids = [call["id"] for call in first["tool_calls"] + second["tool_calls"]]
    assert len(set(ids)) == 3 and all(len(id) == 9 and id.isalnum() for id in ids)
    assert [(answer["tool_call_id"], answer["content"]) for answer in answers] == [
        (ids[0], "shipped"),
        (ids[1], "lost"),
    ]
    assert last == {"role": "tool", "tool_call_id": ids[2], "content": "unknown"}
    again = await request_body(CONVERSATION[:4], TOOLS)
    assert again["messages"] == body["messages"][:4], "a longer conversation begins as the shorter one did"


@async_test
async def test_without_tools_text_stays_text() -> None:
    body = await request_body(CONVERSATION)
    assert "tools" not in body
    assert [(line["role"], line["content"]) for line in body["messages"]] == [
        ("user", "hello"),
        ("assistant", "<think>\nTwo orders.\n</think>\n\n" + CALLS),
        ("user", "<tool_response>\nshipped\n</tool_response>\n<tool_response>\nlost\n</tool_response>"),
        ("assistant", write_call("look", {"id": "#3"})),
        ("user", "<tool_response>\nunknown\n</tool_response>"),
    ]


@pytest.mark.parametrize("text", ["<tool_call>{broken</tool_call>", CALLS, "<tool_call>"])
@async_test
async def test_calls_that_cannot_be_read_or_were_not_all_answered_stay_text(text: str) -> None:
    messages: list[Message] = [*user(), {"role": "assistant", "content": text}, {"role": "tool", "content": "no"}]
    _, text_message, result = (await request_body(messages, TOOLS))["messages"]
    assert text_message == {"role": "assistant", "content": text}
    assert result == {"role": "user", "content": "<tool_response>\nno\n</tool_response>"}


@async_test
async def test_a_tool_without_parameters_has_a_schema() -> None:
    body = await request_body(user(), [ToolSpec("wait")])
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
