"""Helpers of the tests of models behind HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from marl_gem import Response, ToolSpec
from marl_gem.llm import Sampling
from marl_gem.llm.http import HTTPModel
from marl_gem.types import Message
from tests.fake_server import Behaviour, FakeServer

KEY = "sk-canary-0123456789"
TOOLS = (ToolSpec("look", "Look up an order.", {"type": "object", "properties": {"id": {"type": "string"}}}),)
PLAIN = Sampling(max_tokens=8)
CHAT = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
"""The least that a chat completion holds."""


def user(text: Any = "hello") -> list[Message]:
    return [{"role": "user", "content": text}]


async def ask(model: HTTPModel, messages: Sequence[Message] | None = None, **sampling: Any) -> Response:
    return await model.complete(messages or user(), Sampling(**{"max_tokens": 8, **sampling}), 7)


async def request_body(messages: Sequence[Message], tools: Sequence[ToolSpec] = (), **given: Any) -> dict[str, Any]:
    """The body of the request that these messages become."""
    async with FakeServer() as server:
        await HTTPModel(server.url, "tiny", **given).complete(messages, PLAIN, 7, tools)
        return server.calls[0].body


async def response_to(behaviour: Behaviour, **given: Any) -> Response:
    """The response to a server with this behaviour."""
    async with FakeServer(behaviour) as server:
        return await ask(HTTPModel(server.url, "tiny", **given))


def bare_server(handle: Callable[..., Any]) -> Any:
    """A server that handles every request in this way; the context is its URL."""

    class Bare:
        async def __aenter__(self) -> str:
            async def handler(request: web.BaseRequest) -> web.StreamResponse:
                response = handle(request)
                answer: web.StreamResponse = await response if asyncio.iscoroutine(response) else response
                return answer

            self.runner = web.ServerRunner(web.Server(handler), handler_cancellation=True, shutdown_timeout=0.01)
            await self.runner.setup()
            await web.TCPSite(self.runner, "127.0.0.1", 0).start()
            return f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"

        async def __aexit__(self, *_: object) -> None:
            await self.runner.cleanup()

    return Bare()
