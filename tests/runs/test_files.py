"""Files and folders that are written completely or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from marl_gem.errors import JournalError
from marl_gem.runs.files import read_json_file, replacing, replacing_folder, write_file, write_json


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


class TestAFile:
    def test_is_replaced(self, tmp_path: Path) -> None:
        write_file(tmp_path / "report.md", "first")
        write_file(tmp_path / "report.md", "sécond \ud800")
        assert (tmp_path / "report.md").read_bytes() == "sécond \\ud800".encode()
        assert names(tmp_path) == ["report.md"]

    def test_of_json_ends_with_a_checksum_and_a_newline(self, tmp_path: Path) -> None:
        write_json(tmp_path / "report.json", {"a": 1})
        assert (tmp_path / "report.json").read_text() == '{\n  "a": 1,\n  "crc32": "476d1ee6"\n}\n'
        assert read_json_file(tmp_path / "report.json") == {"a": 1}

    def test_is_unchanged_on_a_full_disk(self, disk: Path) -> None:
        write_file(disk / "report.md", "first")
        with pytest.raises(JournalError, match="No space left"):
            write_file(disk / "report.md", "x" * 100_000)
        assert (disk / "report.md").read_text() == "first" and names(disk) == ["report.md"]

    def test_on_a_disk_that_can_only_be_read_is_an_error(self, disk: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(JournalError, match=r"cannot write to .*report.md: Read-only file system"):
            write_file(disk / "report.md", "text")

    def test_is_unchanged_when_its_writer_fails(self, tmp_path: Path) -> None:
        write_file(tmp_path / "curve.png", "first")
        with pytest.raises(ZeroDivisionError), replacing(tmp_path / "curve.png") as draft:
            assert draft.suffix == ".png"
            draft.write_text("half")
            raise ZeroDivisionError
        assert (tmp_path / "curve.png").read_text() == "first" and names(tmp_path) == ["curve.png"]


class TestAFolder:
    def test_appears_when_it_is_complete(self, tmp_path: Path) -> None:
        with replacing_folder(tmp_path / "deep" / "update-1") as draft:
            (draft / "model").mkdir()
            (draft / "model" / "weights").write_text("1")
            assert not (tmp_path / "deep" / "update-1").exists()
        assert (tmp_path / "deep" / "update-1" / "model" / "weights").read_text() == "1"
        assert names(tmp_path / "deep") == ["update-1"]

    def test_replaces_an_older_one_with_all_that_is_in_it(self, tmp_path: Path) -> None:
        for name in ("old", "new"):
            with replacing_folder(tmp_path / "update-1") as draft:
                (draft / name).write_text(name)
        assert names(tmp_path) == ["update-1"] and names(tmp_path / "update-1") == ["new"]

    def test_is_unchanged_when_its_writer_fails(self, tmp_path: Path) -> None:
        with replacing_folder(tmp_path / "update-1") as draft:
            (draft / "old").write_text("old")
        with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "update-1") as draft:
            raise ZeroDivisionError
        assert names(tmp_path) == ["update-1"] and names(tmp_path / "update-1") == ["old"]

    def test_is_unchanged_when_its_replacement_cannot_be_renamed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with replacing_folder(tmp_path / "update-1") as draft:
            (draft / "old").write_text("old")
        rename = Path.rename

        def failing_rename(path: Path, target: Path) -> Path:
            if path.name.endswith(".draft"):
                raise OSError("the disk failed")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", failing_rename)
        with pytest.raises(OSError, match="the disk failed"), replacing_folder(tmp_path / "update-1") as draft:
            (draft / "new").write_text("new")
        assert names(tmp_path) == ["update-1"] and names(tmp_path / "update-1") == ["old"]

    def test_is_flushed_before_it_is_renamed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        flushed = set()
        fsync, rename = os.fsync, Path.rename

        def noted_fsync(descriptor: int) -> None:
            flushed.add(os.fstat(descriptor).st_ino)
            fsync(descriptor)

        def checked_rename(path: Path, target: Path) -> Path:
            inside = [path, *path.rglob("*")]
            assert {file.stat().st_ino for file in inside} <= flushed
            return rename(path, target)

        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(Path, "rename", checked_rename)
        with replacing_folder(tmp_path / "update-1") as draft:
            (draft / "model").mkdir()
            (draft / "model" / "weights").write_text("1")
        assert (tmp_path / "update-1").is_dir()
