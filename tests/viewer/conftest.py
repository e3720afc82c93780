"""A server for a run, and a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marl_gem.runs.library import RunLibrary
from marl_gem.viewer.server import Server
from tests.viewer.recorded import NoBrowser, Page, chromium


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    servers: list[Server] = []

    def start(path: Path) -> Server:
        server = Server(RunLibrary(path, with_empty=True), 0)
        threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        with chromium() as running:
            yield running
    except NoBrowser as error:
        pytest.skip(str(error))


@pytest.fixture
def show(browser: Any, serve: Callable[[Path], Server]) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def start(path: Path, **options: Any) -> Page:
        pages.append(Page(browser, serve(path), **options))
        return pages[-1]

    yield start
    for page in pages:
        page.close()
