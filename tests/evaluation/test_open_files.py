"""Runs with few open files; each in a process with a limit of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from marl_gem import open_files
from tests.fake_server import serving
from tests.toys import OneAnswer

ROOT = Path(__file__).parents[2]


class Reader(OneAnswer):
    """An env that keeps ten files open."""

    files: Sequence[IO[str]] = ()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.close()
        self.files = [Path(__file__).open() for _ in range(10)]  # noqa: SIM115

    def legal_actions(self, agent: str) -> list[str]:
        return ["yes"]

    def close(self) -> None:
        for file in self.files:
            file.close()


def evaluated(limit: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`marl-gem eval` where so many files may be open."""
    command = ["bash", "-c", f'ulimit -n {limit}; exec "$@"', "_", sys.executable, "-m", "marl_gem.cli", "eval"]
    environment = os.environ | {"COLUMNS": "500", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment
    )


@pytest.mark.slow
class TestRuns:
    def test_more_calls_at_once_than_files_wait_for_a_connection(self, tmp_path: Path) -> None:
        with serving("--text", "yes", "--latency", "0.05") as url:
            asked = ("tests.toys:OneAnswer", "--seat", f"solver=tiny@{url}", "-n", "100", "--concurrency", "100")
            finished = evaluated(120, *asked, "--max-seconds", "30", "--out", tmp_path / "r")
        assert finished.returncode == 0, finished.stderr
        assert "100 episodes count" in finished.stdout and finished.stderr.count("calls of") == 1
        assert "this process may have 120 files open; `ulimit -n 2000` before the start allows more" in finished.stderr

    def test_envs_with_files_are_fewer(self, tmp_path: Path) -> None:
        asked = ("tests.evaluation.test_open_files:Reader", "-n", "30")
        finished = evaluated(100, *asked, "--out", tmp_path / "r")
        assert finished.returncode == 0, finished.stderr
        assert "episodes at once instead of 30: this process may have 100 files open" in finished.stderr
        refused = evaluated(60, *asked, "--out", tmp_path / "s")
        assert refused.returncode == 2 and "can be played: this process may have 60 files" in refused.stderr


class TestFilesLeft:
    def test_the_limit_is_raised_where_it_can_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resource = pytest.importorskip("resource")
        limits = [(100, 1000)]
        monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
        monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
        monkeypatch.setattr(open_files, "count_open_files", lambda: 12)
        assert open_files.files_left(40) == 40 and limits == [(100, 1000)]
        assert open_files.files_left(41) == 41 and limits[1:] == [(1000, 1000)]
        assert open_files.files_left(2000) == 1000 - 12 - open_files.RESERVE

    def test_a_system_that_refuses_the_hard_limit_gets_what_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resource = pytest.importorskip("resource")
        limits = [(100, 2**63)]

        def set_limit(_: int, pair: tuple[int, int]) -> None:
            if pair[0] > 10_240:
                raise ValueError("not that many")
            limits.append(pair)

        monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
        monkeypatch.setattr(resource, "setrlimit", set_limit)
        monkeypatch.setattr(open_files, "count_open_files", lambda: 12)
        assert open_files.files_left(500) == 500 and limits[-1][0] == 560
