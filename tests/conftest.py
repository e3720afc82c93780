"""Fixtures and settings of all tests.

Markers: `slow` for tests of more than two seconds, `vllm` for those that start a vLLM server, `browser` for those that
look at a page (given to every test that uses the fixture `browser`). A browser and a vLLM server are programs of others
that may stumble on a busy machine: such a test runs once more before it counts as failed, and the summary names reruns.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, here and in processes that tests start

from marl_gem import registry
from marl_gem.cli import terminal

terminal.out.width = terminal.err.width = 300  # whichever test imports the command line first, and however narrow it is

# No timing decides a test: the machine may be busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
        if item.get_closest_marker("browser") or item.get_closest_marker("vllm"):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("browser"))
    items.sort(key=lambda item: -slow[item.path])  # files with much to do first: at the end no worker waits for another


def pytest_collection_finish() -> None:
    gc.freeze()  # millions of objects of torch and of pytest, which no collection of garbage need look through again


@pytest.fixture(autouse=True)
def restored_registry() -> Iterator[None]:
    """What the test registers is forgotten after it; what plug-ins register when they are imported stays."""
    with registry.preserved():
        yield
