"""Hosted models through litellm: requests, errors, costs, keys. Most tests need litellm: `make test-litellm`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from typing import Any

import pytest

import marl_gem
from marl_gem import Response
from marl_gem.errors import (
    ConfigError,
    ContextTooLong,
    LLMError,
    MissingPackage,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import LLM, Sampling
from marl_gem.llm import litellm as litellm_module
from marl_gem.llm.litellm import LiteLLMModel
from marl_gem.llm.models import Connection, Models
from marl_gem.policies import LLMPolicy
from marl_gem.rollout import Job, collect
from marl_gem.types import Message, ToolSpec

pytest.importorskip("aiohttp")

from tests.event_loop import async_test_with_tasks as async_test  # litellm leaves tasks behind
from tests.fake_server import Behaviour, FakeServer, cut, echo, edited, hang, hang_up, raw, say, serving, status

KEY = "sk-canary-0123456789abcdef"
KUHN = "game:KuhnPoker-v0"
PROMPT: list[Message] = [{"role": "user", "content": "Check or bet?"}]


def load(text: str, **connection: Any) -> LLM:
    """The model that a text names."""
    return Models().get(f"litellm:{text}", Connection(**connection))


async def ask(llm: LLM, **sampling: Any) -> Response:
    return await llm.complete(PROMPT, Sampling(**sampling), 7)


needs_litellm = pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")


@pytest.fixture
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if litellm had not been imported yet."""
    monkeypatch.setattr(litellm_module, "load_litellm", litellm_module.load_litellm.__wrapped__)


@pytest.mark.usefixtures("not_loaded")
def test_hosted_models_need_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingPackage, match=r"pip install 'marl-gem\[litellm\]'"):
        load("openai/gpt-4o-mini")


@pytest.mark.usefixtures("not_loaded")
@pytest.mark.parametrize("version", ["1.82.7", "1.82.8"])
def test_a_compromised_litellm_is_not_imported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    with pytest.raises(ConfigError, match=f"litellm {version} was published by an attacker and steals keys"):
        load("openai/gpt-4o-mini")


def test_litellm_is_imported_with_the_first_model() -> None:
    code = "import marl_gem.llm.models, marl_gem.llm.litellm, sys; print('litellm' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "False\n"


@needs_litellm
@async_test
async def test_requests_and_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"id": 1}'}}
    script = [say("[check]", reasoning_content="hm"), say(None, tool_calls=[call]), say("<think>so</think>[bet]")]
    async with FakeServer(*script) as server:
        model = load(f"openai/tiny@{server.url}", api_key_env="MY_KEY", price=(1.0, 2.0))
        responses = [await ask(model, temperature=0.5, max_tokens=9) for _ in script]
        with_tools = await model.complete(
            [{"role": "user", "content": "hel\ud800lo"}], Sampling(8, stop=("END",)), 2**62 + 5, [ToolSpec("look")]
        )
    assert [response.text for response in responses] == [
        "[check]",
        '<tool_call>{"name": "look", "arguments": {"id": 1}}</tool_call>',
        "[bet]",
    ]
    assert [response.reasoning for response in responses] == ["hm", "", "so"]
    assert responses[0].usage == {"prompt_tokens": 7, "completion_tokens": 7}
    assert responses[0].cost == pytest.approx((7 * 1 + 7 * 2) / 1e6) and responses[0].seconds > 0
    assert with_tools.text == "ok" and model.name == "openai/tiny"
    first, last = server.calls[0], server.calls[-1]
    assert first.headers["Authorization"] == f"Bearer {KEY}"
    assert (first.body["model"], first.body["temperature"], first.body["max_tokens"]) == ("tiny", 0.5, 9)
    assert "top_p" not in first.body and "top_k" not in first.body and "tools" not in first.body
    assert (last.body["seed"], last.body["stop"]) == (5, ["END"])
    assert last.body["messages"][0]["content"] == "hel?lo" and last.body["tools"][0]["function"]["name"] == "look"


@needs_litellm
@pytest.mark.parametrize(
    ("behaviour", "kind", "message"),
    [
        (status(429), TransientLLMError, "429"),
        (status(429, '{"error": {"code": "insufficient_quota"}}'), LLMError, "no credit left"),
        (status(408), TransientLLMError, "408"),
        (status(500), TransientLLMError, "500"),
        (status(502), ServerUnreachable, "502"),
        (status(503), ServerUnreachable, "503"),
        (status(503, headers={"Retry-After": "3"}), TransientLLMError, "503"),
        (status(401), LLMError, "Is the API key in MY_KEY the right one"),
        (status(403), LLMError, "Is the API key in MY_KEY the right one"),
        (status(400, '{"error": {"message": "no"}}'), LLMError, "no"),
        (status(404), LLMError, "404"),
        (status(422), LLMError, "422"),
        (
            status(400, '{"error": {"message": "This model\'s maximum context length is 10 tokens"}}'),
            ContextTooLong,
            "Show less of the history",
        ),
        (status(400, '{"error": {"message": "prompt is too long"}}'), ContextTooLong, "Show less of the history"),
        (cut, TransientLLMError, "onnection"),
        (hang_up, LLMError, "onnection"),
        (hang, TransientLLMError, "timed out"),
        (raw(b""), TransientLLMError, "Expecting value"),
        (raw(b"null"), TransientLLMError, "Empty or invalid"),
        (raw(b"<html>", "text/html"), TransientLLMError, "<html>"),
        (edited(lambda reply: reply["choices"].clear()), TransientLLMError, "it holds no choices"),
        *((echo(code), LLMError, "Refused") for code in (400, 401, 403, 404, 422, 429, 500, 503)),
    ],
)
@async_test
async def test_errors(
    monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, kind: type[LLMError], message: str
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    async with FakeServer(behaviour) as server:
        model = LiteLLMModel("openai/tiny", url=server.url, api_key_env="MY_KEY", timeout=0.5)
        with pytest.raises(kind, match=message) as caught:
            await ask(model)
        assert len(server.calls) == 1, "litellm retries nothing"
        assert (await ask(model)).text == "ok"
    assert type(caught.value) is kind or kind is LLMError
    error: BaseException | None = caught.value
    while error:
        assert KEY not in str(error)
        error = error.__cause__ or error.__context__
    assert "openai/tiny" in str(caught.value) and "\n" not in str(caught.value)


@needs_litellm
@async_test
async def test_short_or_plain_values_of_the_environment_are_not_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_KEY", "production")
    monkeypatch.setenv("ANOTHER_API_KEY", KEY)
    async with FakeServer(say(f"[check] in production with {KEY}")) as server:
        response = await ask(load(f"openai/tiny@{server.url}"))
    assert response.text == "[check] in production with [secret]"


@needs_litellm
@async_test
async def test_a_provider_may_ask_for_a_wait() -> None:
    async with FakeServer(status(429, headers={"Retry-After": "3"})) as server:
        with pytest.raises(TransientLLMError) as caught:
            await ask(LiteLLMModel("openai/tiny", url=server.url))
    assert caught.value.retry_after == 3.0
    with pytest.raises(ServerUnreachable, match="Connection error"):
        await ask(LiteLLMModel("openai/tiny", url=server.url))


@needs_litellm
@async_test
async def test_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    names = ["gpt-4o-mini", "of-another-time"]
    async with FakeServer(models=names) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        listed, unknown = [await ask(load(f"openai/{name}")) for name in names]
        elsewhere = await ask(load(f"openai/gpt-4o-mini@{server.url}"))
        server.script.append(edited(lambda reply: reply.pop("usage")))
        without_usage = await ask(load("openai/gpt-4o-mini"))
    prices = litellm_module.load_litellm().model_cost["gpt-4o-mini"]
    assert listed.cost == pytest.approx(7 * prices["input_cost_per_token"] + 2 * prices["output_cost_per_token"])
    assert listed.cost and listed.usage == {"prompt_tokens": 7, "completion_tokens": 2}
    assert unknown.cost is None and elsewhere.cost is None and without_usage.cost is None and without_usage.usage == {}
    keys = [call.headers["Authorization"] for call in server.calls]
    assert keys == [f"Bearer {KEY}", f"Bearer {KEY}", "Bearer none", f"Bearer {KEY}"], "a key is not sent elsewhere"


@needs_litellm
@async_test
async def test_a_price_of_zero_in_the_list_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "free-in-the-list"
    prices = {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"}
    litellm_module.load_litellm().register_model({name: prices})
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with FakeServer(models=[name]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        assert (await ask(load(f"openai/{name}"))).cost is None
        assert (await ask(load(f"openai/{name}", price=(0.0, 0.0)))).cost == 0, "a given price is known"


@needs_litellm
@pytest.mark.parametrize(
    ("text", "api_key_env", "message"),
    [
        ("foo", None, "litellm knows no provider of 'foo'; write PROVIDER/MODEL"),
        ("openai/gpt-4o-mini", None, "needs an API key in OPENAI_API_KEY, which is not set; .* api_key_env"),
        ("anthropic/claude-sonnet-4-5", None, "needs an API key in ANTHROPIC_API_KEY"),
        ("openai/gpt-4o-mini", "NOT_SET", "needs an API key in NOT_SET, which is not set"),
    ],
)
def test_a_model_that_cannot_be_called_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    api_key_env: str | None,
    message: str,
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=message):
        load(text, api_key_env=api_key_env)
    assert capsys.readouterr() == ("", ""), "litellm prints nothing"


@needs_litellm
@async_test
async def test_defaults_that_a_provider_does_not_take_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with FakeServer(models=["gpt-5"]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        await ask(load("openai/gpt-5"))
        with pytest.raises(LLMError, match="temperature"):
            await ask(load("openai/gpt-5"), temperature=0.3)
    assert len(server.calls) == 1


@needs_litellm
def test_a_model_in_several_event_loops(capfd: pytest.CaptureFixture[str]) -> None:
    with serving("--text", "[check]") as url:
        policy = LLMPolicy(load(f"openai/tiny@{url}"))
        for _ in range(2):
            episodes = collect(lambda: marl_gem.make(KUHN), [Job(seed, policy) for seed in range(8)])
            assert not any(episode.error for episode in episodes)
    assert capfd.readouterr() == ("", "")
