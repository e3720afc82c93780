"""The runs below a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marl_gem.errors import RecordError
from marl_gem.runs.library import OPEN_RUNS, RunLibrary
from marl_gem.types import to_json
from tests.viewer.recorded import (
    episode,
    failed,
    opened,
    write_run,
)


def test_runs_are_found_in_folders_and_named_by_their_paths(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "cell 1", [episode()])
    write_run(tmp_path / "b", [episode()])
    write_run(tmp_path / ".hidden", [episode()])
    write_run(tmp_path / "b" / "checkpoints" / "1", [episode()])
    write_run(tmp_path / "1" / "2" / "3" / "4" / "5", [episode()])
    (tmp_path / "only errors").mkdir()
    (tmp_path / "only errors" / "errors.jsonl").write_text(to_json(failed()) + "\n")
    os.utime(tmp_path / "b" / "episodes.jsonl", (2e9, 2e9))
    assert next(iter(RunLibrary(tmp_path).runs())) == "b", "the newest comes first"
    assert set(RunLibrary(tmp_path).runs()) == {"a/cell 1", "b", "only errors"}
    assert list(RunLibrary(tmp_path / "b").runs()) == ["b"]
    assert [entry.key for entry in opened(tmp_path / "only errors").entries()] == ["e1"]


def test_a_jsonl_file_is_a_run_too(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    path.write_text(to_json(episode()) + "\n")
    assert len(opened(path).entries()) == 1


def test_a_path_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist"):
        RunLibrary(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"no run in .*: no episodes\.jsonl"):
        RunLibrary(tmp_path)
    write_run(tmp_path / "run", [])
    assert opened(tmp_path).entries() == []


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    secret = write_run(tmp_path / "outside", [episode(0, id="secret")])
    (secret / "secret.png").write_bytes(b"secret")
    inside = write_run(tmp_path / "runs" / "one", [episode()])
    (inside / "curve.png").write_bytes(b"picture")
    (tmp_path / "runs" / "linked").symlink_to(secret)
    (tmp_path / "runs" / "two").mkdir()
    (tmp_path / "runs" / "two" / "episodes.jsonl").symlink_to(secret / "episodes.jsonl")
    (inside / "secret.png").symlink_to(secret / "secret.png")
    library = RunLibrary(tmp_path / "runs")
    assert list(library.runs()) == ["one"] and library.open("one").pictures == ["curve.png"]


def test_many_runs_are_not_all_kept_in_memory(tmp_path: Path) -> None:
    for number in range(OPEN_RUNS + 3):
        write_run(tmp_path / f"run{number:02}", [episode(number)])
    library = RunLibrary(tmp_path)
    runs = [library.open(name) for name in library.runs()]
    for run in runs:
        library.open(run.name).entries()
    assert sum(bool(run.files[0].entries) for run in runs) == OPEN_RUNS
    assert all(len(run.entries()) == 1 for run in runs)
