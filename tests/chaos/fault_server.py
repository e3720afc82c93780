"""A model server with faults of every kind, by name, at a rate, from a seed.

    with fault_server(rate=0.3, seed=7) as server:
        HTTPModel(server.url, "tiny")

A call that meets no fault gets the right answer, `answer_to` its last message. No fault gives another answer that could
be taken for one: what it gives is damaged, or right all the same.
"""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import hashlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.fake_server import Behaviour, Call, FakeServer, completion, cut, hang, hang_up, status
from tests.secret_forms import forms

MIB = 2**20
PACKED = {"Content-Encoding": "gzip"}
BOMB = gzip.compress(b" " * (80 * MIB))
WRONG = "wrong"
"""The answer in replies that must not be taken for one."""


def answer_to(text: str) -> str:
    """The right answer to a message."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def right(call: Call, suffix: str = "") -> dict[str, Any]:
    return completion(call, answer_to(call.body["messages"][-1]["content"]) + suffix)


def body(
    make: Callable[[dict[str, Any]], bytes],
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    """Answer 200 with what `make` makes of a completion with the answer `WRONG`."""

    async def behave(call: Call) -> web.Response:
        content = make(completion(call, WRONG))
        return web.Response(body=content, content_type=content_type, headers=headers)

    return behave


def damaged(edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> Behaviour:
    """Answer 200 with a completion that `edit`, given it and its choice, has changed."""

    def make(reply: dict[str, Any]) -> bytes:
        edit(reply, reply["choices"][0])
        return json.dumps(reply).encode()

    return body(make)


def harmless(
    suffix: str = "", content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> Behaviour:
    """The right answer in an unusual reply."""

    async def behave(call: Call) -> web.Response:
        content = json.dumps(right(call, suffix)).encode()
        return web.Response(body=content, content_type=content_type, headers=headers)

    return behave


async def duplicate_headers(call: Call) -> web.Response:
    response = web.Response(body=json.dumps(right(call)).encode(), content_type="application/json")
    for value in ("0", "1e30", "soon"):
        response.headers.add("Retry-After", value)
    return response


async def truncated_chunks(call: Call) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    await response.write(json.dumps(completion(call, WRONG)).encode()[:50])
    assert call.request.transport
    call.request.transport.abort()
    return response


async def slow_drip(call: Call) -> web.StreamResponse:
    """A byte now and then, without an end."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(call.request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


async def huge(call: Call) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(call.request)
    for _ in range(80):
        await response.write(b" " * MIB)
    return response


async def redirected_to_itself(call: Call) -> web.Response:
    return web.Response(status=302, headers={"Location": str(call.request.url)})


async def http_date(call: Call) -> web.Response:
    return web.Response(status=429, headers={"Retry-After": email.utils.formatdate(time.time(), usegmt=True)})


def repeating_key(code: int) -> Behaviour:
    """Say the key that was sent, in any of its forms."""

    async def behave(call: Call) -> web.Response:
        key = call.headers.get("Authorization", "").removeprefix("Bearer ")
        number = int(answer_to(call.body["messages"][-1]["content"]), 16)
        shown = list(forms(key).values())[number % len(forms(key))]
        content = right(call, f" {shown}") if code == 200 else {"error": {"message": f"wrong key: {shown}"}}
        return web.json_response(content, status=code)

    return behave


def busy(value: str, code: int = 429) -> Behaviour:
    return status(code, headers={"Retry-After": value})


def refusal(text: str) -> Behaviour:
    return status(400, json.dumps({"error": {"message": text}}))


FAULTS: Mapping[str, Behaviour] = {
    "never answers": hang,
    "connection reset before the reply": hang_up,
    "connection reset in the body": cut,
    "chunked body cut off": truncated_chunks,
    "slow drip without an end": slow_drip,
    "400 naming a field": refusal("Unknown parameter: 'seed'."),
    "400 repeating the body": refusal("bad input: seed, top_k, min_p, logprobs, return_token_ids"),
    "400 generic": status(400, "Bad Request"),
    "401": status(401, "who are you?"),
    "403": status(403),
    "404": status(404, "no such model"),
    "408": status(408),
    "409": status(409),
    "413": status(413),
    "422": status(422, "roles must alternate"),
    "425": status(425),
    "429": status(429),
    "429, Retry-After 0": busy("0"),
    "429, Retry-After a date": http_date,
    "429, Retry-After a day": busy("86400"),
    "429, Retry-After 1e30": busy("1e30"),
    "429, Retry-After nonsense": busy("nan, soon"),
    "500": status(500, "boom"),
    "500, HTML": status(500, "<html><body>\x1b[31mInternal Server Error</body></html>"),
    "501": status(501),
    "502": status(502),
    "503": status(503),
    "503, Retry-After 0": busy("0", 503),
    "504": status(504),
    "529": status(529),
    "redirect elsewhere": status(307, headers={"Location": "http://127.0.0.1:9/v1"}),
    "redirect to itself": redirected_to_itself,
    "redirect nowhere": status(301),
    "empty body": body(lambda reply: b""),
    "null": body(lambda reply: b"null"),
    "a list": body(lambda reply: json.dumps([reply]).encode()),
    "JSON cut off": body(lambda reply: json.dumps(reply).encode()[:-9]),
    "JSON twice": body(lambda reply: json.dumps(reply).encode() * 2),
    "server-sent events": body(lambda reply: b"data: " + json.dumps(reply).encode() + b"\n\n", "text/event-stream"),
    "HTML": body(lambda reply: b"<html>" + WRONG.encode() + b"</html>", "text/html"),
    "garbage": body(lambda reply: random.Random(0).randbytes(300)),
    "invalid UTF-8": body(lambda reply: json.dumps(reply).replace(WRONG, "wr%ng").encode().replace(b"%", b"\xff")),
    "UTF-16": body(lambda reply: json.dumps(reply).encode("utf-16")),
    "byte order mark": body(lambda reply: b"\xef\xbb\xbf" + json.dumps(reply).encode()),
    "no gzip": body(lambda reply: json.dumps(reply).encode(), headers=PACKED),
    "gzip bomb": body(lambda reply: BOMB, headers=PACKED),
    "80 MiB": huge,
    "200,000 levels": body(lambda reply: b'{"choices":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "null content": damaged(lambda reply, choice: choice["message"].update(content=None)),
    "content a number": damaged(lambda reply, choice: choice["message"].update(content=1)),
    "no message": damaged(lambda reply, choice: choice.pop("message")),
    "no choices": damaged(lambda reply, choice: reply["choices"].clear()),
    "an error with 200": body(lambda reply: b'{"error": {"message": "overloaded"}}'),
    "a call without a name": damaged(lambda reply, choice: choice["message"].update(tool_calls=[{"function": {}}])),
    "aborted": damaged(lambda reply, choice: choice.update(finish_reason="abort")),
    "usage negative": damaged(lambda reply, choice: reply["usage"].update(prompt_tokens=-1)),
    "usage of 1e30": damaged(lambda reply, choice: reply["usage"].update(prompt_tokens=10**30)),
    "usage NaN": damaged(lambda reply, choice: reply["usage"].update(completion_tokens=float("nan"))),
    "usage a text": damaged(lambda reply, choice: reply["usage"].update(completion_tokens="many")),
    "too many token ids": damaged(lambda reply, choice: choice["token_ids"].append(1)),
    "negative token id": damaged(lambda reply, choice: choice.update(token_ids=[-1] * len(WRONG))),
    "too few log-probabilities": damaged(lambda reply, choice: choice["logprobs"]["content"].pop()),
    "log-probability above 0": damaged(lambda reply, choice: choice["logprobs"]["content"][0].update(logprob=2.0)),
    "401 with the key": repeating_key(401),
    "500 with the key": repeating_key(500),
    "an answer with the key": repeating_key(200),
    "wrong content type": harmless(content_type="image/png"),
    "duplicate headers": duplicate_headers,
    "control characters": harmless("\x00\x1b]52;c;AAAA\x07\x85\u202e"),
    "lone surrogates": harmless("\ud800\udc00\udfff"),
}

RARE = ("gzip bomb", "80 MiB", "never answers", "slow drip without an end", "200,000 levels")
"""Faults that take long; drawn a tenth as often as others."""


class FaultServer(FakeServer):
    """Answers right, or with a fault.

    Args:
        rate: the share of calls that meet a fault; may be changed later.
        seed: of the draw.

    Attributes:
        met: how often each fault was met.
    """

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__()
        self.rate = rate
        self.met: Counter[str] = Counter()
        self._weights = [0.1 if name in RARE else 1.0 for name in FAULTS]
        self._draws = random.Random(seed)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        call = Call(json.loads(await request.read()), request.headers, request)
        if self._draws.random() < self.rate:
            (name,) = self._draws.choices(list(FAULTS), self._weights)
            self.met[name] += 1
            return await FAULTS[name](call)
        return web.json_response(right(call))


@contextmanager
def fault_server(
    rate: float, seed: int, faults: tuple[str, ...] = tuple(FAULTS), down: float = 0.0
) -> Iterator[FaultServer]:
    """A fault server in a thread. It refuses connections for `down` seconds, every ten times as many seconds."""
    server, loop = FaultServer(rate, seed), asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        await server.start()
        started.set()
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), 9 * down if down else None)
            except TimeoutError:
                await server.stop()
                await asyncio.sleep(down)
                await server.start()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    started.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
