"""The time to open a large run in the viewer. Prints one line of JSON.

    python benchmarks/viewer.py
    python benchmarks/viewer.py --episodes 200000 --without-tokens

The episodes are of tic-tac-toe, 7 turns on average, each with 40 sampled tokens, their log-probabilities and a
prompt of 200 tokens, as a language model's would be; --without-tokens leaves those out. "opened" is the time from the
start of the process `marl-gem view` until the first rows of the table have been answered, "index" the time to read the
run; "painted", where Chromium and Playwright are there, the time from the start of another such process until a
browser shows rows, and "complete" until it shows the numbers of all episodes; "search" a text search through all
episodes; "episode" the median of fetching one episode. In seconds, the least of three measurements. The run has the
index file that an evaluation writes at its end; "without_index" are the same figures without that file, measured in
turn, and "speedup" is how many times as long these took. "load" is the machine's load average before and after, of
"cores".
"""

from __future__ import annotations

import argparse
import json
import os
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
from marl_gem.runs.checksum import with_checksum
from marl_gem.runs.library import RunLibrary
from marl_gem.runs.stored_index import index_path, write_index
from marl_gem.types import Episode, to_json

DISTINCT, MEASUREMENTS = 500, 3
LIMITS = {"opened": 1.0, "painted": 1.5}
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--without-tokens", action="store_true")
    arguments = parser.parse_args()
    before, episodes = os.getloadavg()[0], arguments.episodes
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        size = write(run / "episodes.jsonl", episodes, not arguments.without_tokens)
        started = time.perf_counter()
        write_index(run / "episodes.jsonl")
        written = time.perf_counter() - started
        pairs = [(measure(run, episodes), measure_without_index(run, episodes)) for _ in range(MEASUREMENTS)]
    best, slow = ({name: round(min(seconds[name] for seconds in measured), 4) for name in measured[0]}
                  for measured in zip(*pairs, strict=True))  # fmt: skip
    within = all(best.get(name, 0.0) < limit for name, limit in LIMITS.items())
    print(
        json.dumps(
            {"benchmark": "viewer", "episodes": episodes, "megabytes": size // 10**6, **best}
            | {"without_index": slow, "speedup": {name: round(slow[name] / best[name], 2) for name in slow}}
            | {
                "index_written": round(written, 2),
                "limits": LIMITS,
                "within": within,
                "load": [round(before, 1), round(os.getloadavg()[0], 1)],
                "cores": os.cpu_count(),
            }
        )
    )


def write(path: Path, episodes: int, tokens: bool) -> int:
    """A run of episodes that differ in id and seed; returns its size in bytes."""
    jobs = [Job(seed, RandomPolicy()) for seed in range(DISTINCT)]
    played = collect(lambda: marl_gem.make("game:TicTacToe-v0"), jobs)
    lines = [to_json(with_tokens(episode) if tokens else episode).encode() for episode in played]
    parts = [line.partition(f'"id":"{episode.id}"'.encode()) for line, episode in zip(lines, played, strict=True)]
    with path.open("wb") as file:
        for number in range(episodes):
            head, _, rest = parts[number % DISTINCT]
            file.write(with_checksum(head + f'"id":"task-{number}"'.encode() + rest) + b"\n")
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


def measure(run: Path, episodes: int) -> dict[str, float]:
    library = RunLibrary(run)
    started = time.perf_counter()
    library.open(run.name).entries()
    seconds = {"index": time.perf_counter() - started}
    with viewer(run) as (url, started):
        ask(url, f"episodes?run={run.name}")
        seconds["opened"] = time.perf_counter() - started
        seconds["search"] = timed(lambda: ask(url, f"episodes?run={run.name}&text=no+such+words"))
        keys = range(1, episodes, episodes // 50)
        seconds["episode"] = median(timed(partial(ask, url, f"episode?run={run.name}&key={key}")) for key in keys)
    return seconds | paint(run, episodes)


def measure_without_index(run: Path, episodes: int) -> dict[str, float]:
    index = index_path(run / "episodes.jsonl")
    aside = index.rename(run.parent / "index")
    try:
        measured = measure(run, episodes)
    finally:
        aside.rename(index)
    return {name: measured[name] for name in ("index", "opened", "painted", "complete") if name in measured}


def paint(run: Path, episodes: int) -> dict[str, float]:
    """Seconds until a browser that is open already shows the table, and all numbers; nothing without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if not (chromium := shutil.which("chromium")):
        return {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        page = browser.new_page()
        with viewer(run) as (url, started):
            page.goto(f"{url}#/run?run={run.name}")
            page.wait_for_selector(".rows .row >> nth=5")
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            painted = time.perf_counter() - started
            page.wait_for_selector(f".tiles >> text='{episodes:,}'", timeout=300_000)
            complete = time.perf_counter() - started
        browser.close()
    return {"painted": painted, "complete": complete}


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
