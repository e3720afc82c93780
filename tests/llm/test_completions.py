"""Token ids in, token ids out: what is read of a server's answers, and which are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from marl_gem.errors import LLMError, TransientLLMError
from marl_gem.llm import Sampling
from marl_gem.llm.completions import Answer, TokenModel

PROMPT, ENDS = (5, 6), (9, 2)


def reply(**changes: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"prompt_token_ids": [5, 6], "token_ids": [7, 9], "finish_reason": "stop", "text": "x"}
    choice |= {"logprobs": {"token_logprobs": [-0.5, 1e-7]}}
    return {"model": "base", "choices": [choice | changes]}


def ask(answer: Any, **sampling: Any) -> tuple[Answer, dict[str, Any]]:
    """What is read of an answer, and the request."""
    asked: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response(answer)

    async def work() -> Answer:
        app = web.Application()
        app.router.add_post("/v1/completions", complete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        model = TokenModel(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        try:
            return await model.generate("base", PROMPT, Sampling(**{"max_tokens": 8, **sampling}), seed=-1, ends=ENDS)
        finally:
            await model.aclose()
            await runner.cleanup()

    return asyncio.run(work()), asked[0]


def test_ids_and_logprobs_come_back_as_they_were_sampled() -> None:
    answer, request = ask(reply(), temperature=0.7)
    assert answer == Answer((7, 9), (-0.5, 0.0), "stop")  # rounding above 0 is none
    assert request["prompt"] == [5, 6] and request["stop_token_ids"] == [2, 9] and request["max_tokens"] == 8
    assert request["logprobs"] == 0 and request["return_token_ids"] and request["temperature"] == 0.7
    assert request["top_k"] == -1 and 0 <= request["seed"] < 2**31


def test_the_most_likely_token_is_certain() -> None:
    assert ask(reply(), temperature=0)[0].logprobs == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "kind", "complaint"),
    [
        (lambda body: body.update(model="other"), LLMError, "we asked 'base', but the model 'other' answered"),
        (lambda body: body["choices"][0].update(prompt_token_ids=[1, 5, 6]), LLMError, "it read another prompt"),
        (lambda body: body["choices"][0].pop("token_ids"), LLMError, "must give token ids and log-probabilities"),
        (lambda body: body["choices"][0].update(logprobs=None), LLMError, "must give token ids and log-probabilities"),
        (lambda body: body["choices"].clear(), LLMError, "must give token ids and log-probabilities"),
        (lambda body: body["choices"][0].update(token_ids=[7]), TransientLLMError, "2 log-probabilities for 1 tokens"),
        (lambda body: body["choices"][0]["logprobs"].update(token_logprobs=[-1, 0.5]), LLMError, "diverged"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: Callable[[dict[str, Any]], object], kind: type[LLMError], complaint: str
) -> None:
    body = reply()
    change(body)
    with pytest.raises(kind, match=complaint):
        ask(body)
