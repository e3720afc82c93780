"""One training run in one folder, from the first random game to the report.

runs/demo/
  config.json       the configuration
  metrics.jsonl     a row for every tenth step of the warm-up, every update and every evaluation
  episodes.jsonl    all episodes of the measurements before and after, and some of each update
  curve.png         how the score developed
  report.json       before and after, see `measure`
  checkpoints/      everything needed to go on
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from marl_gem.errors import CheckpointError, ConfigError
from marl_gem.runs.lock import run_lock
from marl_gem.trainers import checkpoint
from marl_gem.trainers.book import METRICS, Book, read_metrics
from marl_gem.trainers.config import TrainConfig, differences, parse
from marl_gem.trainers.curve import draw_curve
from marl_gem.trainers.measure import measure
from marl_gem.trainers.seating import check
from marl_gem.trainers.self_play import SelfPlay
from marl_gem.trainers.trainee import check_pretrained

Phase = Literal["warm-up", "before", "self-play", "after"]


class Progress(NamedTuple):
    """What a run says while it works: step `done` of `total` in a phase, with what was measured."""

    phase: Phase
    done: int
    total: int
    metrics: dict[str, Any]


class Run:
    """A run in its folder: `start` or `resume` one, iterate over `work()`, then read `report`."""

    def __init__(self, folder: Path, config: TrainConfig, self_play: SelfPlay | None = None) -> None:
        self.folder = folder
        self.config = config
        self.self_play = self_play
        self.report: dict[str, Any] | None = None

    @classmethod
    def start(cls, folder: Path, config: TrainConfig) -> Run:
        """A new run in a new folder.

        Raises:
            ConfigError: the folder holds something already.
            ConfigError, RegistryError, MissingPackage: the scenario, a seat's policy or the model to start from cannot
                be made or makes no sense; nothing has been written then.
        """
        check(config)
        if config.policy.start_from:
            check_pretrained(config.policy.start_from)
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(
                f"{folder} holds something already: go on with it (marl-gem train --resume {folder}), "
                "or choose another name"
            )
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "config.json", msgspec.to_builtins(config))
        return cls(folder, config)

    @classmethod
    def resume(cls, folder: Path, wanted: TrainConfig | None = None) -> Run:
        """Go on with a run at its newest checkpoint, or from its beginning if it has none yet.

        Args:
            folder: the run's.
            wanted: the configuration the caller has in mind; it must be the run's.

        Raises:
            ConfigError: there is no run, or `wanted` differs; the message lists where.
            CheckpointError: its newest checkpoint is damaged, or its metrics end before that.
        """
        config = read_config(folder)
        if wanted is not None and (changes := differences(config, wanted)):
            raise ConfigError(
                f"{folder} was started with another configuration: {'; '.join(changes)}. Resume it without these "
                "options, or start a new run under another name"
            )
        if not checkpoint.found(folder / "checkpoints"):
            return cls(folder, config)
        self_play = checkpoint.load(folder, config)
        told = {row["update"] for row in read_metrics(folder) if row["phase"] != "warm-up"}
        if not told.issuperset(range(self_play.updates + 1)):
            raise CheckpointError(
                f"{folder / METRICS} does not tell of all {self_play.updates} updates of the newest checkpoint. Put "
                "the file back, or start a new run under another name"
            )
        return cls(folder, config, self_play)

    def work(self) -> Iterator[Progress]:
        """Do what is left of the run, and say how it goes after every step.

        May be interrupted at any time: what is on disk then can be resumed.

        Raises:
            JournalError: another process works on this run.
        """
        with run_lock(self.folder):
            book = Book(self.folder, self.self_play.updates if self.self_play else -1)
            try:
                run = self.self_play or (yield from self._begin(book))
                yield from self._train(book, run)
                yield from self._finish(book, run)
            finally:
                book.close()
                draw_curve(
                    read_metrics(self.folder),
                    title=self.config.scenario,
                    score="success" if self.config.seats else "score against random play",
                    target=self.folder / "curve.png",
                    changes=[phase.start for phase in self.config.phases],
                )

    def _begin(self, book: Book) -> Generator[Progress, None, SelfPlay]:
        """Make the policies, warm them up and measure them."""
        begun = time.monotonic()
        run = SelfPlay.start(self.config)
        total = self.config.imitation.steps * len(run.trainees)
        for step, metrics in enumerate(run.warm_up(), 1):
            if step % 10 == 0 or step == total:
                book.write(0, "warm-up", {"step": step, **metrics, "seconds": time.monotonic() - begun})
                yield Progress("warm-up", step, total, metrics)
        seconds = time.monotonic() - begun
        yield Progress("before", 0, 1, {})
        measured, episodes = measure(run, self.config.record.final_games, "final")
        book.write(0, "before", {**measured, "seconds": seconds}, episodes)
        book.flush()
        checkpoint.save(self.folder / "checkpoints", run)
        self.self_play = run
        yield Progress("before", 1, 1, book.rows[-1])
        return run

    def _train(self, book: Book, run: SelfPlay) -> Iterator[Progress]:
        plan, record = self.config.self_play, self.config.record
        while run.updates < plan.updates:
            begun, phase = time.monotonic(), run.phase
            metrics, episodes = run.update()
            metrics["seconds"] = book.rows[-1]["seconds"] + time.monotonic() - begun
            if run.updates == phase.end < plan.updates:
                metrics |= measure(run, record.final_games, "final", [phase])[0]
            elif run.updates % record.probe_every == 0:
                metrics["score"] = measure(run, record.probe_games, f"probe {run.updates}", [phase])[0]["score"]
            book.write(run.updates, "self-play", metrics, episodes[: record.episodes])
            if run.updates % record.save_every == 0 or run.updates == plan.updates:
                book.flush()
                checkpoint.save(self.folder / "checkpoints", run)
            yield Progress("self-play", run.updates, plan.updates, metrics)

    def _finish(self, book: Book, run: SelfPlay) -> Iterator[Progress]:
        """Measure the policies again, and write the report."""
        yield Progress("after", 0, 1, {})
        measured, episodes = measure(run, self.config.record.final_games, "final")
        book.write(run.updates, "after", {**measured, "seconds": book.rows[-1]["seconds"]}, episodes)
        before = next(row for row in book.rows if row["phase"] == "before")
        after = book.rows[-1]
        table = "seatings" if self.config.seats else "tallies"
        ended = [row[table][0] for row in book.rows if row["phase"] == "self-play" and table in row]
        self.report = {
            "before": before[table],
            **({"phase_ends": [*ended, after[table][-1]]} if self.config.seats else {}),
            "after": after[table],
            "score_before": before["score"],
            "score_after": after["score"],
            "seconds": round(after["seconds"], 1),
        }
        _write_json(self.folder / "report.json", self.report)
        yield Progress("after", 1, 1, after)

    def save(self) -> None:
        """After an interruption: keep the last whole update."""
        if self.self_play is not None:
            checkpoint.save(self.folder / "checkpoints", self.self_play)


def read_config(folder: Path) -> TrainConfig:
    """A run's configuration.

    Raises:
        ConfigError: the folder is no run's, or the file is damaged.
    """
    path = folder / "config.json"
    try:
        return parse(json.loads(path.read_text("utf-8")), str(path))
    except FileNotFoundError:
        raise ConfigError(f"{folder} is no run: it holds no config.json") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from error


def _write_json(path: Path, values: Any) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    draft.replace(path)
