"""A short round of spoiled checkpoints: see `tests.chaos.checkpoints`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.chaos.checkpoint_damage import ATTACKS
from tests.chaos.checkpoints import full_disks, play_case, write_sources

CASES = 4 * len(ATTACKS)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder)
    return folder


SOUND: dict[str, str] = {}


@pytest.mark.parametrize("number", range(CASES), ids=lambda number: f"{number}-{ATTACKS[number % len(ATTACKS)].name}")
def test_a_spoiled_checkpoint_is_refused_or_what_it_was(
    sources: Path, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 100))
    _, violation = play_case(1, number, sources, tmp_path, SOUND)
    assert not violation


def test_a_full_disk_leaves_no_draft(tmp_path: Path) -> None:
    assert not full_disks(1, 3, tmp_path).violations
