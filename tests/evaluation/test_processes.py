"""Runs in processes: killed, interrupted, and from the command line."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import signals
from tests.evaluation.helpers import (
    episodes_in,
    ids,
    played,
    report_of,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def marl_gem(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.slow_game", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=_wide(), **options)


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.slow_game", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=_wide())


def _wide() -> dict[str, str]:
    import os

    return os.environ | {"COLUMNS": "500", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    ended = time.monotonic() + 30
    while not condition():
        assert process.poll() is None and time.monotonic() < ended, process.communicate()
        time.sleep(0.005)


SLOW = ("test:Slow-v0", "--seat", "a=scripted:slow", "--seat", "b=scripted:slow")


class TestKilled:
    @pytest.mark.slow
    @pytest.mark.long
    def test_at_twenty_random_moments_each_episode_is_there_once(self, tmp_path: Path) -> None:
        asked = ("eval", *SLOW, "-n", "300", "--repeats", "2", "--concurrency", "4")
        journal, before, dice = tmp_path / "run" / "episodes.jsonl", b"", random.Random(4)
        for moment in range(20):
            begun = (tmp_path / "run" / "config.json").exists()
            process = started(*asked, "--out", tmp_path / "run", *["--resume"] * begun)
            if moment % 5:
                grown = size(journal) + dice.randrange(1, 3000)
                wait_for(lambda grown=grown: size(journal) >= grown, process)  # type: ignore[misc]
                time.sleep(dice.uniform(0, 0.06))
            else:
                time.sleep(dice.uniform(0, 0.6))
            process.kill()
            process.communicate()
            now = journal.read_bytes() if journal.exists() else b""
            whole = before[: before.rfind(b"\n") + 1]
            assert now.startswith(whole)  # what was there stays
            before = now
        assert 0 < before.count(b"\n") < 600
        finished = marl_gem("eval", "--out", tmp_path / "run", "--resume", "--concurrency", "64")
        assert finished.returncode == 0, finished.stderr
        assert Counter(ids(tmp_path / "run")) == Counter(f"{i}.{repeat}" for i in range(300) for repeat in range(2))
        unbroken = marl_gem(*asked[:-1], "64", "--out", tmp_path / "whole")
        assert unbroken.returncode == 0, unbroken.stderr
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")

    @pytest.mark.slow
    def test_leaves_the_lock_free_and_held_while_it_lives(self, tmp_path: Path) -> None:
        process = started("eval", *SLOW, "-n", "5000", "--out", tmp_path / "run")
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        second = marl_gem("eval", "--out", tmp_path / "run", "--resume")
        assert second.returncode == 2 and f"process {process.pid} is working on" in second.stderr
        process.kill()
        process.communicate()
        third = marl_gem("eval", "--out", tmp_path / "run", "--resume", "--run-max-episodes", "1")
        assert third.returncode == 1 and "episodes are pending" in third.stderr


class TestARemovedLock:
    @pytest.mark.slow
    def test_lets_no_second_writer_in(self, tmp_path: Path) -> None:
        process = started("eval", *SLOW, "-n", "150", "--concurrency", "4", "--out", tmp_path / "run")
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        (tmp_path / "run" / ".lock").unlink()
        second = marl_gem("eval", "--out", tmp_path / "run", "--resume")
        assert second.returncode == 2 and "another process is working on" in second.stderr
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert sorted(ids(tmp_path / "run")) == sorted(f"{index}.0" for index in range(150))


class TestInterrupted:
    def test_once_finishes_what_is_live_and_reports(self, tmp_path: Path) -> None:
        process = started("eval", *SLOW, "-n", "5000", "--concurrency", "8", "--out", tmp_path / "run")
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "stopping after the episodes that are live; Ctrl-C again stops at once" in err
        assert f"marl-gem eval --out {tmp_path / 'run'} --resume" in err and "stopped early: interrupted" in out
        there, report = ids(tmp_path / "run"), report_of(tmp_path / "run")
        assert len(there) == len(set(there)) == report["episodes"]["counted"] < 5000
        assert all(episode.ending == "terminated" for episode in episodes_in(tmp_path / "run" / "episodes.jsonl"))
        assert size(tmp_path / "run" / "errors.jsonl") == 0

    def test_twice_stops_at_once(self, tmp_path: Path) -> None:
        seats = ("--seat", "a=scripted:asleep", "--seat", "b=scripted:asleep")
        process = started("eval", "test:Slow-v0", *seats, "-n", "9", "-o", "rounds=100", "--out", tmp_path / "run")
        wait_for(lambda: (tmp_path / "run" / "errors.jsonl").exists(), process)
        time.sleep(0.3)
        signals.send(process.pid, signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None  # 80 seconds would still be needed
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130 and time.monotonic() - begun < 5
        assert "stopped at once" in err and f"--out {tmp_path / 'run'} --resume" in err and "Traceback" not in err
        assert ids(tmp_path / "run") == []


class TestTheCommandLine:
    def test_eval(self, tmp_path: Path) -> None:
        finished = marl_gem(
            "eval", "game:TicTacToe-v0", "--seat", "player_1=random", "-n", "40", "--out", tmp_path / "r"
        )
        assert finished.returncode == 0, finished.stderr
        assert "40 episodes count" in finished.stdout and "won / drawn / lost" in finished.stdout
        assert str(tmp_path / "r" / "report.md") in finished.stdout and "40/40 episodes" in finished.stderr
        command = report_of(tmp_path / "r")["command"]
        assert command == (
            "marl-gem eval game:TicTacToe-v0 --seat player_0=random --seat player_1=random -n 40 --seed 0"
        )
        again = marl_gem(*command.split()[1:], "--out", tmp_path / "again")
        assert again.returncode == 0 and played(tmp_path / "r") == played(tmp_path / "again")
        more = marl_gem("eval", "--out", tmp_path / "r", "--resume", "-n", "50")
        assert more.returncode == 0 and len(ids(tmp_path / "r")) == 50

    @pytest.mark.long
    def test_a_grid(self, tmp_path: Path) -> None:
        asked = (
            "eval",
            "test:Slow-v0",
            "--grid",
            "--seat",
            "a=random",
            "--seat",
            "a=scripted:slow",
            "--seat",
            "b=random",
        )
        finished = marl_gem(*asked, "-n", "10", "--out", tmp_path / "g")
        assert finished.returncode == 0, finished.stderr
        assert "Success of a" in finished.stdout and (tmp_path / "g" / "02_slow" / "episodes.jsonl").exists()
        assert marl_gem("eval", "--out", tmp_path / "g", "--resume").returncode == 0
        command = report_of(tmp_path / "g")["command"]
        assert marl_gem(*command.split()[1:], "--out", tmp_path / "h").returncode == 0
        assert report_of(tmp_path / "h") == report_of(tmp_path / "g")

    def test_a_tournament(self, tmp_path: Path) -> None:
        asked = ("tournament", "game:KuhnPoker-v0", "--player", "x=random", "--player", "y=random")
        finished = marl_gem(*asked, "-n", "10", "--out", tmp_path / "t")
        assert finished.returncode == 0, finished.stderr
        assert "rating" in finished.stdout and len(ids(tmp_path / "t")) == 20
        wrong = marl_gem("eval", "--out", tmp_path / "t", "--resume")
        assert wrong.returncode == 2 and "marl-gem tournament --out" in wrong.stderr
        assert marl_gem("tournament", "--out", tmp_path / "t", "--resume").returncode == 0

    def test_limits_and_options_reach_the_run(self, tmp_path: Path) -> None:
        asked = ("eval", *SLOW, "-n", "4", "-o", "rounds=3", "--max-turns", "5", "--run-max-episodes", "2")
        finished = marl_gem(*asked, "--out", tmp_path / "r")
        assert finished.returncode == 1 and "2 episodes are pending" in finished.stderr
        assert all(len(episode.turns) == 5 for episode in episodes_in(tmp_path / "r" / "episodes.jsonl"))
        assert marl_gem("eval", "--out", tmp_path / "r", "--resume").returncode == 0
        assert all(len(episode.turns) == 5 for episode in episodes_in(tmp_path / "r" / "episodes.jsonl"))

    def test_wrappers_reach_the_run_and_its_resumption(self, tmp_path: Path) -> None:
        asked = ("eval", "game:KuhnPoker-v0", "-n", "3", "--wrap", "time_limit=1", "--run-max-episodes", "1")
        assert marl_gem(*asked, "--out", tmp_path / "r").returncode == 1
        assert marl_gem("eval", "--out", tmp_path / "r", "--resume").returncode == 0
        assert [len(episode.turns) for episode in episodes_in(tmp_path / "r" / "episodes.jsonl")] == [1, 1, 1]
        command = report_of(tmp_path / "r")["command"]
        assert command.endswith("--wrap time_limit,max_steps=1")
        refused = marl_gem("eval", "--out", tmp_path / "r", "--resume", "--wrap", "time_limit=2")
        assert refused.returncode == 2 and "wrappers was" in refused.stderr

    def test_a_person_plays_one_game_after_the_other(self, tmp_path: Path) -> None:
        asked = ("eval", "test:Slow-v0", "--seat", "a=human", "-n", "2", "--out", tmp_path / "r")
        finished = marl_gem(*asked, input="heads\ntails\nheads\nheads\n")
        assert finished.returncode == 0, finished.stderr
        said = [
            [turn.response.text for turn in episode.turns_of("a")]
            for episode in episodes_in(tmp_path / "r/episodes.jsonl")
        ]
        assert said == [["heads", "tails"], ["heads", "heads"]]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("eval",), "which scenario?"),
            (("eval", "--resume"), "Name its folder with --out"),
            (("eval", "game:Kuhn-v0"), "Did you mean 'game:KuhnPoker-v0'"),
            (("eval", "test:Slow-v0", "--seat", "a"), "'a' lacks a side; write NAME=WHO"),
            (("eval", "test:Slow-v0", "--seat", "c=random"), "has no agent 'c'; its agents are a, b"),
            (("eval", "test:Slow-v0", "--seat", "a=rondom"), "Did you mean random"),
            (("eval", "test:Slow-v0", "--seat", "a=random", "--seat", "a=human"), "--grid plays all combinations"),
            (("eval", "test:Slow-v0", "--grid"), "a grid needs a seat that is given several times"),
            (("eval", "test:Slow-v0", "-o", "turns=3"), "It takes: rounds"),
            (("eval", "test:Slow-v0", "-n", "0"), "-n"),
            (("tournament", "test:Slow-v0", "--player", "random"), "'random' lacks a side; write NAME=WHO"),
            (("tournament", "test:Slow-v0", "--player", "a=random", "--player", "a=random"), "two players are called"),
            (("tournament", "test:Slow-v0", "--player", "a=random"), "name at least as many players"),
        ],
    )
    def test_wrong_arguments_are_errors(self, arguments: tuple[str, ...], message: str, capsys: Any) -> None:
        """In this process, which is as good here, and quicker."""
        from marl_gem.cli import main
        from tests import slow_game

        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as left:
            patch.setattr(sys, "argv", ["marl-gem", *arguments])
            patch.setenv("COLUMNS", "500")
            _registered(slow_game)
            main()
        assert left.value.code == 2
        assert message in " ".join(capsys.readouterr().err.split())


def _registered(slow_game: Any) -> None:
    from marl_gem import registry

    if "test:Slow-v0" not in {scenario.id for scenario in registry.list()}:
        registry.register("test:Slow-v0", slow_game.Slow, agents=2)
