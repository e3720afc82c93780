"""The runs below a folder."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from marl_gem.errors import RecordError
from marl_gem.runs.library import OPEN_RUNS, RunLibrary
from marl_gem.runs.reader import RunReader
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
    secret = write_run(tmp_path / "outside", [episode(0, id="secret")], key="secret")
    (secret / "secret.png").write_bytes(b"secret")
    inside = write_run(tmp_path / "runs" / "one", [episode()])
    (inside / "curve.png").write_bytes(b"picture")
    (tmp_path / "runs" / "linked").symlink_to(secret)
    (tmp_path / "runs" / "two").mkdir()
    (tmp_path / "runs" / "two" / "episodes.jsonl").symlink_to(secret / "episodes.jsonl")
    (inside / "secret.png").symlink_to(secret / "secret.png")
    for name in ("config.json", "report.json", "errors.jsonl"):
        (inside / name).unlink(missing_ok=True)
        (inside / name).symlink_to(secret / ("episodes.jsonl" if name == "errors.jsonl" else "config.json"))
    library = RunLibrary(tmp_path / "runs")
    run = library.open("one")
    assert list(library.runs()) == ["one"] and run.pictures == ["curve.png"]
    assert run.config == run.report == {}
    with pytest.raises(RecordError, match=r"errors\.jsonl cannot be read: it is a link"):
        run.entries()
    (inside / "errors.jsonl").unlink()
    assert [entry.summary.id for entry in run.entries() if entry.summary] == ["talk-0"]


def test_a_link_that_appears_later_is_not_followed_either(tmp_path: Path) -> None:
    secret = write_run(tmp_path / "outside", [episode(0, id="secret")])
    write_run(tmp_path / "runs" / "deep" / "one", [episode()])
    run = RunLibrary(tmp_path / "runs").open("deep/one")
    (tmp_path / "runs" / "deep").rename(tmp_path / "runs" / "old")
    (tmp_path / "runs" / "deep").symlink_to(tmp_path / "other")
    secret.parent.joinpath("other").mkdir()
    secret.rename(tmp_path / "other" / "one")
    with pytest.raises(RecordError, match="it is a link"):
        run.entries()


def test_the_chosen_folder_or_file_may_be_a_link(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [episode()])
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "file.jsonl").symlink_to(folder / "episodes.jsonl")
    for path in (tmp_path / "link", tmp_path / "file.jsonl"):
        assert len(opened(path).entries()) == len(RunReader(path).entries()) == 1


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
@pytest.mark.parametrize("name", ["episodes.jsonl", "errors.jsonl", "config.json", "report.json", "curve.png"])
def test_nothing_but_regular_files_is_read(tmp_path: Path, kind: str, name: str) -> None:
    """A pipe without a writer would never answer, and /dev/zero never end."""
    folder = write_run(tmp_path / "run", [episode()])
    (folder / name).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        match kind:
            case "pipe":
                os.mkfifo(folder / name)
            case "socket":
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                with contextlib.chdir(folder):  # a socket's path is short
                    listener.bind(name)
            case "device":
                (folder / name).symlink_to("/dev/zero")
            case "folder":
                (folder / name).mkdir()
        run = RunReader(folder)
        assert run.config == ({} if name == "config.json" else {"scenario": "test:Talk-v0"})
        assert run.report == {} and run.pictures == []
        if name.endswith(".jsonl"):
            with pytest.raises(RecordError, match="cannot be read"):
                run.entries()
        else:
            assert len(run.entries()) == 1


def test_many_runs_are_not_all_kept_in_memory(tmp_path: Path) -> None:
    for number in range(OPEN_RUNS + 3):
        write_run(tmp_path / f"run{number:02}", [episode(number)])
    library = RunLibrary(tmp_path)
    runs = [library.open(name) for name in library.runs()]
    for run in runs:
        library.open(run.name).entries()
    assert sum(bool(run.files[0].entries) for run in runs) == OPEN_RUNS
    assert all(len(run.entries()) == 1 for run in runs)
