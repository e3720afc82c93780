"""The journal: a line that counts is on disk, whatever happens to the process, the disk or the folder."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from marl_gem.errors import JournalError
from marl_gem.runs.checksum import with_checksum
from marl_gem.runs.journal import Journal, read_rows
from marl_gem.types import Episode, Response, Turn, to_json


def episode(name: str, text: str = "go on") -> Episode:
    return Episode(name, "test:Test-v0", 7, (Turn("a", "Well?", Response(text), 1.0),), {"a": 1.0}, "terminated")


def record(name: str, text: str = "go on") -> bytes:
    return to_json(episode(name, text)).encode("ascii")


def line(name: str, text: str = "go on") -> bytes:
    return with_checksum(record(name, text)) + b"\n"


def old_line(name: str) -> bytes:
    """As versions without checksums wrote it."""
    return record(name) + b"\n"


def names(path: Path) -> list[str]:
    return [episode.id for _, episode in Journal(path).episodes()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


class TestAppend:
    def test_episodes_are_read_back_equal_with_their_line_numbers(self, path: Path) -> None:
        journal = Journal(path)
        strange = "ünï\ud800\0\n"
        journal.append([record("0"), record("1", strange)])
        journal.append([record("2")])
        assert list(Journal(path).episodes()) == [(1, episode("0")), (2, episode("1", strange)), (3, episode("2"))]
        assert list(Journal(path).lines()) == [(1, line("0")), (2, line("1", strange)), (3, line("2"))]

    def test_a_file_that_is_opened_again_grows_at_its_end(self, path: Path) -> None:
        Journal(path).append([record("0")])
        Journal(path).append([record("1")])
        assert names(path) == ["0", "1"]

    def test_the_lines_are_flushed_to_disk_before_append_returns(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = Journal(path)
        sizes = []
        monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
        journal.append([record("0")])
        assert sizes == [len(line("0"))]


class TestATornLastLine:
    @pytest.mark.parametrize("text", ["go on", "long " * 20_000])
    @pytest.mark.slow
    def test_is_dropped_wherever_it_was_torn(self, path: Path, text: str) -> None:
        complete, last = line("0") + line("1"), line("2", text)
        cuts = range(len(last) - 1) if len(last) < 1000 else (1, 100, 65_535, 65_536, 65_537, len(last) - 2)
        for cut in cuts:
            path.write_bytes(complete + last[:cut])
            journal = Journal(path)
            assert path.read_bytes() == complete
            journal.append([record("2", text)])
            assert names(path) == ["0", "1", "2"]

    def test_may_be_all_there_is(self, path: Path) -> None:
        path.write_bytes(line("0")[:-5])
        assert names(path) == [] and path.read_bytes() == b""

    @pytest.mark.parametrize("end", [b"", b"\x0b"])
    def test_that_lacks_only_its_newline_is_kept(self, path: Path, end: bytes) -> None:
        path.write_bytes(line("0") + line("1")[:-1] + end)
        Journal(path).append([record("2")])
        assert path.read_bytes() == line("0") + line("1") + line("2")

    def test_may_be_zeros_as_a_crashed_file_system_leaves_them(self, path: Path) -> None:
        path.write_bytes(line("0") + bytes(5000))
        assert names(path) == ["0"]

    def test_is_kept_in_a_shared_file_as_a_line_by_itself(self, path: Path) -> None:
        path.write_bytes(line("0") + line("1")[:-5])
        Journal(path, shared=True).append([record("2")])
        assert path.read_bytes() == line("0") + line("1")[:-5] + b"\n" + line("2")


@pytest.mark.parametrize("damage", [b"{}", b"not json", b"\xff\xfe", b"", line("1")[:-20], b"[" * 100_000])
def test_an_error_names_the_number_of_a_damaged_line(path: Path, damage: bytes) -> None:
    path.write_bytes(line("0") + damage + b"\n" + line("2"))
    with pytest.raises(JournalError, match=r"episodes.jsonl, line 2, is damaged"):
        names(path)


class TestChecksums:
    def test_a_flipped_bit_in_any_byte_of_a_line_is_an_error_with_its_number(self, path: Path) -> None:
        before, middle, after = line("0"), line("1"), line("2")
        journal = Journal(path)
        for place in range(len(middle) - 1):
            damaged = bytearray(middle)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(before + damaged + after)
            for read in (journal.episodes, journal.outlines):
                with pytest.raises(JournalError, match=r"line 2, is damaged"):
                    list(read())

    def test_lines_of_older_versions_are_read_among_others(self, path: Path) -> None:
        path.write_bytes(old_line("0") + line("1") + old_line("2"))
        journal = Journal(path)
        journal.append([record("3")])
        assert names(path) == ["0", "1", "2", "3"]
        assert [outline.id for _, outline in journal.outlines()] == ["0", "1", "2", "3"]

    def test_other_line_ends_do_not_count(self, path: Path) -> None:
        path.write_bytes((line("0") + line("1")).replace(b"\n", b"\r\n"))
        assert names(path) == ["0", "1"]

    def test_the_lines_are_plain_json(self, path: Path) -> None:
        Journal(path).append([record("0")])
        read = json.loads(path.read_bytes())
        assert read.pop("crc32") and read == json.loads(record("0"))


class TestKeep:
    def test_removes_all_lines_after_the_first_so_many(self, path: Path) -> None:
        journal = Journal(path)
        journal.append(map(record, "012"))
        journal.keep(2)
        assert path.read_bytes() == line("0") + line("1")
        journal.append([record("3")])
        assert names(path) == ["0", "1", "3"]

    def test_of_more_lines_than_there_are_changes_nothing(self, path: Path) -> None:
        journal = Journal(path)
        journal.append([record("0")])
        journal.keep(5)
        assert names(path) == ["0"]


class TestRows:
    def test_are_read_up_to_the_first_that_was_cut_off(self, tmp_path: Path) -> None:
        (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"update": 2}\n{"upd')
        assert read_rows(tmp_path / "metrics.jsonl") == [{"update": 1}, {"update": 2}]

    @pytest.mark.parametrize(
        "damage", [b'{"upd', b"[1]", b"[" * 100_000, b"\xff", with_checksum(b'{"a":1}')[:-3] + b'0"}']
    )
    def test_a_damaged_line_is_an_error_with_its_number(self, tmp_path: Path, damage: bytes) -> None:
        (tmp_path / "metrics.jsonl").write_bytes(b'{"update": 1}\n' + damage + b'\n{"update": 3}\n')
        with pytest.raises(JournalError, match=r"metrics.jsonl, line 2, is damaged"):
            read_rows(tmp_path / "metrics.jsonl")

    def test_of_a_file_that_is_not_there_are_none(self, tmp_path: Path) -> None:
        assert read_rows(tmp_path / "metrics.jsonl") == []


class TestADiskThatFails:
    def test_a_full_disk_is_an_error_and_leaves_complete_lines(self, disk: Path) -> None:
        journal = Journal(disk / "episodes.jsonl")
        written = 0
        with pytest.raises(JournalError, match=r"cannot write to .*episodes.jsonl: No space left"):
            for written in range(10_000):
                journal.append([record(str(written))])
        assert names(disk / "episodes.jsonl") == [str(number) for number in range(written)]
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        journal.append([record(str(written))])
        assert names(disk / "episodes.jsonl") == [str(number) for number in range(written + 1)]

    def test_a_disk_that_can_only_be_read_is_an_error(self, disk: Path) -> None:
        journal = Journal(disk / "episodes.jsonl")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for attempt in (lambda: journal.append([record("0")]), lambda: Journal(disk / "episodes.jsonl")):
            with pytest.raises(JournalError, match=r"cannot write to .*: Read-only file system"):
                attempt()

    def test_a_write_that_fails_leaves_what_was_there(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = Journal(path)
        journal.append([record("0")])
        failing, fsync = [True], os.fsync

        def fail(descriptor: int) -> None:
            if failing:
                failing.clear()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(JournalError, match=r"cannot write to .*Input/output error.*--resume continues the run"):
            journal.append([record("1"), record("2")])
        assert path.read_bytes() == line("0")
        journal.append([record("1")])
        assert names(path) == ["0", "1"]


class TestAFileThatIsRemoved:
    def test_is_an_error(self, path: Path) -> None:
        journal = Journal(path)
        journal.append([record("0")])
        path.unlink()
        with pytest.raises(JournalError, match="No such file"):
            journal.append([record("1")])

    def test_is_made_again_where_it_is_shared(self, path: Path) -> None:
        journal = Journal(path, shared=True)
        path.unlink()
        journal.append([record("1")])
        assert names(path) == ["1"]

    def test_another_file_of_its_name_is_not_touched(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        journal = Journal(tmp_path / "a" / "episodes.jsonl")
        shutil.move(tmp_path / "a", tmp_path / "b")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "episodes.jsonl").write_bytes(line("another's"))
        with pytest.raises(JournalError, match="another file in its place"):
            journal.append([record("1")])
        assert names(tmp_path / "a" / "episodes.jsonl") == ["another's"]


def test_several_writers_of_a_shared_file_never_mix_their_lines(path: Path) -> None:
    def work(writer: int) -> None:
        journal = Journal(path, shared=True)
        for number in range(10):
            journal.append([record(f"{writer}-{number}", "x" * 20_000)])

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names(path)) == sorted(f"{writer}-{number}" for writer in range(4) for number in range(10))
