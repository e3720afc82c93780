"""What a server does not take is found out once, before the first answer, and changes no later request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from marl_gem.errors import LLMError, ServerUnreachable, TransientLLMError
from marl_gem.llm import Sampling
from marl_gem.llm.cache import Cached
from marl_gem.llm.http import PROBE, HTTPModel
from marl_gem.llm.retry import Backoff, Retrying
from marl_gem.tools.calls import read_calls, write_call
from marl_gem.types import ToolCall
from tests import fake_server
from tests.event_loop import async_test
from tests.fake_server import Behaviour, Call, FakeServer, hang_up, say, status
from tests.llm.http_helpers import PLAIN, TOOLS, ask, user

FIELDS = ["seed", "top_k", "min_p", "repetition_penalty", "return_token_ids", "logprobs"]


def strict(refuses: Collection[str], names: str) -> Behaviour:
    """A server that does not take some fields. `names` says what it names: "one" of them, "all", "none", or "body"."""

    async def behave(call: Call) -> web.StreamResponse:
        refused = [field for field in refuses if field in call.body]
        text = {"one": refused[:1], "all": refused, "none": "Bad Request", "body": call.body}[names]
        return await (status(422, json.dumps({"error": text})) if refused else say("ok"))(call)

    return behave


def test_the_fake_server_knows_the_probe() -> None:
    assert fake_server.PROBE == PROBE


@pytest.mark.parametrize("refused", [[], ["top_k"], ["seed", "min_p"], FIELDS], ids=len)
@pytest.mark.parametrize(("names", "most"), [("one", 8), ("all", 13), ("none", 13), ("body", 13)])
@async_test
async def test_exactly_the_fields_that_a_server_refuses_are_left_out(
    refused: list[str], names: str, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeServer(probe_script=[strict(refused, names)] * 99) as server:
        model = HTTPModel(server.url, "tiny")
        responses = [await ask(model) for _ in range(3)]
        assert len(server.probes) <= most and len(server.calls) == 3
        for call in server.calls:
            assert {field for field in FIELDS if field not in call.body} == set(refused)
        assert all(set(response.unsent) == set(refused) for response in responses)
    lines = [record.getMessage() for record in caplog.records]
    line = f"{server.url} takes no {', '.join(sorted(refused))}: left out in all requests"
    assert lines == ([line] if refused else [])


@async_test
async def test_a_refusal_later_is_an_error_of_its_call_and_changes_nothing() -> None:
    complaint = json.dumps({"detail": [{"msg": "bad", "input": {"top_k": -1, "logprobs": True, "seed": 1}}]})
    async with FakeServer(status(422, complaint), status(400, "no"), say("ok")) as server:
        model = HTTPModel(server.url, "tiny")
        for code in (422, 400):
            with pytest.raises(LLMError, match=str(code)):
                await ask(model)
        response = await ask(model)
        assert response.logprobs and response.unsent == ()
        assert len(server.calls) == 3 and len(server.probes) == 1
        assert len({tuple(call.body) for call in server.calls}) == 1, "all have the same fields"


@async_test
async def test_an_accident_at_the_probe_leaves_nothing_out() -> None:
    for accident in (status(400, "Unknown parameter: 'seed'."), status(400, "try later")):
        async with FakeServer(probe_script=[accident]) as server:
            assert (await ask(HTTPModel(server.url, "tiny"))).unsent == ()
            assert set(FIELDS) <= server.calls[0].body.keys() and len(server.probes) <= 3


@async_test
async def test_concurrent_first_calls_wait_for_one_probe_and_share_its_failure() -> None:
    async with FakeServer(latency=0.05, refuses=["seed"]) as server:
        model = HTTPModel(server.url, "tiny")
        responses = await asyncio.gather(*(ask(model) for _ in range(20)))
        assert {response.unsent for response in responses} == {("seed",)} and len(server.probes) == 3
    async with FakeServer(probe_script=[status(401, "who?")]) as server:
        model = HTTPModel(server.url, "tiny")
        errors = await asyncio.gather(*(ask(model) for _ in range(20)), return_exceptions=True)
        assert len(server.probes) == 1 and {type(error) for error in errors} == {LLMError}
        assert all("401: who?" in str(error) for error in errors)
        assert (await ask(model)).text == "ok", "a later call asks again"


@async_test
async def test_a_probe_that_fails_goes_on_where_it_was() -> None:
    refusal = strict(["seed", "top_k"], "one")
    faults = [refusal, status(503), refusal, hang_up, refusal, status(500)]
    async with FakeServer(probe_script=[*faults, *[refusal] * 9]) as server:
        model = HTTPModel(server.url, "tiny")
        kinds: list[type[LLMError]] = [ServerUnreachable, ServerUnreachable, TransientLLMError]
        for kind in kinds:
            with pytest.raises(kind):
                await ask(model)
        assert (await ask(model)).unsent == ("top_k", "seed")
        assert len(server.probes) == 7, "four requests, and three that failed"
    async with FakeServer(probe_script=[status(500), hang_up]) as server:
        retrying = Retrying(HTTPModel(server.url, "tiny"), backoff=Backoff(0.001, 0.001))
        assert (await retrying.complete(user(), PLAIN, 7)).retries == 2


@async_test
async def test_fields_that_come_into_use_later_are_found_out_then() -> None:
    async with FakeServer(refuses=["logprobs"]) as server:
        model = HTTPModel(server.url, "tiny")
        assert (await ask(model, temperature=0.5)).unsent == () and len(server.probes) == 1
        assert (await ask(model)).unsent == ("logprobs",) and len(server.probes) == 4
        assert (await ask(model, temperature=0.5)).unsent == () and len(server.probes) == 4


@async_test
async def test_a_server_that_refuses_every_request() -> None:
    async with FakeServer(probe_script=[status(400, "temperature must be 1")] * 9) as server:
        with pytest.raises(LLMError, match="400: temperature must be 1"):
            await ask(HTTPModel(server.url, "tiny"), temperature=0.5)
        assert not server.calls


@async_test
async def test_a_server_that_took_the_probe_and_had_too_few_tokens_for_it() -> None:
    error = "Could not finish the message because max_tokens or model output limit was reached."
    async with FakeServer(probe_script=[status(400, error)]) as server:
        assert (await ask(HTTPModel(server.url, "tiny"))).unsent == () and len(server.probes) == 1


@async_test
async def test_a_limit_by_another_name() -> None:
    error = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."

    async def renamed(call: Call) -> web.StreamResponse:
        return await (status(400, error) if "max_tokens" in call.body else say("ok"))(call)

    async with FakeServer(probe_script=[renamed] * 9) as server:
        assert (await ask(HTTPModel(server.url, "tiny"))).unsent == (), "it was sent by its other name"
        assert server.calls[-1].body["max_completion_tokens"] == 8 and "max_tokens" not in server.calls[-1].body


@async_test
async def test_a_server_that_reads_no_calls_still_shows_the_tools() -> None:
    error = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'

    async def no_parser(call: Call) -> web.StreamResponse:
        return await (status(400, error) if call.body.get("tool_choice") != "none" else say("ok"))(call)

    async with FakeServer(say(write_call("look", {})), probe_script=[no_parser] * 9) as server:
        response = await HTTPModel(server.url, "tiny").complete(user(), PLAIN, 7, TOOLS)
        assert server.calls[-1].body["tool_choice"] == "none" and server.calls[-1].body["tools"]
        assert "top_k" in server.calls[-1].body and response.unsent == ()
        assert read_calls(response.text).calls == [ToolCall("look", {})]


@async_test
async def test_a_cached_answer_says_what_it_was_asked_without(tmp_path: Path) -> None:
    async with FakeServer(refuses=["seed"]) as server:
        for _ in range(2):
            model = Cached(HTTPModel(server.url, "tiny"), tmp_path / "answers.sqlite")
            response = await model.complete(user(), Sampling(max_tokens=8), 7)
            assert response.unsent == ("seed",)
        assert response.cached and len(server.calls) == 1, "a cached answer needs no server"
