"""The time to open a run of 20,000 episodes in the viewer. Prints one line of JSON.

    python benchmarks/viewer.py

The episodes are of tic-tac-toe, 7 turns on average, each with 40 sampled tokens, their log-probabilities and a
prompt of 200 tokens, as a language model's would be. "opened" is the time from the start of the process
`marl-gem view` until the first rows of the table have been answered, "index" the part of it that reads the run;
"painted", where Chromium and Playwright are there, the time from the start of another such process until a
browser shows the rows; "search" a text search through all episodes; "episode" the median of fetching one
episode. In seconds, the least of three measurements.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import msgspec

import marl_gem
from marl_gem.policies import RandomPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.library import RunLibrary
from marl_gem.types import Episode, to_json

EPISODES, DISTINCT, MEASUREMENTS, LIMIT = 20_000, 500, 3, 2.0
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        size = write(run / "episodes.jsonl")
        measured = [measure(run) for _ in range(MEASUREMENTS)]
    best = {name: round(min(seconds[name] for seconds in measured), 4) for name in measured[0]}
    within = best.get("painted", best["opened"]) < LIMIT
    print(
        json.dumps(
            {"benchmark": "viewer", "episodes": EPISODES, "megabytes": size // 10**6, **best, "limit": LIMIT}
            | {"within": within}
        )
    )


def write(path: Path) -> int:
    """A run of episodes that differ in id and seed; returns its size in bytes."""
    jobs = [Job(seed, RandomPolicy()) for seed in range(DISTINCT)]
    played = [with_tokens(episode) for episode in collect(lambda: marl_gem.make("game:TicTacToe-v0"), jobs)]
    with path.open("w") as file:
        for number in range(EPISODES):
            episode = msgspec.structs.replace(played[number % DISTINCT], id=f"task-{number}", seed=number)
            file.write(to_json(episode) + "\n")
    return path.stat().st_size


def with_tokens(episode: Episode) -> Episode:
    dice = random.Random(episode.seed)
    turns = []
    for turn in episode.turns:
        response = msgspec.structs.replace(
            turn.response,
            prompt_ids=tuple(dice.randrange(150_000) for _ in range(200)),
            token_ids=tuple(dice.randrange(150_000) for _ in range(40)),
            logprobs=tuple(-dice.expovariate(2.0) for _ in range(40)),
            usage={"prompt_tokens": 200, "completion_tokens": 40},
        )
        turns.append(msgspec.structs.replace(turn, response=response))
    return msgspec.structs.replace(episode, turns=tuple(turns), usage={"prompt_tokens": 1400, "completion_tokens": 280})


def measure(run: Path) -> dict[str, float]:
    library = RunLibrary(run)
    started = time.perf_counter()
    library.open(run.name).entries()
    seconds = {"index": time.perf_counter() - started}
    with viewer(run) as (url, started):
        ask(url, f"episodes?run={run.name}")
        seconds["opened"] = time.perf_counter() - started
        seconds["search"] = timed(lambda: ask(url, f"episodes?run={run.name}&text=no+such+words"))
        keys = range(1, EPISODES, EPISODES // 50)
        seconds["episode"] = median(timed(partial(ask, url, f"episode?run={run.name}&key={key}")) for key in keys)
    if (painted := paint(run)) is not None:
        seconds["painted"] = painted
    return seconds


def paint(run: Path) -> float | None:
    """Seconds until a browser that is open already shows the table; None where there is no browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if not (chromium := shutil.which("chromium")):
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        page = browser.new_page()
        with viewer(run) as (url, started):
            page.goto(f"{url}#/run?run={run.name}")
            page.wait_for_selector(".rows .row >> nth=5")
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            seconds = time.perf_counter() - started
        browser.close()
    return seconds


@contextmanager
def viewer(run: Path) -> Iterator[tuple[str, float]]:
    """A viewer in another process: its URL, and when it was started."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "marl_gem.cli", "view", str(run), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield next(word for word in process.stdout.readline().split() if word.startswith("http")), started
    finally:
        process.terminate()
        process.communicate()


def ask(url: str, question: str) -> None:
    with urlopen(f"{url}api/{question}") as answer:
        answer.read()


def timed(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
