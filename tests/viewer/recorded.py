"""Recorded episodes and runs for tests of what reads them, and a tab of a browser."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import marl_gem
from marl_gem.policies import Policy, RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.reader import RunReader
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, EpisodeError, Response, Role, ToolSpec, Turn, to_json
from marl_gem.viewer.query import Query, select
from marl_gem.viewer.server import Server


def png(width: int = 24, height: int = 16) -> str:
    """A picture, as a data: URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x40\x80\xc0" * width) * height)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


HOSTILE = (
    '<script>window.hacked=1</script><img src=x onerror="window.hacked=1"><svg onload="window.hacked=1">'
    '<a href="javascript:window.hacked=1">x</a><style>*{display:none}</style></div></script>'
    "\x00\x1b[31m\x1b]0;owned\x07 \ud800 \u202e {{7*7}} ${window.hacked=1}"
)


def episode(number: int = 0, **changes: Any) -> Episode:
    """A short conversation in which `user` asks and `assistant` looks something up."""
    turns = (
        Turn("user", "You want to know the weather in Zürich.", Response(f"How is the weather? ({number})")),
        Turn(
            "assistant",
            f"How is the weather? ({number})",
            Response(
                f"One moment.\n{write_call('weather', {'town': 'Zürich'})}",
                reasoning="I must look it up first.",
                prompt_ids=(1, 2, 3),
                token_ids=(7, 8),
                logprobs=(-0.1, -2.5),
                usage={"prompt_tokens": 30, "completion_tokens": 12},
                cost=0.002,
                seconds=1.5,
                retries=2,
            ),
        ),
        Turn(
            "assistant",
            [{"type": "tool_result", "name": "weather", "text": '{"sky": "cloudless"}'}],
            Response("It is Sunny."),
            reward=1.0,
            info={"checked": True},
        ),
    )
    fields: dict[str, Any] = {
        "id": f"talk-{number}",
        "scenario": "test:Talk-v0",
        "seed": 1000 + number,
        "turns": turns,
        "returns": {"user": 0.0, "assistant": 1.0},
        "ending": "terminated",
        "models": {"user": "gpt", "assistant": "qwen"},
        "usage": {"prompt_tokens": 30, "completion_tokens": 12, "cached_tokens": 20},
        "cost": 0.002,
        "seconds": 2.5,
        "final_infos": {"assistant": {"success": True, "final_observation": "Thank you, goodbye."}},
    }
    return Episode(**(fields | changes))


POLICY = "\n".join(["You are a forecaster.", *(f"Rule {number}: be brief." for number in range(1, 40))])


TOWN = {"type": "string", "description": "as on maps"}


WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object", "properties": {"town": TOWN}})


def with_roles(number: int = 0, **changes: Any) -> Episode:
    """The same conversation, with roles."""
    return episode(number, roles={"user": Role("You plan a walk."), "assistant": Role(POLICY, (WEATHER,))}, **changes)


def failed(number: int = 0) -> Episode:
    error = EpisodeError("llm", "TransientLLMError", "the server answered 503", "assistant")
    return episode(number, turns=episode().turns[:1], ending="error", error=error, final_infos={})


def write_run(folder: Path, episodes: Sequence[Episode], failures: Sequence[Episode] = (), **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "episodes.jsonl").write_text("".join(f"{to_json(episode)}\n" for episode in episodes))
    if failures:
        (folder / "errors.jsonl").write_text("".join(f"{to_json(episode)}\n" for episode in failures))
    (folder / "config.json").write_text(json.dumps({"scenario": "test:Talk-v0", **config}))
    return folder


def games(scenario: str, count: int, policy: Policy = RandomPolicy()) -> list[Episode]:  # noqa: B008 - it has no state
    jobs = [Job(seed, policy) for seed in range(count)]
    with ThreadPoolExecutor() as thread:  # Playwright keeps an event loop running in this one
        return thread.submit(collect, lambda: marl_gem.make(scenario), jobs).result()


def opened(path: Path) -> RunReader:
    library = RunLibrary(path)
    return library.open(next(iter(library.runs())))


def keys(run: RunReader, **query: Any) -> list[str]:
    return [entry.key for entry in select(run, Query(**query))]


def request(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """What the server answers to a path behind its token."""
    return bare_request(server, f"/{server.token}{path}", method, **headers)


def bare_request(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    answer = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return answer


def answer(server: Server, question: str) -> Any:
    status, _, body = request(server, f"/api/{question}")
    assert status == 200, body
    return json.loads(body)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


class NoBrowser(Exception):
    """Why no browser can be started here."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser.

    Raises:
        NoBrowser: there is none.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowser("the package playwright is not installed") from None
    if not CHROMIUM:
        raise NoBrowser("there is no chromium")
    with sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield running
        running.close()


class Page:
    """A tab that records errors and requests."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.server = server
        self.tab = browser.new_page(**({"viewport": {"width": 1280, "height": 800}} | options))
        self.tab.set_default_timeout(30_000)
        self.errors: list[str] = []
        self.requested: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", lambda message: self.errors.extend([message.text] * (message.type == "error")))
        self.tab.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.tab.on("request", lambda request: self.requested.append(request.url))

    def go(self, address: str = "") -> Any:
        self.tab.goto(f"{self.server.url}{address}")
        self.tab.wait_for_selector("main > *")
        return self.tab

    def press(self, *names: str) -> None:
        for name in names:
            self.tab.keyboard.press(name)

    def close(self) -> None:
        """Check that there were no errors, and no requests to other servers."""
        self.tab.close()
        assert not self.errors, self.errors
        assert all(url.startswith((self.server.url, "data:")) for url in self.requested), self.requested
