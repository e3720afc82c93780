"""No key in anything that a run leaves: files, streams, logs, errors, records.

A canary is an API key with every kind of character that a server gives back in whatever it says, in errors and in
answers, and in every form of `tests.secret_forms`. Wherever it turns up on our side, it would have been written there.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import logging
import os
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

import marl_gem
from marl_gem.errors import AgentError, ConfigError, LLMError
from marl_gem.llm import Sampling
from marl_gem.llm.cache import ResponseCache
from marl_gem.llm.models import Models
from marl_gem.rollout import Job, collect
from marl_gem.specs import load_policy as policy
from marl_gem.types import to_json
from tests.fake_server import Behaviour, Call, FakeServer, completion
from tests.secret_forms import ASCII_SPECIALS, forms, new_key
from tests.secret_forms import traces as key_traces

KUHN = "game:KuhnPoker-v0"
CANARY = new_key()
ASCII_CANARY = new_key(ASCII_SPECIALS)
"""litellm's client sends no other characters."""

URL_KEY = "sk-canary-0123456789abcdef"
ROOT = Path(__file__).parents[2]

SERVED = "tiny@{url},api_key_env=CANARY_KEY"
HOSTED = pytest.param(
    "litellm:openai/tiny@{url},api_key_env=ASCII_CANARY_KEY",
    marks=pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed"),
    id="litellm",
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)
    monkeypatch.setenv("ASCII_CANARY_KEY", ASCII_CANARY)


class Leaky:
    """Gives back what it is sent, in answers and in errors; a script that never ends.

    Args:
        failing: the share of calls that fail.
        codes: the statuses they fail with.
    """

    def __init__(self, failing: float, codes: Sequence[int]) -> None:
        self.failing, self.codes = failing, codes
        self._rng = random.Random(0)
        self.sent: set[str] = set()

    def popleft(self) -> Behaviour:
        return self._fail if self._rng.random() < self.failing else self._answer

    def _form(self, call: Call) -> str:
        """What came in the header, in some form."""
        sent = call.headers.get("Authorization", "")
        self.sent.add(sent)
        scheme, _, key = sent.partition(" ")
        return f"{scheme} {self._rng.choice(list(forms(key).values()))}"

    async def _fail(self, call: Call) -> web.StreamResponse:
        text = f"Refused: {self._form(call)}"
        body = text if self._rng.random() < 0.5 else json.dumps({"error": {"message": text}})
        return web.Response(status=self._rng.choice(self.codes), text=body)

    async def _answer(self, call: Call) -> web.StreamResponse:
        sent = self._form(call)
        tool_call = {"id": sent, "type": "function", "function": {"name": sent, "arguments": json.dumps({"key": sent})}}
        calls: dict[str, Any] = {"tool_calls": [tool_call]} if self._rng.random() < 0.3 else {}
        body = completion(call, f"[check] [call] as {sent} said", reasoning_content=f"I know {sent}.", **calls)
        headers = {"X-Request-Id": sent} if sent.isprintable() else {}
        return web.json_response({**body, "model": sent, "id": sent}, headers=headers)


@contextmanager
def leaky_server(
    failing: float = 0.2, codes: Sequence[int] = (429, 500, 502, 429, 500, 400, 401)
) -> Iterator[tuple[str, Leaky]]:
    """A server in a thread; gives its URL and what it was sent."""
    leaky, loop, started = Leaky(failing, codes), asyncio.new_event_loop(), threading.Event()
    server = FakeServer()
    server.script = leaky  # type: ignore[assignment]

    async def serve() -> None:
        async with server:
            started.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    started.wait(10)
    try:
        yield server.url, leaky
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def flew(leaky: Leaky) -> bool:
    return bool({f"Bearer {CANARY}", f"Bearer {ASCII_CANARY}"} & leaky.sent)


def traces(text: str | bytes) -> list[str]:
    """The forms of the canaries that stand in a text, and the code points of one: the server's token ids."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    ids = [", ".join(str(ord(letter)) for letter in key[10:34]) for key in (CANARY, ASCII_CANARY)]
    found = ["token ids" for form in ids if form in shown or form.replace(" ", "") in shown]
    return [*found, *key_traces(text, CANARY), *key_traces(text, ASCII_CANARY)]


def traces_in(folder: Path) -> dict[str, list[str]]:
    """The files in a folder that hold it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, "there was nothing to look at"
    found = {str(path.relative_to(folder)): traces(path.read_bytes()) for path in files}
    return {name: forms for name, forms in found.items() if forms}


def traceback_texts(error: BaseException) -> str:
    """All text that a traceback of an error can show: its causes, and the variables in its frames."""
    shown = list[str]()
    seen = set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        shown += traceback.TracebackException.from_exception(cause, capture_locals=True).format()
        shown += [repr(cause), str(cause), repr(cause.__dict__)]
        cause = cause.__cause__ or cause.__context__
    return "".join(shown)


def test_the_canary_would_be_seen(tmp_path: Path) -> None:
    """What these tests look with sees it."""
    (tmp_path / "a").write_text(f"key: {CANARY}")
    (tmp_path / "b").write_bytes(base64.b64encode(f"{CANARY}".encode()))
    (tmp_path / "c").write_text("no key")
    (tmp_path / "d").write_text(str([ord(letter) for letter in CANARY]))
    found = traces_in(tmp_path)
    assert "plain" in found["a"] and "base64 at 0" in found["b"] and found["d"] == ["token ids"] and "c" not in found
    try:
        held = CANARY
        raise ValueError
    except ValueError as error:
        assert traces(traceback_texts(error)) and held


# From the library


@pytest.mark.parametrize("who", [pytest.param(SERVED, id="http"), HOSTED])
def test_rollouts(
    who: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    cache = ResponseCache(tmp_path / "answers.sqlite")
    with leaky_server() as (url, leaky):
        seated = policy(who.format(url=url), KUHN, models=Models(cache))
        episodes = collect(lambda: marl_gem.make(KUHN), [Job(seed, seated) for seed in range(40)])
    assert flew(leaky), "it flew"
    assert any(episode.error for episode in episodes) and any(not episode.error for episode in episodes)
    (tmp_path / "episodes.jsonl").write_text("".join(map(to_json, episodes)))
    (tmp_path / "repr").write_text(repr(episodes) + repr(seated) + repr(seated.__dict__) + repr(seated.llm.__dict__))  # type: ignore[attr-defined]
    (tmp_path / "log").write_text("".join(f"{record.getMessage()} {record.exc_info}\n" for record in caplog.records))
    (tmp_path / "streams").write_text("".join(capfd.readouterr()))
    assert traces_in(tmp_path) == {}
    cache.close()
    assert traces_in(tmp_path) == {}


@pytest.mark.parametrize("who", [pytest.param(SERVED, id="http"), HOSTED])
def test_errors_with_all_that_led_to_them(who: str) -> None:
    async def ask(seed: int) -> None:
        await seated.llm.complete([{"role": "user", "content": "hello"}], Sampling(8), seed)  # type: ignore[attr-defined]

    with leaky_server(failing=1.0) as (url, _):
        seated = policy(who.format(url=url), KUHN)
        seated.llm.attempts = 1  # type: ignore[attr-defined]
        failures = []
        for seed in range(12):
            with pytest.raises(LLMError) as caught:
                asyncio.run(ask(seed))
            failures.append(caught.value)
    assert len({type(failure) for failure in failures}) > 1
    for failure in failures:
        assert traces(traceback_texts(failure)) == []


def test_a_server_that_is_asked_for_its_models() -> None:
    async def list_models(request: web.Request) -> web.Response:
        return web.json_response({"error": str(dict(request.headers))}, status=401)

    server = FakeServer()
    server._list = list_models  # type: ignore[method-assign]

    async def ask() -> None:
        async with server:
            with pytest.raises(LLMError) as caught:
                await asyncio.to_thread(policy, f"@{server.url},api_key_env=CANARY_KEY", KUHN)
            assert "Is the API key in the environment variable CANARY_KEY the right one" in str(caught.value)
            assert "Authorization" in str(caught.value) and traces(traceback_texts(caught.value)) == []

    asyncio.run(ask())


@pytest.mark.parametrize(
    "who",
    [
        "tiny@http://127.0.0.1:9/v1,api_key={key}",
        "tiny@http://127.0.0.1:9/v1,api_key_env={key}",
        "tiny@http://{key}@127.0.0.1:9/v1",
        "tiny@http://user:{key}@127.0.0.1:9/v1",
        "tiny@http://127.0.0.1:9/v1?key={key}",
        "tiny@http://127.0.0.1:9/v1?auth={key}",
        "tiny@http://127.0.0.1:9/v1?access_token={key}",
        "tiny@http://127.0.0.1:9/v1#credential={key}",
        "tiny@htp://user:{key}@127.0.0.1:9/v1",
        "tiny@http:/127.0.0.1:9/v1?token={key}",
        "hft:tiny@http//127.0.0.1:9/v1?sig={key}",
        "litellm:openai/tiny@http://127.0.0.1:9/v1?auth={key}",
        "litellm:openai/tiny,api_key={key}",
        "random,key={key}",
    ],
)
def test_a_key_that_is_written_where_none_belongs(who: str) -> None:
    with pytest.raises((ConfigError, AgentError)) as caught:
        policy(who.format(key=URL_KEY), KUHN)
    assert URL_KEY not in str(caught.value)


# From the command line


def marl_gem_command(*arguments: str, folder: Path, expect: tuple[int, ...] = (0,)) -> None:
    """Run a command in a folder, with all that Python can be made to tell, and put its streams there."""
    settings: Mapping[str, Any] = {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "marl_gem.cli", *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, timeout=120, check=False
    )
    count = len(list(folder.glob("*.streams")))
    (folder / f"{count}.streams").write_text(f"{arguments}\n{done.stdout}\n{done.stderr}")
    assert done.returncode in expect, done.stderr


@pytest.mark.slow
def test_marl_gem_play(tmp_path: Path) -> None:
    for failing, code in ((0.0, 0), (1.0, 1)):
        with leaky_server(failing, [401]) as (url, leaky):
            seat = f"player_0={SERVED.format(url=url)}"
            marl_gem_command(
                "play", KUHN, "--seat", seat, "--out", "games.jsonl", "--force", folder=tmp_path, expect=(code,)
            )
        assert flew(leaky)
    assert traces_in(tmp_path) == {}


@pytest.mark.parametrize("who", [pytest.param(SERVED, id="http"), HOSTED])
@pytest.mark.slow
def test_marl_gem_eval_and_what_goes_on_with_it(who: str, tmp_path: Path) -> None:
    with leaky_server() as (url, leaky):
        seat = f"player_0={who.format(url=url)}"
        asked = ["eval", KUHN, "--seat", seat, "-n", "12", "--out", "run", "--cache", "answers.sqlite"]
        marl_gem_command(*asked, folder=tmp_path, expect=(0, 1))
        if who == SERVED:  # the others would only take longer
            marl_gem_command("eval", "--out", "run", "--resume", folder=tmp_path, expect=(0, 1))
            marl_gem_command(*asked, "--resume", "--seed", "5", folder=tmp_path, expect=(2,))
    assert flew(leaky)
    assert {"config.json", "episodes.jsonl", "report.json"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert traces_in(tmp_path) == {}


@pytest.mark.slow
def test_a_wrong_command_does_not_repeat_a_key(tmp_path: Path) -> None:
    for place in ("api_key={}", "api_key_env={}"):
        seat = "player_0=tiny@http://127.0.0.1:9/v1," + place.format(URL_KEY)
        for command in (["play", KUHN], ["eval", KUHN, "--out", "run"]):
            marl_gem_command(*command, "--seat", seat, folder=tmp_path, expect=(2,))
    for file in tmp_path.glob("*.streams"):
        assert URL_KEY not in file.read_text().split("\n", 1)[1], file.read_text()
    assert not (tmp_path / "run").exists()
