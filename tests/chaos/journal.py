"""Runs whose files were cut or damaged: the damage is named, or the run is as it was; never silently another."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from marl_gem.errors import ConfigError, JournalError, MarlGemError
from marl_gem.evaluation import Numbers, plan_evaluation, run
from marl_gem.evaluation.report import read_report
from marl_gem.policies import RandomPolicy
from marl_gem.runs.journal import Journal, read_rows
from marl_gem.runs.reader import RunReader
from tests.chaos.table import Row
from tests.evaluation.helpers import ids, played, report_of

EPISODES = 4
CUTS, FLIPS = 2_867, 4_000
"""In a long round: cuts of the journal, most of them in its last two lines, and flipped bits in all files."""


def long_round(seed: int) -> list[Row]:
    dice = random.Random(seed)
    with TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        Journal(metrics).append(json.dumps({"update": number, "loss": number / 7}).encode() for number in range(20))
        return [
            torn(Path(folder) / "torn", dice, CUTS),
            flipped(Path(folder) / "flipped", dice, FLIPS),
            flipped_rows(metrics, dice, FLIPS),
        ]


def torn(folder: Path, dice: random.Random, cuts: int) -> Row:
    """Cut the journal after any of its bytes, and resume."""
    begun, violations = time.monotonic(), list[str]()
    with without_pictures():
        finished = play(folder / "finished")
        content = (finished / "episodes.jsonl").read_bytes()
        tried = shutil.copytree(finished, folder / "tried")
        last = len(content) - sum(len(line) for line in content.splitlines(keepends=True)[-2:])
        moments = [*range(len(content), last, -1)]
        moments += [dice.randrange(len(content)) for _ in range(cuts - len(moments))]
        for moment in dice.sample(moments, cuts):
            (tried / "episodes.jsonl").write_bytes(content[:moment])
            try:
                play(tried, resume=True)
            except Exception as error:
                violations.append(f"cut after {moment} bytes: {error!r}")
                continue
            violations += [f"cut after {moment} bytes: {found}" for found in differences(tried, finished)]
    promise = "the run is resumed, every episode exactly once, episodes and report as before"
    return Row("a journal that is cut after any byte", promise, cuts, violations, time.monotonic() - begun)


def flipped(folder: Path, dice: random.Random, flips: int) -> Row:
    """Flip a bit of any file of a run, look at the run, and resume it."""
    begun, violations = time.monotonic(), list[str]()
    with without_pictures():
        finished = play(folder / "finished")
        files = ["episodes.jsonl"] * 4 + ["config.json", "report.json"]
        tried = shutil.copytree(finished, folder / "tried")
        for _ in range(flips):
            name = dice.choice(files)
            content = bytearray((finished / name).read_bytes())
            place, bit = dice.randrange(len(content)), dice.randrange(8)
            content[place] ^= 1 << bit
            for file in finished.iterdir():
                shutil.copy(file, tried / file.name)
            (tried / name).write_bytes(content)
            line = content[:place].count(b"\n") + 1
            what = f"{name}, byte {place}, bit {bit}"
            violations += [f"{what}: {found}" for found in unnoticed(tried, finished, name, line)]
    promise = "the damage is named (in a journal with its line), or nothing has changed; no traceback"
    return Row("a flipped bit in any file of a run", promise, flips, violations, time.monotonic() - begun)


def unnoticed(tried: Path, finished: Path, name: str, line: int) -> Iterator[str]:
    """What a damaged run shows as if it were sound."""
    if name == "report.json":
        try:
            if read_report(tried) != read_report(finished):
                yield "another report was read"
        except MarlGemError as error:
            if name not in str(error):
                yield f"the error names no file: {error}"
    if name == "episodes.jsonl":
        shown = [entry.summary for entry in RunReader(tried).entries() if entry.summary]
        known = {summary.id: summary for entry in RunReader(finished).entries() if (summary := entry.summary)}
        if any(known.get(summary.id) != summary for summary in shown):
            yield "the viewer shows another episode"
    try:
        play(tried, resume=True)
    except (JournalError, ConfigError) as error:
        named = f"{name}, line {line}," in str(error) if name == "episodes.jsonl" else name in str(error)
        if not named:
            yield f"the error does not name line {line}: {error}"
    except Exception as error:
        yield f"a traceback: {error!r}"
    else:
        yield from differences(tried, finished)


def differences(tried: Path, finished: Path) -> Iterator[str]:
    """How a resumed run differs from one that nothing happened to."""
    if Counter(ids(tried)) != Counter(ids(finished)):
        yield "not every episode is there exactly once"
    elif played(tried) != played(finished):
        yield "the episodes are others"
    if report_of(tried) != report_of(finished):
        yield "the report is another"


def play(folder: Path, resume: bool = False) -> Path:
    run(plan_evaluation("game:KuhnPoker-v0", RandomPolicy(), Numbers(n=EPISODES)), folder, resume=resume)
    return folder


def flipped_rows(path: Path, dice: random.Random, flips: int) -> Row:
    """Flip bits in the metrics of a training."""
    begun, violations = time.monotonic(), list[str]()
    content, rows = path.read_bytes(), read_rows(path)
    for _ in range(flips):
        damaged = bytearray(content)
        place, bit = dice.randrange(len(damaged)), dice.randrange(8)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        line = content[:place].count(b"\n") + 1
        try:
            found: list[dict[str, Any]] = read_rows(path)
        except JournalError as error:
            if f"line {line}," not in str(error):
                violations.append(f"byte {place}, bit {bit}: {error}")
        else:
            if found != rows and place != len(content) - 1:  # without its newline the last line does not count
                violations.append(f"byte {place}, bit {bit}: other rows were read")
    path.write_bytes(content)
    return Row(
        "a flipped bit in the metrics of a training",
        "the damage is named with its line, or the rows are as before",
        flips,
        violations,
        time.monotonic() - begun,
    )


@contextmanager
def without_pictures() -> Iterator[None]:
    """They would take most of the time."""
    before = sys.modules.get("matplotlib")
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is None:
            del sys.modules["matplotlib"]
        else:
            sys.modules["matplotlib"] = before
