"""A short round of hostile pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.pages import Attack, look_in_browser, look_in_terminal
from tests.viewer.recorded import NoBrowser, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        with chromium() as running:
            yield running
    except NoBrowser as error:
        pytest.skip(str(error))


def test_in_a_browser(tmp_path: Path, browser: Any) -> None:
    seen = Attack("0 2").run(tmp_path)  # its mean return is infinite
    assert look_in_browser(browser, tmp_path, seen) == []


@pytest.mark.parametrize("seed", ["a", "b"])
def test_in_a_terminal(tmp_path: Path, seed: str) -> None:
    Attack(seed).run(tmp_path)
    assert look_in_terminal(tmp_path) == []
