"""Hosted models, by litellm."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from typing import Any

import pytest

import marl_gem
from marl_gem.errors import (
    ConfigError,
    ContextTooLong,
    LLMError,
    MissingPackage,
    ServerUnreachable,
    TransientLLMError,
)
from marl_gem.llm import Sampling
from marl_gem.rollout import Job, collect
from marl_gem.specs.loading import MAX_TOKENS
from marl_gem.types import ToolSpec

pytest.importorskip("aiohttp")

from tests.event_loop import async_test
from tests.fake_server import Behaviour, FakeServer, cut, echo, edited, hang, hang_up, raw, say, serving, status
from tests.policy_texts import KEY, KUHN, answer, load


@pytest.fixture(scope="module")
def hosted() -> Any:
    if importlib.util.find_spec("litellm") is None:  # not imported: that is for us to do, quietly
        pytest.skip("litellm is not installed")
    from marl_gem.llm import litellm

    return litellm


def test_hosted_models_need_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    clear_loaded(monkeypatch)
    with pytest.raises(MissingPackage, match=r"pip install 'marl-gem\[litellm\]'"):
        load("litellm:openai/gpt-4o-mini")


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8"])
def test_a_litellm_that_steals_keys_is_not_even_imported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    clear_loaded(monkeypatch)
    with pytest.raises(ConfigError, match=f"litellm {version} was published by an attacker and steals keys"):
        load("litellm:openai/gpt-4o-mini")


def clear_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had asked for litellm yet."""
    from marl_gem.llm import litellm

    monkeypatch.setattr(litellm, "load_litellm", litellm.load_litellm.__wrapped__)


def test_nothing_hosted_is_imported_before_it_is_asked_for() -> None:
    import subprocess

    code = "import marl_gem.specs, marl_gem.llm.litellm, sys; print('litellm' in sys.modules, 'aiohttp' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split()[0] == "False"


@async_test
async def test_a_hosted_model_answers(hosted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"id": 1}'}}
    script = [say("[check]", reasoning_content="hm"), say(None, tool_calls=[call]), say("<think>so</think>[bet]")]
    async with FakeServer(*script) as server:
        policy = load(f"litellm:openai/tiny@{server.url},temperature=0.5,api_key_env=MY_KEY,price=1/2")
        responses = [await answer(policy) for _ in script]
        with_tools = await policy.llm.complete(
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
    assert with_tools.text == "ok" and policy.name == "openai/tiny"
    first, last = server.calls[0], server.calls[-1]
    assert first.headers["Authorization"] == f"Bearer {KEY}"
    assert (first.body["model"], first.body["temperature"], first.body["max_tokens"]) == ("tiny", 0.5, MAX_TOKENS)
    assert "top_p" not in first.body and "top_k" not in first.body and "tools" not in first.body
    assert (last.body["seed"], last.body["stop"]) == (5, ["END"])
    assert last.body["messages"][0]["content"] == "hel?lo" and last.body["tools"][0]["function"]["name"] == "look"


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
        (edited(lambda whole: whole["choices"].clear()), TransientLLMError, "it holds no choices"),
        *((echo(code), LLMError, "Refused") for code in (400, 401, 403, 404, 422, 429, 500, 503)),
    ],
)
@async_test
async def test_what_a_hosted_model_fails_with(
    hosted: Any, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, kind: type[LLMError], message: str
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    async with FakeServer(behaviour) as server:
        model = hosted.HostedModel("openai/tiny", url=server.url, api_key_env="MY_KEY", timeout=0.5)
        with pytest.raises(kind, match=message) as caught:
            await model.complete([{"role": "user", "content": "hello"}], Sampling(8), 7)
        assert len(server.calls) == 1, "litellm asks nothing again by itself"
        assert (await model.complete([{"role": "user", "content": "hello"}], Sampling(8), 7)).text == "ok"
    assert type(caught.value) is kind or kind is LLMError
    error: BaseException | None = caught.value
    while error:
        assert KEY not in str(error)
        error = error.__cause__ or error.__context__
    assert "openai/tiny" in str(caught.value) and "\n" not in str(caught.value)


@async_test
async def test_ordinary_words_are_no_secrets(hosted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_KEY", "production")
    monkeypatch.setenv("ANOTHER_API_KEY", KEY)
    async with FakeServer(say(f"[check] in production with {KEY}")) as server:
        response = await answer(load(f"litellm:openai/tiny@{server.url}"))
    assert response.text == "[check] in production with [secret]"


@async_test
async def test_how_long_a_hosted_model_asks_to_wait(hosted: Any) -> None:
    async with FakeServer(status(429, headers={"Retry-After": "3"})) as server:
        with pytest.raises(TransientLLMError) as caught:
            await hosted.HostedModel("openai/tiny", url=server.url).complete(
                [{"role": "user", "content": "hello"}], Sampling(8), 7
            )
    assert caught.value.retry_after == 3.0
    with pytest.raises(ServerUnreachable, match="Connection error"):
        await hosted.HostedModel("openai/tiny", url=server.url).complete(
            [{"role": "user", "content": "hello"}], Sampling(8), 7
        )


@async_test
async def test_what_a_hosted_model_costs(hosted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    names = ["gpt-4o-mini", "of-another-time"]
    async with FakeServer(models=names) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        listed, unknown = [await answer(load(f"litellm:openai/{name}")) for name in names]
        elsewhere = await answer(load(f"litellm:openai/gpt-4o-mini@{server.url}"))
        server.script.append(edited(lambda whole: whole.pop("usage")))
        untold = await answer(load("litellm:openai/gpt-4o-mini"))
    prices = hosted.load_litellm().model_cost["gpt-4o-mini"]
    assert listed.cost == pytest.approx(7 * prices["input_cost_per_token"] + 2 * prices["output_cost_per_token"])
    assert listed.cost > 0 and listed.usage == {"prompt_tokens": 7, "completion_tokens": 2}
    assert unknown.cost is None and elsewhere.cost is None and untold.cost is None and untold.usage == {}
    keys = [call.headers["Authorization"] for call in server.calls]
    assert keys == [f"Bearer {KEY}", f"Bearer {KEY}", "Bearer none", f"Bearer {KEY}"], "a key is not sent elsewhere"


@async_test
async def test_a_price_of_zero_in_the_list_is_unknown(hosted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "free-in-the-list"
    prices = {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"}
    hosted.load_litellm().register_model({name: prices})
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with FakeServer(models=[name]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        assert (await answer(load(f"litellm:openai/{name}"))).cost is None
        assert (await answer(load(f"litellm:openai/{name},price=0/0"))).cost == 0, "but one that is message is known"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("litellm:foo", "litellm knows no provider of 'foo'; write PROVIDER/MODEL"),
        ("litellm:openai/gpt-4o-mini", "needs an API key in OPENAI_API_KEY, which is not set; .* api_key_env"),
        ("litellm:anthropic/claude-sonnet-4-5", "needs an API key in ANTHROPIC_API_KEY"),
        ("litellm:openai/gpt-4o-mini,api_key_env=NOT_SET", "needs an API key in NOT_SET, which is not set"),
    ],
)
def test_a_hosted_model_that_cannot_be_asked_is_told_at_once(
    hosted: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=message):
        load(text)
    assert capsys.readouterr() == ("", ""), "and litellm says nothing of its own"


@async_test
async def test_what_a_provider_does_not_take_is_left_out_where_that_changes_nothing(
    hosted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with FakeServer(models=["gpt-5"]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        await answer(load("litellm:openai/gpt-5"))
        with pytest.raises(LLMError, match="temperature"):
            await answer(load("litellm:openai/gpt-5,temperature=0.3"))
    assert len(server.calls) == 1


def test_a_hosted_model_in_one_event_loop_after_the_other(hosted: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with serving("--text", "[check]") as url:
        policy = load(f"litellm:openai/tiny@{url}")
        for _ in range(2):
            episodes = collect(lambda: marl_gem.make(KUHN), [Job(seed, policy) for seed in range(8)])
            assert not any(episode.error for episode in episodes)
    assert capfd.readouterr() == ("", "")
