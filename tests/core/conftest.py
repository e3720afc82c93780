"""Fixtures of the tests of the core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.vector_envs import threads, until


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not threads())
