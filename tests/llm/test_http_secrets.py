"""URLs, API keys and proxies of a model behind HTTP."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from marl_gem.errors import (
    ConfigError,
    LLMError,
    ServerUnreachable,
)
from marl_gem.llm import http_client
from marl_gem.llm.http import HTTPModel
from marl_gem.types import to_json
from tests.event_loop import async_test
from tests.fake_server import (
    FakeServer,
    echo,
    edited,
    raw,
    say,
    status,
)
from tests.llm.http_helpers import CHAT, KEY, ask, bare_server


@pytest.mark.parametrize(
    "url", ["", "tiny", "ftp://host/v1", "http://", "http:///v1", "http://host:port/v1", "http://[/"]
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(ConfigError, match="must look like http"):
        HTTPModel(url)


def test_invalid_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    for wrong, message in (
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY, which is not set"),
        ({"logprobs": "some"}, "raw, processed or off"),
        ({"connections": 0}, "from 1 up"),
        ({"extra_body": {"x": object()}}, "what JSON can hold"),
    ):
        with pytest.raises(ConfigError, match=message):
            HTTPModel("http://host", "tiny", **wrong)


def test_the_key_of_openai_is_sent_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert HTTPModel("https://api.openai.com/v1", "gpt").api_key_env == "OPENAI_API_KEY"
    assert HTTPModel("https://elsewhere.example/v1", "gpt").api_key_env is None
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        HTTPModel("https://api.openai.com/v1", "gpt")


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
@async_test
async def test_a_url_may_be_written_in_several_ways(path: str) -> None:
    async with FakeServer() as server:
        model = HTTPModel(server.url.removesuffix("/v1") + path, "tiny")
        assert model.url == server.url
        await ask(model)
        await model.health()


@pytest.mark.parametrize("newline", ["", "\n"])
@async_test
async def test_the_key_is_sent_and_never_shown(newline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY + newline)
    script = [
        echo(401),
        echo(400),
        echo(500),
        say(f"Your key is {KEY}.", reasoning_content=KEY),
        raw(KEY.encode()),
        raw(json.dumps({KEY: 1, "choices": [{"message": {"content": [KEY]}}]}).encode()),
        status(302, headers={"Location": f"http://{KEY}.example/?key={KEY}"}),
        status(404, KEY),
        edited(lambda reply: reply["choices"][0].update(finish_reason=KEY)),
    ]
    async with FakeServer(*script) as server:
        model = HTTPModel(server.url, "tiny", api_key_env="MY_KEY")
        shown = [repr(model), model.name]
        for _ in script:
            try:
                shown.append(to_json(await ask(model)))
            except LLMError as error:
                shown += [str(error), repr(error), repr(error.__cause__), repr(error.__context__)]
        assert all(call.headers["Authorization"] == f"Bearer {KEY}" for call in server.calls)
        assert not server.script and "MY_KEY" in "".join(shown)
    assert KEY not in "\n".join(shown)
    assert "[secret]" in "".join(shown)


@async_test
async def test_secrets_in_a_url_are_sent_and_never_shown() -> None:
    async with FakeServer(echo(401), echo(500)) as server:
        url = server.url.replace("http://", "http://someone:pass-0123456789@") + f"?api-version=7&sig={KEY}"
        model = HTTPModel(url, "tiny")
        shown = [repr(model), model.url, model.name]
        for _ in range(2):
            with pytest.raises(LLMError) as caught:
                await ask(model)
            shown.append(str(caught.value))
        call = server.calls[0]
        assert call.headers["Authorization"].startswith("Basic ")
        assert dict(call.request.query) == {"api-version": "7", "sig": KEY}
    with pytest.raises(ServerUnreachable) as gone:
        await ask(model)
    shown.append(str(gone.value))
    secrets = [KEY, "pass-0123456789", call.headers["Authorization"].split()[1]]
    assert not [secret for secret in secrets if secret in "\n".join(shown)]


def test_proxies_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is asked for other machines, and never for this one."""

    @async_test
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
        assert set(seen) == {"http://outside.example/v1/chat/completions"}

    through()
