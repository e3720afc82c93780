"""No key in anything that a run leaves: files, streams, logs, errors, records.

A canary is an API key that a server gives back in whatever it says: in errors and in answers. Wherever it turns up
on our side, it would have been written there.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import logging
import os
import random
import secrets
import subprocess
import sys
import threading
import traceback
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

import marl_gem
from marl_gem.errors import ConfigError, LLMError
from marl_gem.llm import Sampling
from marl_gem.llm.cache import ResponseCache
from marl_gem.llm.models import Models
from marl_gem.rollout import Job, collect
from marl_gem.specs import load_policy as policy
from marl_gem.types import to_json
from tests.fake_server import Behaviour, Call, FakeServer, completion, echo

KUHN = "game:KuhnPoker-v0"
CANARY = f"sk-canary-{secrets.token_hex(16)}"
ROOT = Path(__file__).parents[2]

SERVED = "tiny@{url},api_key_env=CANARY_KEY"
HOSTED = pytest.param(
    "litellm:openai/tiny@{url},api_key_env=CANARY_KEY",
    marks=pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed"),
    id="litellm",
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)


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
        if self._rng.random() >= self.failing:
            return self._answer
        return self._noting(echo(self._rng.choice(self.codes)))

    def _noting(self, behaviour: Behaviour) -> Behaviour:
        async def behave(call: Call) -> web.StreamResponse:
            self.sent.add(call.headers.get("Authorization", ""))
            return await behaviour(call)

        return behave

    async def _answer(self, call: Call) -> web.StreamResponse:
        sent = call.headers.get("Authorization", "")
        self.sent.add(sent)
        tool_call = {"id": sent, "type": "function", "function": {"name": sent, "arguments": f'{{"key": "{sent}"}}'}}
        calls: dict[str, Any] = {"tool_calls": [tool_call]} if self._rng.random() < 0.3 else {}
        body = completion(call, f"[check] [call] as {sent} said", reasoning_content=f"I know {sent}.", **calls)
        return web.json_response({**body, "model": sent, "id": sent}, headers={"X-Request-Id": sent})


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


def traces(text: str | bytes) -> list[str]:
    """The forms of the canary that stand in a text."""
    forms = {
        "as it is": CANARY,
        "its end": CANARY[-16:],
        "quoted": urllib.parse.quote(CANARY, safe="").replace("-", "%2D"),
        "base64": base64.b64encode(CANARY.encode()).decode().rstrip("=")[:-2],
        "hexadecimal": CANARY.encode().hex(),
    }
    body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return [name for name, form in forms.items() if form.encode() in body]


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
    assert traces_in(tmp_path) == {"a": ["as it is", "its end"], "b": ["base64"]}
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
    assert f"Bearer {CANARY}" in leaky.sent, "it flew"
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
        "litellm:openai/tiny,api_key={key}",
        "random,key={key}",
    ],
)
def test_a_key_that_is_written_where_none_belongs(who: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(who.format(key=CANARY), KUHN)
    assert traces(str(caught.value)) == []


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
    for failing, code in ((0.0, 0), (1.0, 2)):
        with leaky_server(failing, [401]) as (url, leaky):
            seat = f"player_0={SERVED.format(url=url)}"
            marl_gem_command(
                "play", KUHN, "--seat", seat, "--out", "games.jsonl", "--force", folder=tmp_path, expect=(code,)
            )
        assert f"Bearer {CANARY}" in leaky.sent
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
    assert f"Bearer {CANARY}" in leaky.sent
    assert {"config.json", "episodes.jsonl", "report.json"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert traces_in(tmp_path) == {}


@pytest.mark.slow
def test_a_wrong_command_does_not_repeat_a_key(tmp_path: Path) -> None:
    for place in ("api_key={}", "api_key_env={}"):
        seat = "player_0=tiny@http://127.0.0.1:9/v1," + place.format(CANARY)
        for command in (["play", KUHN], ["eval", KUHN, "--out", "run"]):
            marl_gem_command(*command, "--seat", seat, folder=tmp_path, expect=(2,))
    for file in tmp_path.glob("*.streams"):
        assert traces(file.read_text().split("\n", 1)[1]) == [], file.read_text()
    assert not (tmp_path / "run").exists()
