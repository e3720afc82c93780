"""Errors of a model behind HTTP: which fault of a server raises what."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import json
import random
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from marl_gem.errors import (
    ContextTooLong,
    LLMError,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import http_client
from marl_gem.llm.http import HTTPModel, Timeouts
from tests.event_loop import async_test, wait_until
from tests.fake_server import (
    Behaviour,
    FakeServer,
    cut,
    edited,
    hang,
    hang_up,
    raw,
    say,
    status,
)
from tests.llm.http_helpers import CHAT, KEY, ask, bare_server, response_to, user

WRONG_LENGTHS = edited(lambda reply: reply["choices"][0]["token_ids"].append(1))
NAN = raw(b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"logprob":NaN}]},"token_ids":[1]}]}')


def usage(prompt_tokens: Any) -> Behaviour:
    return edited(lambda reply: reply["usage"].update(prompt_tokens=prompt_tokens))


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
    "404": (status(404, "no model"), LLMError, "404: no model. It lists the model 'tiny' all the same"),
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
    "binary": (raw(random.Random(0).randbytes(500)), TransientLLMError, "not UTF-8"),
    "no choices": (raw(b'{"error": {"message": "overloaded"}}'), TransientLLMError, "no choices.*overloaded"),
    "choices empty": (edited(lambda reply: reply["choices"].clear()), TransientLLMError, "no choices"),
    "no message": (raw(b'{"choices": [{}]}'), TransientLLMError, "message"),
    "content a number": (raw(b'{"choices": [{"message": {"content": 3}}]}'), TransientLLMError, "content"),
    "call without a name": (say(None, tool_calls=[{"function": {}}]), TransientLLMError, "name"),
    "negative usage": (edited(lambda reply: reply["usage"].update(prompt_tokens=-1)), TransientLLMError, "usage"),
    "no UTF-8": (raw(b'{"choices":[{"message":{"content":"a\xff"}}]}'), TransientLLMError, "not UTF-8"),
    "null content": (say(None), TransientLLMError, "content is null, though finish_reason is 'stop'"),
    "null without a reason": (
        edited(lambda reply: reply["choices"][0].update(finish_reason=None, message={})),
        TransientLLMError,
        "null",
    ),
    "null with no calls": (
        edited(lambda reply: reply["choices"][0].update(finish_reason="tool_calls", message={"tool_calls": []})),
        TransientLLMError,
        "null",
    ),
    "absurd usage": (usage(10**30), TransientLLMError, "usage"),
    "usage a text": (usage("7"), TransientLLMError, "usage"),
    "usage a fraction": (usage(7.5), TransientLLMError, "usage"),
    "usage infinite": (
        raw(b'{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1e999}}'),
        TransientLLMError,
        "cannot be used",
    ),
    "usage of other tokens": (
        edited(lambda reply: reply["usage"].update(completion_tokens=5)),
        TransientLLMError,
        "2 token ids, but a usage of 5",
    ),
    "probability above 1": (
        edited(lambda reply: reply["choices"][0]["logprobs"]["content"][0].update(logprob=0.5)),
        TransientLLMError,
        "log-probability of 0.5",
    ),
    "absurd id": (edited(lambda reply: reply["choices"][0].update(token_ids=[2**40])), TransientLLMError, "token_ids"),
    "absurd reason": (
        edited(lambda reply: reply["choices"][0].update(finish_reason="x" * 2000)),
        TransientLLMError,
        "finish_reason",
    ),
    "negative id": (edited(lambda reply: reply["choices"][0].update(token_ids=[-1])), TransientLLMError, "token_ids"),
    "deeply nested": (raw(b'{"choices":' + b"[" * 200_000), TransientLLMError, "no chat completion"),
    "deeply nested aside": (raw(b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), TransientLLMError, "nested"),
    "NaN": (NAN, TransientLLMError, "NaN"),
    "infinite": (raw(b'{"choices":[{"message":{"content":1e999}}]}'), TransientLLMError, "content"),
    "wrong lengths": (WRONG_LENGTHS, TransientLLMError, "3 token ids, but a usage of 2 tokens"),
    "aborted": (edited(lambda reply: reply["choices"][0].update(finish_reason="abort")), TransientLLMError, "abort"),
    "lying gzip": (raw(b"ok", headers={"Content-Encoding": "gzip"}), TransientLLMError, "did not answer in full"),
    **{f"too long, {who}": (status(400, error), ContextTooLong, "history") for who, error in TOO_LONG.items()},
    "too long, late": (status(500, "Context size has been exceeded."), ContextTooLong, "500: Context size"),
}


@pytest.mark.parametrize("name", FAULTS)
@async_test
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
        await wait_until(lambda: server.connections == 0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        pytest.param(email.utils.formatdate(time.time() + 36_000, usegmt=True), 36_000, id="later"),
        pytest.param(email.utils.formatdate(time.time() - 3600, usegmt=True), 0, id="earlier"),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e30", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("", None),
    ],
)
@async_test
async def test_retry_after(value: str, seconds: float | None) -> None:
    with pytest.raises(TransientLLMError) as caught:
        await response_to(status(429, headers={"Retry-After": value}))
    assert caught.value.retry_after == (
        seconds if seconds is None else pytest.approx(seconds, abs=3_600 if seconds > 100 else 0.1)
    )


@async_test
async def test_no_connection_in_time() -> None:
    """A server whose queue is full answers no client."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        queued = [socket.socket() for _ in range(4)]
        for client in queued:
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        model = HTTPModel(f"http://127.0.0.1:{listener.getsockname()[1]}", "tiny", timeouts=Timeouts(0.2, 5, 5))
        with pytest.raises(ServerUnreachable, match=r"took no connection for 0\.2 s"):
            await ask(model)
        for client in queued:
            client.close()


@async_test
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
@async_test
async def test_names_that_cannot_be_looked_up(
    number: int, kind: type[LLMError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise socket.gaierror(number, "says the resolver")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(LLMError, match=message) as caught:
        await ask(HTTPModel("http://models.example/v1", "tiny"))
    assert type(caught.value) is kind


@async_test
async def test_a_server_that_does_not_speak_http(monkeypatch: pytest.MonkeyPatch) -> None:
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
@async_test
async def test_an_untrusted_certificate(tmp_path: Path) -> None:
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


@async_test
async def test_the_size_of_a_reply_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_BODY", 2**20)
    packed = {"Content-Encoding": "gzip"}
    for behaviour in (raw(b"x" * 2**21), raw(gzip.compress(b" " * 2**27), headers=packed)):
        with pytest.raises(LLMError, match="more than 1 MiB") as caught:
            await response_to(behaviour)
        assert type(caught.value) is LLMError


@async_test
async def test_a_redirect_is_not_followed() -> None:
    async with FakeServer() as other, FakeServer(*[status(307, headers={"Location": other.url})] * 2) as server:
        with pytest.raises(LLMError, match="give it as url"):
            await ask(HTTPModel(server.url, "tiny"))
        assert not other.calls
