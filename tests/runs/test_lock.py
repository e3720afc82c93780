"""One process at a time works on a run."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from marl_gem.errors import JournalError
from marl_gem.runs.journal import Journal
from marl_gem.runs.lock import is_locked, run_lock


def test_a_second_process_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    with run_lock(tmp_path / "run"):
        message = rf"process {os.getpid()} is working on .*run"
        with pytest.raises(JournalError, match=message), run_lock(tmp_path / "run"):
            pass
        with run_lock(tmp_path / "other"):
            pass
    with run_lock(tmp_path / "run"):
        pass


def test_a_look_at_the_lock_does_not_refuse_a_run_that_starts(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with run_lock(tmp_path):
            assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_the_lock_is_released_when_its_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from marl_gem.runs.lock import is_locked, run_lock\n"
        f"with run_lock(Path({str(tmp_path)!r})): print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        with pytest.raises(JournalError, match=f"process {holder.pid} is working"), run_lock(tmp_path):
            pass
        holder.kill()
    with run_lock(tmp_path):
        pass


def test_a_second_process_is_refused_although_the_lock_file_was_removed(tmp_path: Path) -> None:
    with run_lock(tmp_path) as lock:
        (tmp_path / ".lock").unlink()
        with pytest.raises(JournalError, match=r"another process is working on"), run_lock(tmp_path):
            pass
        assert not (tmp_path / ".lock").exists()
        lock.check()  # the first goes on


@pytest.fixture
def no_folder_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, which locks what is open for writing."""
    import fcntl

    flock = fcntl.flock

    def of_files(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_files)


@pytest.mark.usefixtures("no_folder_locks")
@pytest.mark.parametrize("replaced", [False, True])
def test_where_folders_have_no_locks_a_lock_file_that_is_gone_stops_the_first_writer(
    tmp_path: Path, replaced: bool
) -> None:
    with run_lock(tmp_path) as lock:
        journal = Journal(tmp_path / "episodes.jsonl", lock)
        journal.append([b'{"id":"0"}'])
        with pytest.raises(JournalError, match=f"process {os.getpid()} is working"), run_lock(tmp_path):
            pass
        (tmp_path / ".lock").unlink()
        second = run_lock(tmp_path) if replaced else contextlib.nullcontext()
        with second, pytest.raises(JournalError, match=r"\.lock was removed or replaced.*--resume continues"):
            journal.append([b'{"id":"1"}'])
    assert (tmp_path / "episodes.jsonl").read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_file_locks_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    import fcntl

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    message = rf"cannot lock .*{re.escape(os.strerror(error))}\) no file locks.*local disk"
    with pytest.raises(JournalError, match=message), run_lock(tmp_path):
        pass


def test_a_folder_that_was_moved_or_replaced_is_noticed(tmp_path: Path) -> None:
    with run_lock(tmp_path / "run") as lock:
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        with pytest.raises(JournalError, match="moved, removed or replaced"):
            lock.check()
        with pytest.raises(JournalError, match=f"process {os.getpid()}"), run_lock(tmp_path / "elsewhere"):
            pass
        (tmp_path / "run").mkdir()
        with pytest.raises(JournalError, match="moved, removed or replaced"):
            lock.check()


def test_drafts_of_killed_writers_are_removed(tmp_path: Path) -> None:
    for name in (".report.json.7.draft.json", ".a.draft", "kept.7.draft", ".env"):
        (tmp_path / name).write_text("")
    for name in (".update-1.7.draft", ".update-1.7.old", ".update-2.7.old", "update-1"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / ".update-2.7.old" / "state.json").write_text("before")
    with run_lock(tmp_path):
        pass
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == {
        *(".lock", ".a.draft", ".env", "kept.7.draft"),
        *("checkpoints", "checkpoints/update-1", "checkpoints/update-2", "checkpoints/update-2/state.json"),
    }


def test_a_system_without_file_locks_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with pytest.raises(JournalError, match=r"cannot lock .*no file locks.*WSL"), run_lock(tmp_path):
        pass


def test_a_folder_on_a_disk_that_can_only_be_read_is_an_error(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for folder in (disk, disk / "run"):
        with pytest.raises(JournalError, match=r"cannot write to .*: Read-only file system"), run_lock(folder):
            pass


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(JournalError, match=r"cannot write to .*run: File exists"), run_lock(tmp_path / "run"):
        pass
