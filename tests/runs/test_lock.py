"""One process at a time works on a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marl_gem.errors import JournalError
from marl_gem.runs.lock import run_lock


def test_a_second_process_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    with run_lock(tmp_path / "run"):
        message = rf"process {os.getpid()} is working on .*run"
        with pytest.raises(JournalError, match=message), run_lock(tmp_path / "run"):
            pass
        with run_lock(tmp_path / "other"):
            pass
    with run_lock(tmp_path / "run"):
        pass


def test_the_lock_is_released_when_its_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from marl_gem.runs.lock import run_lock\n"
        f"with run_lock(Path({str(tmp_path)!r})): print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        with pytest.raises(JournalError, match=f"process {holder.pid} is working"), run_lock(tmp_path):
            pass
        holder.kill()
    with run_lock(tmp_path):
        pass


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
