"""A model behind HTTP, against a real server on this machine: what is asked, what is answered, what goes wrong."""

from __future__ import annotations

import asyncio
import email.utils
import functools
import gzip
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from marl_gem import MultiAgentEnv, Response, SequentialSelector, ToolSpec
from marl_gem.errors import (
    ConfigError,
    ContextTooLong,
    LLMError,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import Sampling, http_client
from marl_gem.llm.http import HTTPModel, Timeouts
from marl_gem.llm.retry import Backoff, Retrying
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, play_episode, stream
from marl_gem.tools.calls import read_calls, write_call
from marl_gem.types import Limits, Message, ToolCall, from_json, to_json
from tests.fake_server import (
    Behaviour,
    Call,
    FakeServer,
    cut,
    echo,
    edited,
    hang,
    hang_up,
    raw,
    say,
    status,
)

ROOT = Path(__file__).parents[2]
KEY = "sk-canary-0123456789"
TOOLS = (ToolSpec("look", "Look up an order.", {"type": "object", "properties": {"id": {"type": "string"}}}),)
PLAIN = Sampling(max_tokens=8)


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test, which must end in time and leave no task behind."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*arguments, **named)
            await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

        asyncio.run(bounded())

    return run


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what must come soon."""
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.002)


def user(text: Any = "hello") -> list[Message]:
    return [{"role": "user", "content": text}]


async def ask(model: HTTPModel, messages: Sequence[Message] | None = None, **sampling: Any) -> Response:
    return await model.complete(messages or user(), Sampling(**{"max_tokens": 8, **sampling}), 7)


async def asked(messages: Sequence[Message], tools: Sequence[ToolSpec] = (), **given: Any) -> dict[str, Any]:
    """The body of the request that these messages become."""
    async with FakeServer() as server:
        await HTTPModel(server.url, "tiny", **given).complete(messages, PLAIN, 7, tools)
        return server.calls[0].body


async def answered(behaviour: Behaviour, **given: Any) -> Response:
    """What is made of this reply."""
    async with FakeServer(behaviour) as server:
        return await ask(HTTPModel(server.url, "tiny", **given))


# What is asked


@on_a_loop
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


@on_a_loop
async def test_what_else_is_to_be_asked_wins() -> None:
    body = await asked(user(), extra_body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}})
    assert body["top_k"] == 20 and body["chat_template_kwargs"] == {"enable_thinking": False}


@on_a_loop
async def test_parts_become_text_and_images() -> None:
    picture = "data:image/png;base64,AAAA"
    parts = [{"type": "text", "text": "Look:"}, {"type": "image", "url": picture}]
    texts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = await asked([{"role": "system", "content": "Be brief."}, *user(parts), *user(texts)])
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": picture}}],
        },
        {"role": "user", "content": "one\ntwo"},
    ]
    with pytest.raises(LLMError, match="'smell'"):
        await asked(user([{"type": "smell"}]))


@on_a_loop
async def test_any_text_can_be_sent() -> None:
    body = await asked(user("a\ud800b \x00 </tool_call> \U0001f600"))
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


@on_a_loop
async def test_calls_in_the_text_become_calls_of_the_api() -> None:
    body = await asked(CONVERSATION, TOOLS)
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
    again = await asked(CONVERSATION[:4], TOOLS)
    assert again["messages"] == body["messages"][:4], "a longer conversation begins as the shorter one did"


@on_a_loop
async def test_without_tools_text_stays_text() -> None:
    body = await asked(CONVERSATION)
    assert "tools" not in body
    assert [(line["role"], line["content"]) for line in body["messages"]] == [
        ("user", "hello"),
        ("assistant", "<think>\nTwo orders.\n</think>\n\n" + CALLS),
        ("user", "<tool_response>\nshipped\n</tool_response>\n<tool_response>\nlost\n</tool_response>"),
        ("assistant", write_call("look", {"id": "#3"})),
        ("user", "<tool_response>\nunknown\n</tool_response>"),
    ]


@pytest.mark.parametrize("text", ["<tool_call>{broken</tool_call>", CALLS, "<tool_call>"])
@on_a_loop
async def test_calls_that_cannot_be_read_or_were_not_all_answered_stay_text(text: str) -> None:
    messages: list[Message] = [*user(), {"role": "assistant", "content": text}, {"role": "tool", "content": "no"}]
    _, said, told = (await asked(messages, TOOLS))["messages"]
    assert said == {"role": "assistant", "content": text}
    assert told == {"role": "user", "content": "<tool_response>\nno\n</tool_response>"}


@on_a_loop
async def test_a_tool_without_parameters_has_a_schema() -> None:
    body = await asked(user(), [ToolSpec("wait")])
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


# What is answered


@on_a_loop
async def test_a_response_holds_what_was_sampled() -> None:
    def cached(whole: dict[str, Any]) -> None:
        whole["usage"]["prompt_tokens_details"] = {"cached_tokens": 3}

    response = await answered(edited(cached, "hi!"), price=(2.0, 10.0))
    assert (response.text, response.finish_reason, response.reasoning) == ("hi!", "stop", "")
    assert response.prompt_ids == tuple(range(7))
    assert response.token_ids == tuple(map(ord, "hi!")) and response.logprobs == (-0.25,) * 3
    assert response.usage == {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 3}
    assert response.cost == pytest.approx((7 * 2 + 3 * 10) / 1e6)
    assert 0 < response.seconds < 5 and response.retries == 0
    assert from_json(to_json(response), Response) == response


@on_a_loop
async def test_what_a_server_does_not_tell_is_not_made_up() -> None:
    response = await answered(edited(lambda whole: whole.pop("usage")), price=(1.0, 1.0))
    assert response.usage == {} and response.cost is None
    assert (await answered(say("ok"))).cost is None
    response = await answered(say("ok", knows=False))
    assert response.prompt_ids == response.token_ids == response.logprobs == ()

    def only_logprobs(whole: dict[str, Any]) -> None:
        whole["choices"][0]["token_ids"] = whole["prompt_token_ids"] = None

    assert (await answered(edited(only_logprobs))).logprobs == (), "log-probabilities of which tokens?"


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
@on_a_loop
async def test_log_probabilities_are_those_of_the_distribution_that_was_drawn_from(
    kind: Any, sampling: dict[str, float], expected: bool
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
        (None, {}, "", ""),
        (None, {"refusal": "I will not."}, "I will not.", ""),
        ("", {"tool_calls": [], "reasoning": None, "function_call": None}, "", ""),
    ],
)
@on_a_loop
async def test_reasoning_stands_apart(content: str | None, fields: dict[str, Any], text: str, reasoning: str) -> None:
    response = await answered(say(content, **fields))
    assert (response.text, response.reasoning) == (text, reasoning)
    assert response.token_ids == tuple(map(ord, content or "")), "tokens are left whole"


def native(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}


@on_a_loop
async def test_native_calls_and_calls_in_text_end_up_the_same() -> None:
    calls = [native("look", '{"id": "</tool_call>", "n":1.50}'), native("no such tool", {"id": 2})]
    response = await answered(say("Wait.\n", tool_calls=calls))
    assert response.finish_reason == "tool_calls"
    said, read = read_calls(response.text)
    assert said == "Wait." and read == [
        ToolCall("look", {"id": "</tool_call>", "n": 1.5}),
        ToolCall("no such tool", {"id": 2}),
    ]
    assert '"n":1.50' in response.text, "arguments stand as the server gave them"
    in_text = await answered(say(response.text))
    assert in_text.text == response.text
    broken = await answered(say(None, tool_calls=[native("look", '{"id": '), native("look", None)]))
    assert [type(call).__name__ for call in read_calls(broken.text).calls] == ["BrokenCall", "ToolCall"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"choices":[{"message":{"content":"a"}}],"choices":[{"message":{"content":"b"}}]}', "b"),
        (b'{"choices":[{"message":{"content":"a\\ud800"}}]}', "a\ud800"),
        (b'{"choices":[{"message":{"content":"a\\u0000\xff"}}]}', "a\x00\ufffd"),
        (b'{"choices":[{"message":{"content":"%s"}}]}' % (b"x" * 2**20), "x" * 2**20),
        (b' \n{"choices":[{"message":{"content":"ok"},"finish_reason":null}],"usage":null}', "ok"),
    ],
    ids=["duplicate keys", "surrogate", "NUL and no UTF-8", "1 MB", "nulls"],
)
@on_a_loop
async def test_odd_replies_that_have_an_answer(body: bytes, text: str) -> None:
    response = await answered(raw(body, "text/plain"))
    assert response.text == text and response.finish_reason == "stop"
    assert from_json(to_json(response), Response) == response


# What a server takes


@on_a_loop
async def test_fields_that_a_server_refuses_are_left_out_from_then_on() -> None:
    async with FakeServer(refuses=["top_k", "return_token_ids"]) as server:
        model = HTTPModel(server.url, "tiny")
        assert (await ask(model)).text == "ok" and len(server.calls) == 3
        assert (await ask(model)).text == "ok" and len(server.calls) == 4
        assert not {"top_k", "return_token_ids"} & server.calls[-1].body.keys()
        assert "min_p" in server.calls[-1].body


@on_a_loop
async def test_a_server_that_does_not_say_what_it_refuses() -> None:
    def plain_only(call: Call) -> Awaitable[web.StreamResponse]:
        return (say("ok") if "min_p" not in call.body else status(422, "Unprocessable"))(call)

    async with FakeServer(*[plain_only] * 3) as server:
        model = HTTPModel(server.url, "tiny")
        assert (await ask(model)).text == "ok" and (await ask(model)).text == "ok"
        assert len(server.calls) == 3


@on_a_loop
async def test_a_request_that_is_wrong_in_itself_teaches_nothing() -> None:
    complaint = json.dumps({"detail": [{"msg": "bad", "input": {"top_k": -1, "logprobs": True, "seed": 1}}]})
    async with FakeServer(*[status(422, complaint)] * 3) as server:
        model = HTTPModel(server.url, "tiny")
        with pytest.raises(LLMError, match="422"):
            await ask(model)
        assert (await ask(model)).logprobs
        assert server.calls[-1].body["top_k"] == -1
        with pytest.raises(LLMError, match="400"):
            server.script.append(status(400, "no"))
            await ask(model)
        assert len(server.calls) == 5, "what was taken once is not left out on a hunch"


@on_a_loop
async def test_a_limit_by_another_name() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    async with FakeServer(status(400, said)) as server:
        await ask(HTTPModel(server.url, "tiny"))
        assert server.calls[-1].body["max_completion_tokens"] == 8 and "max_tokens" not in server.calls[-1].body


@on_a_loop
async def test_a_server_that_reads_no_calls_still_shows_the_tools() -> None:
    said = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    async with FakeServer(status(400, said), say(write_call("look", {}))) as server:
        response = await HTTPModel(server.url, "tiny").complete(user(), PLAIN, 7, TOOLS)
        assert server.calls[-1].body["tool_choice"] == "none" and server.calls[-1].body["tools"]
        assert "top_k" in server.calls[-1].body
        assert read_calls(response.text).calls == [ToolCall("look", {})]


@on_a_loop
async def test_the_only_model_need_not_be_named() -> None:
    async with FakeServer() as server:
        await HTTPModel(server.url).load_adapter("mine", "/adapters/mine")
        model = HTTPModel(server.url)
        assert model.name == server.url
        await asyncio.gather(*(ask(model) for _ in range(5)))
        assert model.name == "tiny" and {call.body["model"] for call in server.calls} == {"tiny"}
    async with FakeServer(models=["a", "b"]) as server:
        with pytest.raises(LLMError, match="serves 2 models; name one: 'a', 'b'"):
            await ask(HTTPModel(server.url))


@on_a_loop
async def test_adapters_are_loaded_replaced_and_forgotten() -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url, "tiny", adapter="mine")
        await model.load_adapter("mine", "/adapters/1")
        model.version = 1
        assert (await ask(model)).version == 1 and model.name == "tiny+mine@1"
        assert server.calls[0].body["model"] == "mine"
        with pytest.raises(LLMError, match="already been loaded"):
            await model.load_adapter("mine", "/adapters/2")
        await model.load_adapter("mine", "/adapters/2", replace=True)
        assert server.adapters == {"mine": "/adapters/2"}
        await model.unload_adapter("mine")
        with pytest.raises(LLMError, match="cannot be found"):
            await model.unload_adapter("mine")
        with pytest.raises(LLMError, match="We asked for 'mine'; it serves 'tiny'"):
            await ask(model)


@on_a_loop
async def test_an_adapter_that_the_server_has_lost_is_loaded_again_once() -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url, "tiny", adapter="mine")
        await model.load_adapter("mine", "/adapters/1")
        server.adapters.clear()
        assert {answer.text for answer in await asyncio.gather(*(ask(model) for _ in range(5)))} == {"ok"}
        assert server.adapters == {"mine": "/adapters/1"}
        missing = status(404, "The model mine does not exist.")
        server.script.extend([missing, missing])
        with pytest.raises(LLMError, match="404"):
            await ask(model)


@on_a_loop
async def test_an_adapter_s_prompts_are_computed_anew_when_it_is_replaced() -> None:
    async with FakeServer() as server:
        model, base = HTTPModel(server.url, "tiny", adapter="mine"), HTTPModel(server.url, "tiny")
        for _ in range(2):
            await model.load_adapter("mine", "/adapters/1", replace=True)
            await ask(model)
            await ask(model)
        await ask(base)
        first, again, second, still, none = (call.body.get("cache_salt") for call in server.calls)
        assert first == again != second == still
        assert first and second and none is None


@on_a_loop
async def test_a_server_that_loads_no_adapters_says_how_it_would() -> None:
    async with bare_server(lambda request: web.Response(status=404)) as url:
        with pytest.raises(LLMError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
            await HTTPModel(url, "tiny").load_adapter("mine", "/adapters/1")


@on_a_loop
async def test_health() -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url, "tiny")
        await model.health()
        server.healthy = 404  # there is a list of models
        await model.health()
        server.healthy = 503
        with pytest.raises(ServerUnreachable, match="503"):
            await model.health()
    with pytest.raises(ServerUnreachable, match="Is the server running"):
        await model.health()


# Event loops and connections


def test_one_model_in_several_loops_leaves_nothing_open() -> None:
    """In an interpreter of its own, whose warnings show what was not closed."""
    code = """
        import asyncio, gc
        from marl_gem.llm import Sampling
        from marl_gem.llm.http import HTTPModel
        from tests.fake_server import FakeServer, hang

        async def use(model, close):
            asyncio.get_running_loop().slow_callback_duration = 60
            async with FakeServer(hang) as server:
                model._client.base = model._client.base.with_port(server.port)
                asking = [model.complete([{"role": "user", "content": "hi"}], Sampling(), 1) for _ in range(9)]
                stuck, *others = map(asyncio.create_task, asking)
                await asyncio.sleep(0.1)
                print(*[(await other).text for other in others])
                await HTTPModel(server.url).health()  # and that one is dropped
                gc.collect()
                if close:
                    stuck.cancel()
                    await asyncio.wait([stuck])
                    await model.aclose()
                    await model.aclose()

        model = HTTPModel("http://127.0.0.1:1")
        for close in (True, False, False):
            asyncio.run(use(model, close))
        dropped = HTTPModel("http://127.0.0.1:1")
        asyncio.run(use(dropped, False))
        del model, dropped
        gc.collect()
    """
    lines = [line.removeprefix("        ") for line in code.splitlines()]
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ok ok ok ok ok ok ok ok\n" * 4


@on_a_loop
async def test_cancelling_a_call_ends_it_at_the_server_too() -> None:
    async with FakeServer(hang) as server:
        model = HTTPModel(server.url, "tiny")
        call = asyncio.create_task(ask(model))
        await until(lambda: bool(server.calls))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: server.cancelled == 1)
        assert (await ask(model)).text == "ok"
        await model.aclose()


@on_a_loop
async def test_waiting_for_a_place_counts_against_no_time_out() -> None:
    async with FakeServer(latency=0.1) as server:
        model = HTTPModel(server.url, "tiny", connections=2, timeouts=Timeouts(1, 0.3, 0.3))
        started = time.monotonic()
        answers = await asyncio.gather(*(ask(model) for _ in range(10)))
        assert time.monotonic() - started > 0.45
        assert all(answer.seconds < 0.3 for answer in answers)
        await model.aclose()


# What goes wrong

CHAT = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
WRONG_LENGTHS = edited(lambda whole: whole["choices"][0]["token_ids"].append(1))
NAN = raw(b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"logprob":NaN}]},"token_ids":[1]}]}')
TOO_LONG = {
    "OpenAI": '{"error": {"message": "Your input exceeds the limit", "code": "context_length_exceeded"}}',
    "vLLM": "This model's maximum context length is 96 tokens. However, you requested 120 tokens",
    "vLLM, to the token": '{"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens)"}}',
    "SGLang": "The input (120 tokens) is longer than the model's context length (96 tokens).",
    "llama.cpp": '{"error":{"message":"request (120 tokens) exceeds the available context size (96 tokens)"}}',
}

FAULTS: dict[str, tuple[Behaviour, type[LLMError], str]] = {
    "400": (status(400, "roles must alternate"), LLMError, "400: roles must alternate"),
    "401": (status(401, "who?"), LLMError, "401: who.*api_key_env"),
    "403": (status(403), LLMError, "403"),
    "404": (status(404, "no model"), LLMError, "404: no model. We asked for 'tiny'; it serves 'tiny'"),
    "408": (status(408), TransientLLMError, "408"),
    "413": (status(413), LLMError, "413"),
    "422": (status(422, "bad value"), LLMError, "422: bad value"),
    "429": (status(429, "slow down"), TransientLLMError, "429: slow down"),
    "429 for good": (status(429, '{"code": "insufficient_quota"}'), LLMError, "no credit"),
    "500": (status(500, "boom"), TransientLLMError, "500: boom"),
    "501": (status(501), LLMError, "501"),
    "502": (status(502), ServerUnreachable, "502"),
    "503": (status(503, "loading"), ServerUnreachable, "503: loading"),
    "503, busy": (status(503, headers={"Retry-After": "3"}), TransientLLMError, "503"),
    "504": (status(504), TransientLLMError, "504"),
    "529": (status(529), TransientLLMError, "529"),
    "redirect": (status(307, headers={"Location": "http://elsewhere/v1?key=x"}), LLMError, "elsewhere/v1; if"),
    "read time-out": (hang, TransientLLMError, "sent nothing for 0.5 s"),
    "hung up": (hang_up, ServerUnreachable, "broke the connection"),
    "cut": (cut, TransientLLMError, "did not answer in full|broke"),
    "empty": (raw(b""), TransientLLMError, "not JSON"),
    "null": (raw(b"null"), TransientLLMError, "no chat completion.*null"),
    "list": (raw(b"[]"), TransientLLMError, "no chat completion"),
    "truncated": (raw(json.dumps(CHAT).encode()[:-5]), TransientLLMError, "not JSON"),
    "two": (raw(json.dumps(CHAT).encode() * 2), TransientLLMError, "not JSON"),
    "HTML": (raw(b"<html>Bad \x1b[31m gateway</html>", "text/html"), TransientLLMError, "<html>Bad .31m gateway"),
    "binary": (raw(random.Random(0).randbytes(500)), TransientLLMError, "not JSON"),
    "no choices": (raw(b'{"error": {"message": "overloaded"}}'), TransientLLMError, "no choices.*overloaded"),
    "choices empty": (edited(lambda whole: whole["choices"].clear()), TransientLLMError, "no choices"),
    "no message": (raw(b'{"choices": [{}]}'), TransientLLMError, "message"),
    "content a number": (raw(b'{"choices": [{"message": {"content": 3}}]}'), TransientLLMError, "content"),
    "call without a name": (say(None, tool_calls=[{"function": {}}]), TransientLLMError, "name"),
    "negative usage": (edited(lambda whole: whole["usage"].update(prompt_tokens=-1)), TransientLLMError, "usage"),
    "negative id": (edited(lambda whole: whole["choices"][0].update(token_ids=[-1])), TransientLLMError, "token_ids"),
    "deeply nested": (raw(b'{"choices":' + b"[" * 200_000), TransientLLMError, "no chat completion"),
    "deeply nested aside": (raw(b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), TransientLLMError, "nested"),
    "NaN": (NAN, TransientLLMError, "NaN"),
    "infinite": (raw(b'{"choices":[{"message":{"content":1e999}}]}'), TransientLLMError, "content"),
    "wrong lengths": (WRONG_LENGTHS, TransientLLMError, "3 token ids, but 2 log-prob"),
    "aborted": (edited(lambda whole: whole["choices"][0].update(finish_reason="abort")), TransientLLMError, "abort"),
    "lying gzip": (raw(b"ok", headers={"Content-Encoding": "gzip"}), TransientLLMError, "did not answer in full"),
    **{f"too long, {who}": (status(400, said), ContextTooLong, "history") for who, said in TOO_LONG.items()},
    "too long, late": (status(500, "Context size has been exceeded."), ContextTooLong, "500: Context size"),
}


@pytest.mark.parametrize("name", FAULTS)
@on_a_loop
async def test_faults(name: str) -> None:
    """Each ends in time with an error of its kind, harms no other request, and leaves no connection behind."""
    fault, kind, message = FAULTS[name]
    async with FakeServer(when={"fail": fault}, latency=0.01) as server:
        model = HTTPModel(server.url, "tiny", timeouts=Timeouts(1, 0.5, 5))
        others = asyncio.gather(*(ask(model) for _ in range(3)))
        failing = asyncio.create_task(ask(model, user("fail")))
        with pytest.raises(LLMError, match=message) as caught:
            await failing
        assert type(caught.value) is kind
        assert server.url in str(caught.value) and len(str(caught.value)) < 1000
        assert "\x1b" not in str(caught.value)
        assert [other.text for other in await others] == ["ok"] * 3
        assert (await ask(model)).text == "ok"
        await model.aclose()
        await until(lambda: server.connections == 0)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        (email.utils.formatdate(time.time() + 36_000, usegmt=True), 36_000),
        (email.utils.formatdate(time.time() - 3600, usegmt=True), 0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
    ],
)
@on_a_loop
async def test_how_long_a_server_asks_to_wait(told: str, seconds: float | None) -> None:
    with pytest.raises(TransientLLMError) as caught:
        await answered(status(429, headers={"Retry-After": told}))
    assert caught.value.retry_after == (
        seconds if seconds is None else pytest.approx(seconds, abs=3_600 if seconds > 100 else 0.1)
    )


@on_a_loop
async def test_no_connection_in_time() -> None:
    """A server whose queue is full answers no knock."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        held = [socket.socket() for _ in range(4)]
        for knock in held:
            knock.setblocking(False)
            knock.connect_ex(listener.getsockname())
        model = HTTPModel(f"http://127.0.0.1:{listener.getsockname()[1]}", "tiny", timeouts=Timeouts(0.2, 5, 5))
        with pytest.raises(ServerUnreachable, match=r"took no connection for 0\.2 s"):
            await ask(model)
        for knock in held:
            knock.close()


@on_a_loop
async def test_an_answer_that_trickles_in_ends_in_time() -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    async with bare_server(trickle) as url:
        model = HTTPModel(url, "tiny", timeouts=Timeouts(1, 1, 0.3))
        with pytest.raises(TransientLLMError, match=r"not done after 0\.3 s"):
            await ask(model)


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [(socket.EAI_AGAIN, ServerUnreachable, "at the moment"), (socket.EAI_NONAME, LLMError, "no machine has this name")],
)
@on_a_loop
async def test_names_that_cannot_be_looked_up(
    number: int, kind: type[LLMError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise socket.gaierror(number, "told by the resolver")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(LLMError, match=message) as caught:
        await ask(HTTPModel("http://models.example/v1", "tiny"))
    assert type(caught.value) is kind


@on_a_loop
async def test_something_else_than_http(monkeypatch: pytest.MonkeyPatch) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP ready\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("MY_KEY", KEY)
        with pytest.raises(TransientLLMError, match=r"did not answer in full|broke the connection") as caught:
            await ask(HTTPModel(f"http://127.0.0.1:{port}/?key={KEY}", "tiny", api_key_env="MY_KEY"))
        assert KEY not in str(caught.value) and caught.value.__context__ is None
        with pytest.raises(LLMError, match=r"https|broke the connection"):
            await ask(HTTPModel(f"https://127.0.0.1:{port}", "tiny"))


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
@on_a_loop
async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2"
    subprocess.run([*request.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LLMError, match="certificate that this machine trusts") as caught:
            await ask(HTTPModel(f"https://127.0.0.1:{port}", "tiny"))
        assert type(caught.value) is LLMError, "asking again does not help"


@on_a_loop
async def test_bodies_without_end_are_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_BODY", 2**20)
    packed = {"Content-Encoding": "gzip"}
    for behaviour in (raw(b"x" * 2**21), raw(gzip.compress(b" " * 2**27), headers=packed)):
        with pytest.raises(LLMError, match="more than 1 MiB") as caught:
            await answered(behaviour)
        assert type(caught.value) is LLMError


@on_a_loop
async def test_a_redirect_is_not_followed() -> None:
    async with FakeServer() as other, FakeServer(*[status(307, headers={"Location": other.url})] * 2) as server:
        with pytest.raises(LLMError, match="give it as url"):
            await ask(HTTPModel(server.url, "tiny"))
        assert not other.calls


def bare_server(handle: Callable[..., Any]) -> Any:
    """A server that does one thing, whatever it is asked; gives its URL."""

    class Bare:
        async def __aenter__(self) -> str:
            async def handler(request: web.BaseRequest) -> web.StreamResponse:
                response = handle(request)
                return await response if asyncio.iscoroutine(response) else response

            self.runner = web.ServerRunner(web.Server(handler), handler_cancellation=True, shutdown_timeout=0.01)
            await self.runner.setup()
            await web.TCPSite(self.runner, "127.0.0.1", 0).start()
            return f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"

        async def __aexit__(self, *_: object) -> None:
            await self.runner.cleanup()

    return Bare()


# Where it is asked, and with what key


@pytest.mark.parametrize(
    "url", ["", "tiny", "ftp://host/v1", "http://", "http:///v1", "http://host:port/v1", "http://[/"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="must look like http"):
        HTTPModel(url)


def test_other_arguments_that_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    for wrong, message in (
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY, which is not set"),
        ({"logprobs": "some"}, "raw, processed or off"),
        ({"connections": 0}, "from 1 up"),
        ({"extra_body": {"x": object()}}, "what JSON can hold"),
    ):
        with pytest.raises(ConfigError, match=message):
            HTTPModel("http://host", "tiny", **wrong)


def test_openai_gets_its_key_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert HTTPModel("https://api.openai.com/v1", "gpt").api_key_env == "OPENAI_API_KEY"
    assert HTTPModel("https://elsewhere.example/v1", "gpt").api_key_env is None
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        HTTPModel("https://api.openai.com/v1", "gpt")


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
@on_a_loop
async def test_a_url_may_be_written_in_several_ways(path: str) -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url.removesuffix("/v1") + path, "tiny")
        assert model.url == server.url
        await ask(model)
        await model.health()


@pytest.mark.parametrize("newline", ["", "\n"])
@on_a_loop
async def test_the_key_is_sent_and_never_told(newline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY + newline)
    script = [
        echo(401),
        echo(400),
        echo(400),
        echo(500),
        say(f"Your key is {KEY}.", reasoning_content=KEY),
        raw(KEY.encode()),
        raw(json.dumps({KEY: 1, "choices": [{"message": {"content": [KEY]}}]}).encode()),
        status(302, headers={"Location": f"http://{KEY}.example/?key={KEY}"}),
        status(404, KEY),
        edited(lambda whole: whole["choices"][0].update(finish_reason=KEY)),
    ]
    async with FakeServer(*script) as server:
        model = HTTPModel(server.url, "tiny", api_key_env="MY_KEY")
        told = [repr(model), model.name]
        for _ in range(len(script) - 1):  # one 400 is asked again
            try:
                told.append(to_json(await ask(model)))
            except LLMError as error:
                told += [str(error), repr(error), repr(error.__cause__), repr(error.__context__)]
        assert all(call.headers["Authorization"] == f"Bearer {KEY}" for call in server.calls)
        assert not server.script and "MY_KEY" in "".join(told)
    assert KEY not in "\n".join(told)
    assert "[secret]" in "".join(told)


@on_a_loop
async def test_what_is_secret_in_a_url_is_sent_and_never_told() -> None:
    async with FakeServer(echo(401), echo(500)) as server:
        url = server.url.replace("http://", "http://someone:pass-0123456789@") + f"?api-version=7&sig={KEY}"
        model = HTTPModel(url, "tiny")
        told = [repr(model), model.url, model.name]
        for _ in range(2):
            with pytest.raises(LLMError) as caught:
                await ask(model)
            told.append(str(caught.value))
        call = server.calls[0]
        assert call.headers["Authorization"].startswith("Basic ")
        assert dict(call.request.query) == {"api-version": "7", "sig": KEY}
    with pytest.raises(ServerUnreachable) as gone:
        await ask(model)
    told.append(str(gone.value))
    secrets = [KEY, "pass-0123456789", call.headers["Authorization"].split()[1]]
    assert not [secret for secret in secrets if secret in "\n".join(told)]


def test_proxies_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is asked for other machines, and never for this one."""

    @on_a_loop
    async def through() -> None:
        seen = []

        def proxy(request: web.BaseRequest) -> web.Response:
            seen.append(request.raw_path)
            return web.json_response(CHAT)

        async with bare_server(proxy) as url, FakeServer() as server:
            monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
            monkeypatch.setenv("no_proxy", "inside.example")
            assert (await ask(HTTPModel("http://outside.example/v1", "tiny"))).text == "ok"
            assert (await ask(HTTPModel(server.url, "tiny"))).text == "ok" and len(server.calls) == 1
            assert http_client.find_proxy(http_client.parse_url("http://inside.example")) is None
        assert seen == ["http://outside.example/v1/chat/completions"]

    through()


# Whole episodes


class Greeting(MultiAgentEnv):
    """Two seats greet each other, two turns each, and must say so in a given way."""

    possible_agents = ("ann", "bob")
    selector = SequentialSelector()

    def observe(self, agent: str) -> str:
        return f"{agent} of {self.seed}: say ok"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards = {agent: float(action == "ok") for agent, action in actions.items()}
        if self.steps == 4:
            self.terminations = dict.fromkeys(self.agents, True)


@on_a_loop
async def test_a_thousand_episodes_against_a_server_that_fails_three_calls_of_ten() -> None:
    async with FakeServer(failing=0.3, seed=1) as server:
        llm = Retrying(HTTPModel(server.url, "tiny"), attempts=30, backoff=Backoff(0.001, 0.02))
        jobs = [Job(seed, LLMPolicy(llm), id=str(seed)) for seed in range(1000)]
        episodes = [episode async for episode in stream(Greeting, jobs, concurrency=200)]
        assert sorted(int(episode.id) for episode in episodes) == list(range(1000))
        assert all(episode.returns == {"ann": 2.0, "bob": 2.0} and not episode.error for episode in episodes)
        retries = sum(turn.response.retries for episode in episodes for turn in episode.turns)
        assert len(server.calls) == 4000 + retries and 1000 < retries < 2500
        assert len(server.conversations) == 2000


@on_a_loop
async def test_a_limit_on_tokens_counts_cached_ones_once() -> None:
    def cached(whole: dict[str, Any]) -> None:
        whole["usage"] = {"prompt_tokens": 8, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}

    async with FakeServer(*[edited(cached)] * 4) as server:
        job = Job(0, LLMPolicy(HTTPModel(server.url)), limits=Limits(tokens=25))
        episode = await play_episode(Greeting(), job)
        assert (episode.limit, len(episode.turns)) == ("tokens", 3)
        assert episode.usage == {"prompt_tokens": 24, "completion_tokens": 6, "cached_tokens": 24}


def test_the_package_is_named_when_it_is_missing() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; import marl_gem, marl_gem.llm.http"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert "MissingPackage" in done.stderr and "marl-gem[llm]" in done.stderr
