"""Runs that are killed with -9 at seeded moments, and then finished: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.table import Row
from tests.evaluation.helpers import ids, played, report_of

ROOT = Path(__file__).parents[2]
EVALUATION_KILLS, TRAINING_KILLS = 35, 30
"""In a long round: of one process, of two processes, and of a training."""

EPISODES_A_KILL, UPDATES_A_KILL = 40, 2
LONGEST = 300.0
"""Seconds that a run may take until it is killed, or to its end."""


def long_round(seed: int) -> list[Row]:
    dice = random.Random(seed)
    with TemporaryDirectory() as folder:
        return [
            evaluation(Path(folder) / "one", dice, EVALUATION_KILLS, processes=1),
            evaluation(Path(folder) / "two", dice, EVALUATION_KILLS, processes=2),
            training(Path(folder) / "training", dice, TRAINING_KILLS),
        ]


def evaluation(folder: Path, dice: random.Random, kills: int, processes: int) -> Row:
    """Kill an evaluation, finish it, and compare it with one that was not killed."""
    begun, violations = time.monotonic(), list[str]()
    folder.mkdir()
    episodes = kills * EPISODES_A_KILL
    run, unbroken = folder / "run", folder / "unbroken"
    seats = ("--seat", "a=scripted:slow", "--seat", "b=scripted:slow", "--processes", str(processes))
    asked = ("tests.slow_game", "eval", "test:Slow-v0", *seats, "-n", str(episodes))
    journal = run / "episodes.jsonl"
    before = b""
    for _ in range(kills):
        resume = ["--resume"] * (run / "config.json").exists()
        process = start(*asked, "--concurrency", "4", "--out", str(run), *resume)
        if dice.random() < 0.2:
            time.sleep(dice.uniform(0.0, 1.5))
        else:
            grown = size(journal) + dice.randrange(1, 3000)
            wait(process, lambda grown=grown: size(journal) >= grown)  # type: ignore[misc]
            time.sleep(dice.uniform(0.0, 0.06))
        violations += kill(process, run)
        now = journal.read_bytes() if journal.exists() else b""
        if not now.startswith(before[: before.rfind(b"\n") + 1]):
            violations.append("what was in the journal has changed")
        before = now
    violations += finish(
        *asked, "--concurrency", "64", "--out", str(run), *["--resume"] * (run / "config.json").exists()
    )
    violations += finish(*asked, "--concurrency", "64", "--out", str(unbroken))
    if Counter(ids(run)) != Counter(f"{number}.0" for number in range(episodes)):
        violations.append("not every episode is in the journal exactly once")
    if played(run) != played(unbroken):
        violations.append("the episodes are others than without kills")
    if report_of(run) != report_of(unbroken):
        violations.append("the report is another than without kills")
    promise = "every episode exactly once, episodes and report as without kills, no draft left"
    return Row(
        f"kill -9 during an evaluation, processes={processes}",
        promise,
        kills,
        violations + drafts(run),
        time.monotonic() - begun,
    )


def training(folder: Path, dice: random.Random, kills: int, updates: int | None = None) -> Row:
    """Kill a training, also while it writes a checkpoint, finish it, and compare it with one that was not killed."""
    from tests.trainers.support import SMALL_KUHN, rows_without_times, toml

    begun, violations = time.monotonic(), list[str]()
    folder.mkdir()
    updates = kills * UPDATES_A_KILL if updates is None else updates
    config = SMALL_KUHN | {
        "imitation": SMALL_KUHN["imitation"] | {"episodes": 20, "steps": 10},
        "training": SMALL_KUHN["training"] | {"updates": updates, "save_every": 1},
        "evaluation": {"final_episodes": 4, "probe_episodes": 2, "probe_every": 5},
    }
    (folder / "small.toml").write_text(toml(config))
    run, unbroken = folder / "run", folder / "unbroken"

    def command(name: str) -> list[str]:
        begin = ["small.toml", "--runs", str(folder), "--name", name]
        return ["marl_gem.cli", "train", *(["--resume", str(folder / name)] if (folder / name).exists() else begin)]

    for _ in range(kills):
        process = start(*command("run"), folder=folder)
        if dice.random() < 0.4:
            wait(process, lambda: any((run / "checkpoints").glob(".update-*")))
        else:
            grown = size(run / "metrics.jsonl") + dice.randrange(1, 1500)
            wait(process, lambda grown=grown: size(run / "metrics.jsonl") >= grown)  # type: ignore[misc]
            time.sleep(dice.uniform(0.0, 0.2))
        violations += kill(process, run)
    violations += finish(*command("run"), folder=folder) + finish(*command("unbroken"), folder=folder)
    if rows_without_times(run) != rows_without_times(unbroken):
        violations.append("the metrics are others than without kills")
    if weights(run) != weights(unbroken):
        violations.append("the weights are others than without kills")
    if played(run) != played(unbroken):
        violations.append("the episodes are others than without kills")
    return Row(
        "kill -9 during a training and its checkpoints",
        "weights, optimizer, metrics and episodes as without kills, bit for bit, no draft left",
        kills,
        violations + drafts(run),
        time.monotonic() - begun,
    )


def weights(run: Path) -> object:
    """The sizes and hashes of all files of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("update-*"))
    return newest.name, json.loads((newest / "state.json").read_text())["files"]


def drafts(run: Path) -> list[str]:
    """Hidden files that are left, but for the lock."""
    return [f"{path} is left" for path in run.rglob(".*") if path.name != ".lock"]


# Processes


def start(*command: str, folder: Path = ROOT) -> subprocess.Popen[str]:
    """A module in a process; what it prints goes to its standard error."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait(process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Wait for something that a process does, or for its end."""
    ends = time.monotonic() + LONGEST
    while not until() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.002)


def kill(process: subprocess.Popen[str], run: Path) -> Sequence[str]:
    process.kill()
    error = process.communicate()[1]
    return [f"a traceback while {run.name} was killed: {error[-300:]}"] if "Traceback" in error else []


def finish(*command: str, folder: Path = ROOT) -> list[str]:
    """Run to the end."""
    process = start(*command, folder=folder)
    error = process.communicate(timeout=LONGEST)[1]
    return [f"exit code {process.returncode}: {error[-300:]}"] if process.returncode else []


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
