"""The journal: what is counted is on disk, whatever happens to the process, the disk or the folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marl_gem.errors import JournalError
from marl_gem.evaluation.journal import Journal, locked, write_whole
from marl_gem.types import Episode, Response, Turn, to_json


def episode(name: str, said: str = "go on") -> Episode:
    return Episode(name, "test:Test-v0", 7, (Turn("a", "Well?", Response(said), 1.0),), {"a": 1.0}, "terminated")


def line(name: str, said: str = "go on") -> bytes:
    return to_json(episode(name, said)).encode() + b"\n"


def names(path: Path) -> list[str]:
    return [one.id for _, one in Journal(path).read()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


class TestWhatIsWritten:
    def test_is_read_back_equal_with_the_numbers_of_its_lines(self, path: Path) -> None:
        journal = Journal(path)
        journal.append(line("0") + line("1", "ünï\ud800\0\n"))
        journal.append(line("2"))
        assert list(Journal(path).read()) == [(1, episode("0")), (2, episode("1", "ünï\ud800\0\n")), (3, episode("2"))]

    def test_goes_on_where_it_ended(self, path: Path) -> None:
        Journal(path).append(line("0"))
        Journal(path).append(line("1"))
        assert names(path) == ["0", "1"]

    def test_is_flushed_to_disk_before_append_returns(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = Journal(path)
        sizes = []
        monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
        journal.append(line("0"))
        assert sizes == [len(line("0"))]


class TestATornLastLine:
    @pytest.mark.parametrize("said", ["go on", "long " * 20_000])
    def test_is_dropped_wherever_it_was_torn(self, path: Path, said: str) -> None:
        whole, last = line("0") + line("1"), line("2", said)
        cuts = range(len(last)) if len(last) < 1000 else (1, 100, 65_535, 65_536, 65_537, len(last) - 1)
        for cut in cuts:
            path.write_bytes(whole + last[:cut])
            journal = Journal(path)
            assert path.read_bytes() == whole
            journal.append(last)
            assert names(path) == ["0", "1", "2"]

    def test_may_be_all_there_is(self, path: Path) -> None:
        path.write_bytes(line("0")[:-1])
        assert names(path) == [] and path.read_bytes() == b""

    def test_may_be_zeros_as_a_crashed_file_system_leaves_them(self, path: Path) -> None:
        path.write_bytes(line("0") + bytes(5000))
        assert names(path) == ["0"]


@pytest.mark.parametrize("damage", [b"{}", b"not json", b"\xff\xfe", b"", line("1")[:-20], b"[" * 100_000])
def test_a_damaged_line_in_the_middle_is_told_by_its_number(path: Path, damage: bytes) -> None:
    path.write_bytes(line("0") + damage + b"\n" + line("2"))
    with pytest.raises(JournalError, match=r"episodes.jsonl, line 2, is damaged"):
        names(path)


class TestTheLock:
    def test_a_second_holder_is_refused_and_told_who_has_it(self, tmp_path: Path) -> None:
        with locked(tmp_path / "run"):
            with (
                pytest.raises(JournalError, match=rf"process {os.getpid()} is working on .*run"),
                locked(tmp_path / "run"),
            ):
                pass
            with locked(tmp_path / "other"):
                pass
        with locked(tmp_path / "run"):
            pass

    def test_goes_with_the_process_that_held_it(self, tmp_path: Path) -> None:
        code = (
            "import sys, time; from pathlib import Path; from marl_gem.evaluation.journal import locked\n"
            f"with locked(Path({str(tmp_path)!r})): print('held', flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with pytest.raises(JournalError, match=f"process {holder.pid} is working"), locked(tmp_path):
                pass
            holder.kill()
        with locked(tmp_path):
            pass


class TestADiskThatFails:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        """A disk of 64 KiB."""
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True)
        if mounted.returncode:
            pytest.skip("making a small disk needs root")
        yield disk
        subprocess.run(["umount", "-l", disk], check=True)

    def test_a_full_one_is_told_and_holds_whole_lines_alone(self, disk: Path) -> None:
        journal = Journal(disk / "episodes.jsonl")
        written = 0
        with pytest.raises(JournalError, match=r"cannot write to .*episodes.jsonl: No space left"):
            for written in range(10_000):
                journal.append(line(str(written)))
        assert names(disk / "episodes.jsonl") == [str(number) for number in range(written)]
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        journal.append(line(str(written)))
        assert names(disk / "episodes.jsonl") == [str(number) for number in range(written + 1)]

    def test_a_full_one_leaves_the_file_before_a_rewrite_as_it_was(self, disk: Path) -> None:
        write_whole(disk / "report.md", "first")
        with pytest.raises(JournalError, match="No space left"):
            write_whole(disk / "report.md", "x" * 100_000)
        assert (disk / "report.md").read_text() == "first" and len(list(disk.iterdir())) == 1

    def test_one_that_can_only_be_read_is_told(self, disk: Path) -> None:
        journal = Journal(disk / "episodes.jsonl")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for attempt in (
            lambda: journal.append(line("0")),
            lambda: Journal(disk / "episodes.jsonl"),
            lambda: write_whole(disk / "report.md", "text"),
            lambda: locked(disk).__enter__(),
            lambda: locked(disk / "run").__enter__(),
        ):
            with pytest.raises(JournalError, match=r"cannot write to .*: Read-only file system"):
                attempt()


class TestAFolderThatGoes:
    def test_is_told_not_written_into_the_void(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path / "episodes.jsonl")
        journal.append(line("0"))
        (tmp_path / "episodes.jsonl").unlink()
        with pytest.raises(JournalError, match="No such file"):
            journal.append(line("1"))

    def test_another_file_in_its_place_is_not_touched(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        journal = Journal(tmp_path / "a" / "episodes.jsonl")
        shutil.move(tmp_path / "a", tmp_path / "b")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "episodes.jsonl").write_bytes(line("another's"))
        with pytest.raises(JournalError, match="another file in its place"):
            journal.append(line("1"))
        assert names(tmp_path / "a" / "episodes.jsonl") == ["another's"]


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(JournalError, match=r"cannot write to .*run: File exists"), locked(tmp_path / "run"):
        pass
