"""The index of a large file of episodes: the same entries without reading them, and ignored where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marl_gem.evaluation import evaluate
from marl_gem.policies import RandomPolicy
from marl_gem.runs import entries as parsed
from marl_gem.runs import index as reading
from marl_gem.runs import stored_index
from marl_gem.runs.entries import Entry
from marl_gem.runs.reader import RunReader
from marl_gem.runs.stored_index import index_path, write_index
from marl_gem.types import to_json
from tests.viewer.recorded import episode, games, write_run


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many lines have been parsed so far."""
    count = 0

    def counted(key: str, offset: int, line: bytes) -> Entry:
        nonlocal count
        count += 1
        return parsed.entry_of(key, offset, line)

    monkeypatch.setattr(reading, "entry_of", counted)
    monkeypatch.setattr(stored_index, "LARGE", 0)
    return lambda: count


def recorded(folder: Path) -> Path:
    """A run with an empty line, a line that is no episode, and an index."""
    write_run(folder, [*games("game:KuhnPoker-v0", 3), episode(4)])
    path = folder / "episodes.jsonl"
    path.write_bytes(b"\n<html>502</html>\n" + path.read_bytes())
    write_index(path)
    return path


def test_an_evaluation_leaves_an_index_that_saves_reading(tmp_path: Path, parses: Callable[[], int]) -> None:
    evaluate("game:KuhnPoker-v0", RandomPolicy(), n=5, out=tmp_path)
    with_index = RunReader(tmp_path).entries()
    assert parses() == 0
    index_path(tmp_path / "episodes.jsonl").unlink()
    assert with_index == RunReader(tmp_path).entries() and parses() == 5


def test_lines_that_are_no_episodes_keep_their_entries(tmp_path: Path, parses: Callable[[], int]) -> None:
    path = recorded(tmp_path)
    run = RunReader(tmp_path)
    entries = run.entries()
    assert parses() == 0 and [entry.key for entry in entries] == ["2", "3", "4", "5", "6"] and entries[0].broken
    assert run.read(entries[-1]) == episode(4)
    with path.open("a") as file:
        file.write(to_json(episode(5)) + "\n")
    assert [entry.key for entry in run.entries()][-1] == "7" and parses() == 1
    assert len(RunReader(tmp_path).entries()) == 6 and parses() == 2, "a file that has grown is read from there on"


@pytest.mark.parametrize("change", ["edited", "cut", "replaced", "damaged", "of another version", "a link"])
def test_an_index_that_does_not_fit_is_ignored(tmp_path: Path, parses: Callable[[], int], change: str) -> None:
    path = recorded(tmp_path / "run")
    index, text = index_path(path), path.read_bytes()
    if change == "edited":
        path.write_bytes(text.replace(b'"seed":1,', b'"seed":9,'))
    elif change == "cut":
        path.write_bytes(text[: text.index(b'{"id"') - 2])
    elif change == "replaced":
        path.write_bytes(to_json(episode(1)).encode() + b"\n" + text.replace(b"talk-4", b"talk-9"))
    elif change == "damaged":
        index.write_bytes(index.read_bytes().replace(b'"turns":3', b'"turns":4'))
    elif change == "of another version":
        index.write_bytes(index.read_bytes().replace(b'"format":1}', b'"format":0}'))
    else:
        index.rename(tmp_path / "elsewhere")
        index.symlink_to(tmp_path / "elsewhere")
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    assert len(RunReader(path.parent).entries()) == len(lines) == parses()


def test_files_that_are_small_or_unfinished_have_no_index(tmp_path: Path) -> None:
    path = write_run(tmp_path, [episode(0)]) / "episodes.jsonl"
    write_index(path)
    assert not index_path(path).exists()
    path.write_bytes(b"x" * stored_index.LARGE)
    write_index(path)
    assert not index_path(path).exists() and not list(tmp_path.glob(".*"))
