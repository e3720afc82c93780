"""Ctrl-C in real processes: the first one stops in order, the second one ends the process, whatever its threads do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import signals

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts marl-gem with the stuck game; what is left at the end is killed."""
    processes: list[subprocess.Popen[str]] = []

    def started(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.stuck_game", *arguments]
        environment = {"COLUMNS": "500", "NO_COLOR": "1", "PYTHONPATH": str(ROOT), "STUCK_MARK": str(tmp_path / "mark")}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | environment
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)


def interrupted_twice(process: subprocess.Popen[str], mark: Path) -> tuple[str, str]:
    """What a process printed that is stuck and gets Ctrl-C twice."""
    wait_for(mark.exists, process)
    signals.send(process.pid, signal.SIGINT)
    time.sleep(0.3)  # in which a process would end that does not wait
    assert process.poll() is None, "it waits for what is live"
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    printed = process.communicate(timeout=30)
    assert process.returncode == 130, printed
    assert time.monotonic() - begun < 5
    return printed


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "how=sleep"),
        ("-o", "how=socket"),
        ("-o", "how=pool"),
        ("-o", "how=c", "-o", "threads=false"),
        ("--seat", "a=scripted:blocks"),
    ],
    ids=["thread", "socket", "thread pool", "C code in the main thread", "event loop"],
)
def test_the_second_ctrl_c_ends_an_evaluation(arguments: tuple[str, ...], tmp_path: Path, start: Start) -> None:
    run = tmp_path / "run"
    process = start("eval", "test:Stuck-v0", *arguments, "-n", "40", "--concurrency", "4", "--out", str(run))
    _, err = interrupted_twice(process, tmp_path / "mark")
    again = f"Continue with:\n  marl-gem eval --out {run} --resume"
    notice = "stopping after the episodes that are live; Ctrl-C again stops at once. What is on disk is safe."
    assert f"{notice} {again}" in err
    assert f"stopped at once. What is on disk is safe. {again}" in err
    assert "Traceback" not in err
    for line in (run / "episodes.jsonl").read_text("utf-8").splitlines(keepends=True):
        assert line.endswith("\n") and json.loads(line)


def test_the_second_ctrl_c_ends_a_tournament(tmp_path: Path, start: Start) -> None:
    players = ("--player", "x=random", "--player", "y=random")
    out = ("--out", str(tmp_path / "run"))
    process = start("tournament", "test:Stuck-v0", *players, "-o", "how=sleep", "-n", "5", *out)
    _, err = interrupted_twice(process, tmp_path / "mark")
    assert f"marl-gem tournament --out {tmp_path / 'run'} --resume" in err and "Traceback" not in err


def test_the_second_ctrl_c_ends_play(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUCK_PATIENCE", "60")  # after the first one it waits for the steps
    process = start("play", "test:Stuck-v0", "-o", "how=sleep", "-n", "8")
    _, err = interrupted_twice(process, tmp_path / "mark")
    assert err.splitlines()[-1] == "stopped" and "Traceback" not in err


TRAINING = """
scenario = "test:Stuck-v0"
options = {how = "sleep", after = 30}
policy = {width = 16, layers = 1, heads = 2, context = 128}
imitation = {episodes = 4, steps = 1}
training = {updates = 2, episodes = 4}
evaluation = {final_episodes = 2, probe_episodes = 2}
"""


@pytest.mark.long
def test_the_second_ctrl_c_ends_a_training(tmp_path: Path, start: Start) -> None:
    pytest.importorskip("torch")
    (tmp_path / "stuck.toml").write_text(TRAINING, "utf-8")
    process = start("train", str(tmp_path / "stuck.toml"), "--runs", str(tmp_path), "--name", "run")
    _, err = interrupted_twice(process, tmp_path / "mark")
    again = f"What is on disk is safe. Continue with:\n  marl-gem train --resume {tmp_path / 'run'}"
    assert f"stopping after this update; Ctrl-C again stops at once. {again}" in err
    assert f"stopped at once. {again}" in err and "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_ctrl_c_or_sigterm_ends_what_has_nothing_to_finish(
    tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    process = start("play", "test:Stuck-v0", "--seat", "a=scripted:blocks")
    wait_for((tmp_path / "mark").exists, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and err == "stopped\n"


def test_a_limit_of_seconds_lets_a_run_with_stuck_steps_end(tmp_path: Path, start: Start) -> None:
    run = tmp_path / "run"
    limits = ("--max-seconds", "0.3", "--concurrency", "8")
    process = start("eval", "test:Stuck-v0", "-o", "how=sleep", "-n", "8", *limits, "--out", str(run))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    episodes = [json.loads(line) for line in (run / "episodes.jsonl").read_text("utf-8").splitlines()]
    assert len(episodes) == 8 and {episode.get("limit", "") for episode in episodes} == {"", "seconds"}
    assert "have not returned" in err and "of test:Stuck-v0" in err
