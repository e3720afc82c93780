"""An OpenAI-compatible server with scripted behaviour, for tests and benchmarks.

In a test, on the test's own event loop:

    async with FakeServer(status(429, headers={"Retry-After": "1"}), say("hello")) as server:
        model = HTTPModel(server.url, "tiny")

Each call of `/v1/chat/completions` takes the next behaviour of the script; when none is left, the server answers with
what `answer` makes of the request. A behaviour is a function from a `Call` to a response.

In a separate process, for what must not share the client's processor or event loop:

    with serving("--latency", "0.1", "--failing", "0.3") as url: ...

    python tests/fake_server.py --port 8000 --latency 0.1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from aiohttp import web

PROBE = [{"role": "user", "content": "Say hi."}]
"""The messages of `marl_gem.llm.http.PROBE`."""


class Call(NamedTuple):
    """A call of `/v1/chat/completions`: its JSON body, its headers, and the request."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    request: web.Request


Behaviour = Callable[[Call], Awaitable[web.StreamResponse]]


class FakeServer:
    """Serves a model called "tiny", and adapters that are loaded into it.

    Args:
        script: the behaviours of the first calls.
        when: the behaviour of calls whose last message is this text; comes before the script.
        answer: makes the model's answer from the body of the request.
        latency: seconds that each call of the model takes.
        failing: the share of calls, drawn at random, that get a behaviour of `FAULTS`.
        seed: the seed of that draw.
        models: the names that `/v1/models` lists.
        has_tokens: whether it gives token ids and log-probabilities on request.
        refuses: a request with one of these fields is answered with 400.
        probe_script: the behaviours of the first requests with which a client finds out what the server takes. These
            are in `probes`, not in `calls`, and take nothing from the script.
        port: 0 takes a free port.
    """

    def __init__(
        self,
        *script: Behaviour,
        when: Mapping[str, Behaviour] | None = None,
        answer: Callable[[dict[str, Any]], str] = lambda body: "ok",
        latency: float = 0.0,
        failing: float = 0.0,
        seed: int = 0,
        models: Sequence[str] = ("tiny",),
        has_tokens: bool = True,
        refuses: Sequence[str] = (),
        probe_script: Sequence[Behaviour] = (),
        port: int = 0,
    ) -> None:
        self.script, self.when = deque(script), dict(when or {})
        self.probe_script = deque(probe_script)
        self.answer, self.latency, self.failing = answer, latency, failing
        self.models, self.has_tokens, self.refuses, self.port = list(models), has_tokens, refuses, port
        self.adapters: dict[str, str] = {}
        self.healthy: int = 200
        self.calls: list[Call] = []
        self.probes: list[Call] = []
        self.statuses: Counter[int] = Counter()
        self.conversations: Counter[str] = Counter()
        self.cancelled = 0
        self._rng = random.Random(seed)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._runner.server.connections) if self._runner and self._runner.server else 0

    async def start(self) -> None:
        """Listen; after `stop`, on the same port as before."""
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/unload_lora_adapter", self._unload)
        app.router.add_get("/stats", self._stats)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=2048, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop as a killed process does: connections break."""
        if self._runner:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        call = Call(json.loads(await request.read()), request.headers, request)
        if call.body["messages"] == PROBE:
            self.probes.append(call)
            return await self._probed(call)
        self.calls.append(call)
        self.conversations[json.dumps(call.body["messages"][0])] += 1
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            response = await self._behaviour(call)(call)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.statuses[response.status] += 1
        return response

    async def _probed(self, call: Call) -> web.StreamResponse:
        if self.probe_script:
            return await self.probe_script.popleft()(call)
        return await (self._refusal(call) or say("ok", has_tokens=self.has_tokens))(call)

    def _refusal(self, call: Call) -> Behaviour | None:
        refused = [name for name in self.refuses if name in call.body]
        if not refused:
            return None
        return status(400, json.dumps({"error": {"message": f"Unknown parameter: '{refused[0]}'."}}))

    def _behaviour(self, call: Call) -> Behaviour:
        if refusal := self._refusal(call):
            return refusal
        if behaviour := self.when.get(str(call.body["messages"][-1]["content"])):
            return behaviour
        if self.script:
            return self.script.popleft()
        if self.failing and self._rng.random() < self.failing:
            return self._rng.choice(FAULTS)
        if call.body["model"] not in {*self.models, *self.adapters}:
            return status(404, json.dumps({"error": {"message": f"The model {call.body['model']} does not exist."}}))
        return say(self.answer(call.body), has_tokens=self.has_tokens)

    async def _list(self, request: web.Request) -> web.Response:
        cards: list[dict[str, Any]] = [{"id": name, "object": "model", "parent": None} for name in self.models]
        cards += [{"id": name, "object": "model", "parent": self.models[0]} for name in self.adapters]
        return web.json_response({"object": "list", "data": cards})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=self.healthy)

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["lora_name"] in self.adapters and not body.get("load_inplace"):
            return web.json_response({"error": {"message": "has already been loaded"}}, status=400)
        self.adapters[body["lora_name"]] = body["lora_path"]
        return web.Response(text=f"Success: LoRA adapter '{body['lora_name']}' added successfully.")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if self.adapters.pop(name, None) is None:
            return web.json_response({"error": {"message": f"The lora adapter '{name}' cannot be found."}}, status=404)
        return web.Response(text="Success")

    async def _stats(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"calls": len(self.calls), "statuses": self.statuses, "conversations": len(self.conversations)}
        )


# Behaviours


def completion(call: Call, content: str | None, *, has_tokens: bool = True, **fields: Any) -> dict[str, Any]:
    """A complete chat completion; `fields` go into the message. Every letter is a token, its id the code point."""
    ids = [ord(letter) for letter in content or ""]
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": content, **fields},
        "finish_reason": "tool_calls" if fields.get("tool_calls") else "stop",
        "logprobs": None,
    }
    reply: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": call.body["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": 7, "completion_tokens": len(ids), "total_tokens": 7 + len(ids)},
    }
    if has_tokens and call.body.get("return_token_ids"):
        choice["token_ids"] = ids
        reply["prompt_token_ids"] = list(range(7))
    if has_tokens and call.body.get("logprobs"):
        tokens: list[dict[str, Any]] = [
            {"token": letter, "logprob": -0.25, "bytes": None, "top_logprobs": []} for letter in content or ""
        ]
        choice["logprobs"] = {"content": tokens}
    return reply


def say(content: str | None, *, has_tokens: bool = True, **fields: Any) -> Behaviour:
    """Answer with this text; `fields` go into the message, as in `tool_calls=[...]`."""

    async def behave(call: Call) -> web.Response:
        return web.json_response(completion(call, content, has_tokens=has_tokens, **fields))

    return behave


def edited(edit: Callable[[dict[str, Any]], object], content: str = "ok") -> Behaviour:
    """Answer with a completion that `edit` has changed."""

    async def behave(call: Call) -> web.Response:
        reply = completion(call, content)
        edit(reply)
        return web.json_response(reply)

    return behave


def status(code: int, body: str = "", headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answer with this status."""

    async def behave(call: Call) -> web.Response:
        return web.Response(status=code, text=body, headers=headers)

    return behave


def raw(body: bytes, content_type: str = "application/json", headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answer 200 with these bytes."""

    async def behave(call: Call) -> web.Response:
        return web.Response(body=body, content_type=content_type, headers=headers)

    return behave


def echo(code: int = 401) -> Behaviour:
    """Answer with what the request's headers held, the key included."""

    async def behave(call: Call) -> web.Response:
        return web.json_response({"error": {"message": f"Refused: {dict(call.headers)}"}}, status=code)

    return behave


async def hang(call: Call) -> web.Response:
    """Take the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def cut(call: Call) -> web.StreamResponse:
    """Break the connection in the middle of the body."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(call.request)
    await response.write(json.dumps(completion(call, "ok")).encode()[:40])
    assert call.request.transport
    call.request.transport.abort()
    return response


async def hang_up(call: Call) -> web.StreamResponse:
    """Break the connection before the reply begins."""
    assert call.request.transport
    call.request.transport.abort()
    return web.Response(status=499)


FAULTS: tuple[Behaviour, ...] = (
    status(429),
    status(429, headers={"Retry-After": "0"}),
    status(500),
    status(502),
    status(503),
    cut,
    hang_up,
    raw(b""),
    raw(b"null"),
    raw(b"<html>Bad gateway</html>", "text/html"),
    edited(lambda reply: reply["choices"].clear()),
)
"""Transient faults: a later call may succeed."""


# In a separate process


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """A server in another process; the context is its URL."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


async def serve(arguments: argparse.Namespace) -> None:
    server = FakeServer(
        answer=lambda body: arguments.text,
        latency=arguments.latency,
        failing=arguments.failing,
        seed=arguments.seed,
        port=arguments.port,
    )
    async with server:
        print(server.url, flush=True)  # noqa: T201 - the parent process waits for this line
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="An OpenAI-compatible server that always gives the same answer.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds a call takes")
    parser.add_argument("--failing", type=float, default=0.0, help="the share of calls that fail")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", default="ok", help="the model's answer")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
