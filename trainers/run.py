"""One training run in one folder, from the first demonstration to the report.

runs/demo/
  config.json       the configuration
  metrics.jsonl     a row for every tenth step of the warm start, every update and every measurement
  episodes.jsonl    all episodes of the measurements before and after, and some of each update
  curve.png         how the score developed
  report.json       before and after, see `TrainingReport`
  checkpoints/      everything needed to go on
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec

from marl_gem.errors import CheckpointError, ConfigError, JournalError
from marl_gem.runs.configuration import differences
from marl_gem.runs.files import explained, read_json_file, replacing, replacing_folder, write_json
from marl_gem.runs.folder import CHECKPOINTS, CONFIG, EPISODES, METRICS, REPORT, is_empty, updates_of, write_config
from marl_gem.runs.lock import run_lock
from marl_gem.runs.stored_index import write_index
from marl_gem.trainers import checkpoint
from marl_gem.trainers.check import check
from marl_gem.trainers.config import parse, read_config
from marl_gem.trainers.curve import draw_curve
from marl_gem.trainers.imitation import warm_up
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.measurement import Matchup, Measurement, measure, stored_matchups, stored_measurement
from marl_gem.trainers.memory_plan import MemoryPlan
from marl_gem.trainers.metrics import MetricsLog, Stage, read_metrics
from marl_gem.trainers.sections import MACHINE_FIELDS, TrainConfig
from marl_gem.trainers.start import start
from marl_gem.trainers.starting_point import imitators, pinned, with_pins
from marl_gem.trainers.trackers import Trackers, check_trackers
from marl_gem.types import Episode

CURVE = "curve.png"
DRAWN_EVERY = 10.0
"""The curve is drawn anew after a measurement, if the last time is so many seconds ago, and at the end."""


class Progress(NamedTuple):
    """How far a run is: step `done` of `total` in a stage, with what was measured."""

    stage: Stage | Literal["server"]
    done: int
    total: int
    metrics: dict[str, Any]


class TrainingReport(msgspec.Struct, frozen=True):
    """The content of report.json."""

    # What was measured before the first update, and after the last one.
    before: Measurement
    after: Measurement
    # With phases: each seating at the end of the phase in which the policies held these seats.
    phase_ends: list[Matchup]
    # Wall time of warm start and updates, in seconds, without measuring.
    seconds: float
    # The version of this layout.
    format: int = 2
    # For each model whose server did not take some fields of requests, such as "seed", these fields.
    unsent: dict[str, list[str]] = {}


class TrainingRun:
    """A run in its folder: `start` or `resume` one, iterate over `work()`, then read `report`."""

    def __init__(self, folder: Path, config: TrainConfig, loop: TrainingLoop | None = None) -> None:
        self.folder = folder
        self.config = config
        self.loop = loop
        self.report: TrainingReport | None = None
        self._stop_serving: Callable[[], None] = lambda: None
        self.memory: MemoryPlan | None = None
        """What a new run needs of memory."""
        self._drawn = time.monotonic()

    @classmethod
    def start(cls, folder: Path, config: TrainConfig) -> TrainingRun:
        """A new run in a new folder.

        Raises:
            ConfigError: the folder is not empty.
            ConfigError, RegistryError, MissingPackage: see `check`; nothing has been written then.
        """
        memory = check(config)
        config = pinned(config)
        if not is_empty(folder):
            raise ConfigError(
                f"{folder} holds something already: go on with it (marl-gem train --resume {folder}), "
                "or choose another name"
            )
        write_config(folder, msgspec.to_builtins(config))
        run = cls(folder, config)
        run.memory = memory
        return run

    @classmethod
    def resume(cls, folder: Path, wanted: TrainConfig | None = None, *, updates: int | None = None) -> TrainingRun:
        """Go on with a run at its newest checkpoint, or from its beginning if it has none yet.

        Args:
            folder: the run's.
            wanted: the configuration the caller has in mind; it must be the run's, but for `updates` and what says how
                and where it computes, see `MACHINE_FIELDS`.
            updates: how many updates the run is to have in all, where that changes. What is trained stays as it is.
                Learning rate and KL of the remaining updates are those of a run that was planned so long.

        Raises:
            ConfigError: there is no run, `wanted` differs (the message lists where), or it has had more updates.
            CheckpointError: its newest checkpoint is damaged, or its metrics end before that.
        """
        config = read_config(folder)
        _check_same(folder, config, wanted, (*MACHINE_FIELDS, *([] if updates is None else ["training.updates"])))
        if wanted is not None:
            config = _on_machine(config, wanted)
        check_trackers(config.trackers)
        if updates is not None:
            config = _with_updates(folder, config, updates)
        if not checkpoint.checkpoints(folder / CHECKPOINTS):
            return cls(folder, config)
        loop = checkpoint.load(folder, config)
        recorded = {row["update"] for row in read_metrics(folder) if row["stage"] != "imitation"}
        if not all(update in recorded for update in range(loop.updates + 1)):
            raise CheckpointError(
                f"{folder / METRICS} lacks some of the {loop.updates} updates of the newest checkpoint. Put the file "
                "back, or start a new run under another name"
            )
        return cls(folder, config, loop)

    def work(self) -> Iterator[Progress]:
        """Do what is left of the run, and yield the progress after every step.

        May be interrupted at any time: what is on disk then can be resumed.

        Raises:
            JournalError: another process works on this run, or the folder cannot be written.
        """
        with run_lock(self.folder) as lock:
            self._settle_length()
            done = self.loop.updates if self.loop else -1
            trackers = Trackers(self.folder, self.config, done)
            log = MetricsLog(self.folder, done, lock, trackers.log)
            try:
                trackers.start()
                if self.loop is not None:
                    yield from self._serve(self.loop)
                loop = self.loop or (yield from self._begin(log))
                try:
                    yield from self._train(log, loop)
                finally:
                    loop.close()
                yield from self._finish(log, loop)
            except BaseException:
                with contextlib.suppress(JournalError):  # what ended the run says more
                    self._draw(log)
                raise
            finally:
                self._stop_serving()
                trackers.finish()
            self._draw(log)

    def _serve(self, loop: TrainingLoop) -> Iterator[Progress]:
        """Let a server answer for the policies, if the configuration says so."""
        if self.config.sampler == "in_process":
            return
        from marl_gem.trainers.serving import Serving  # needs aiohttp

        serving = Serving(self.config, self.folder)
        self._stop_serving = serving.stop
        patience = round(self.config.vllm.patience)
        for seconds in serving.start(loop):
            yield Progress("server", min(seconds, patience), patience, {})

    def _settle_length(self) -> None:
        """Keep the configuration as it is now, and remove the report of a run that goes on after its end."""
        if read_config(self.folder) != self.config:
            write_config(self.folder, msgspec.to_builtins(self.config))
        if self.loop is None or self.loop.updates < self.config.training.updates:
            with explained(self.folder / REPORT, "remove"):
                (self.folder / REPORT).unlink(missing_ok=True)

    def save(self) -> None:
        """After an interruption: keep the last complete update."""
        if self.loop is not None:
            checkpoint.save(self.folder / CHECKPOINTS, self.loop)

    def _draw(self, log: MetricsLog) -> None:
        """Raises JournalError if the picture cannot be written."""
        self._drawn = time.monotonic()
        with explained(self.folder / CURVE, "write to"), replacing(self.folder / CURVE) as draft:
            draw_curve(
                log.rows,
                title=self.config.title,
                score="score" if self.config.is_self_play else "success",
                target=draft,
                changes=[phase.start for phase in self.config.phases],
            )

    def _begin(self, log: MetricsLog) -> Generator[Progress, None, TrainingLoop]:
        """Make the policies, warm them up and measure them."""
        begun = time.monotonic()
        loop, demonstrations = start(self.config)
        total = self.config.imitation.steps * len(imitators(self.config, loop.learners))
        steps = warm_up(self.config, loop.phases, loop.learners, demonstrations) if total else iter(())
        for step, metrics in enumerate(steps, 1):
            if step % 10 == 0 or step == total:
                log.write(0, "imitation", {"step": step, **metrics, "seconds": time.monotonic() - begun})
                yield Progress("imitation", step, total, metrics)
        seconds = time.monotonic() - begun
        yield from self._serve(loop)
        yield Progress("before", 0, 1, {})
        measured, episodes = measure(loop, self.config.evaluation.final_episodes, "final", analyse=True, partners=True)
        first = [matchup.score for matchup in measured.matchups[: len(loop.specs)]]
        row = {**_score(measured), **({} if self.config.is_self_play else {"first_score": fmean(first)})}
        log.write(0, "before", {**row, "measurement": msgspec.to_builtins(measured), "seconds": seconds}, episodes)
        checkpoint.save(self.folder / CHECKPOINTS, loop)
        self.loop = loop
        yield Progress("before", 1, 1, log.rows[-1])
        return loop

    def _train(self, log: MetricsLog, loop: TrainingLoop) -> Iterator[Progress]:
        """The updates, some of them followed by a measurement, and checkpoints."""
        training, evaluation = self.config.training, self.config.evaluation
        while loop.updates < training.updates:
            begun, phase = time.monotonic(), loop.phase
            metrics, episodes = loop.update()
            metrics["seconds"] = log.rows[-1]["seconds"] + time.monotonic() - begun
            if loop.updates == phase.end < training.updates:
                measured, _ = measure(loop, evaluation.final_episodes, "final", [phase])
                metrics |= {**_score(measured), "matchups": msgspec.to_builtins(measured.matchups)}
            elif loop.updates % evaluation.probe_every == 0:
                measured, _ = measure(loop, evaluation.probe_episodes, f"probe {loop.updates}", [phase])
                metrics |= _score(measured)
            log.write(loop.updates, "training", metrics, episodes[: training.keep_episodes])
            if "score" in metrics and time.monotonic() - self._drawn > DRAWN_EVERY:
                self._draw(log)
            if loop.updates % training.save_every == 0 or loop.updates == training.updates:
                checkpoint.save(self.folder / CHECKPOINTS, loop)
            yield Progress("training", loop.updates, training.updates, metrics)

    def _finish(self, log: MetricsLog, loop: TrainingLoop) -> Iterator[Progress]:
        """Measure the policies again, and write the report."""
        yield Progress("after", 0, 1, {})
        measured, episodes = measure(loop, self.config.evaluation.final_episodes, "final", analyse=True, partners=True)
        row = {**_score(measured), "measurement": msgspec.to_builtins(measured)}
        log.write(loop.updates, "after", {**row, "seconds": log.rows[-1]["seconds"]}, episodes)
        before = next(row for row in log.rows if row["stage"] == "before")
        title = self.config.title
        ended = [matchup for row in log.rows if row["stage"] == "training" for matchup in stored_matchups(row, title)]
        self.report = TrainingReport(
            before=stored_measurement(before, title),
            after=measured,
            phase_ends=[
                *ended,
                *([] if self.config.is_self_play else measured.matchups[-len(loop.specs) :]),
            ],
            seconds=round(log.rows[-1]["seconds"], 1),
            unsent=_unsent(episodes),
        )
        write_index(self.folder / EPISODES)
        write_json(self.folder / REPORT, msgspec.to_builtins(self.report))
        yield Progress("after", 1, 1, log.rows[-1])


def _score(measured: Measurement) -> dict[str, Any]:
    """What a row of metrics says of the score."""
    return {"score": measured.score, "score_interval": measured.score_interval}


def branch(source: Path, updates: int, folder: Path) -> None:
    """Copy a run as it was at one of its checkpoints into a new folder, where it can be resumed.

    Raises:
        ConfigError: the folder is not empty, or there is no run.
        CheckpointError: there is no such checkpoint.
        JournalError: the copy cannot be written.
    """
    read_config(source)
    last = checkpoint.find(source, updates)
    if not is_empty(folder):
        raise ConfigError(f"{folder} holds something already; choose another name")
    later = {path.name for path in checkpoint.checkpoints(last.parent) if path.name > last.name}
    with explained(folder, "write to"), replacing_folder(folder) as draft:
        for name in (CONFIG, METRICS, EPISODES):  # of the last two, later rows are left out when the run is resumed
            if (source / name).exists():
                shutil.copyfile(source / name, draft / name)
        shutil.copytree(last.parent, draft / CHECKPOINTS, ignore=lambda _, names: {*later, *_drafts(names)})


def _drafts(names: Sequence[str]) -> set[str]:
    return {name for name in names if name.startswith(".update-")}


def _check_same(folder: Path, config: TrainConfig, wanted: TrainConfig | None, ignore: Sequence[str]) -> None:
    if wanted is None:
        return
    was, now = msgspec.to_builtins(config), msgspec.to_builtins(with_pins(wanted, config))
    if changes := differences(was, now, ignore=ignore):
        longer = any(change.startswith("training.updates ") for change in changes)
        advice = f"; for another number of updates: marl-gem train --resume {folder} --updates N" if longer else ""
        raise ConfigError(
            f"{folder} was started with another configuration: {'; '.join(changes)}. Resume it without these "
            f"options, or start a new run under another name{advice}"
        )


def _on_machine(config: TrainConfig, wanted: TrainConfig) -> TrainConfig:
    """The configuration with how and where `wanted` computes."""
    replace, training = msgspec.structs.replace, wanted.training
    return replace(
        config,
        device=wanted.device,
        threads=wanted.threads,
        trackers=wanted.trackers or config.trackers,
        training=replace(
            config.training,
            micro_batch_tokens=training.micro_batch_tokens,
            activation_checkpointing=training.activation_checkpointing,
            packing=training.packing,
        ),
    )


def _with_updates(folder: Path, config: TrainConfig, updates: int) -> TrainConfig:
    """The configuration with another number of updates."""
    there = checkpoint.checkpoints(folder / CHECKPOINTS)
    done = updates_of(there[-1]) if there else 0
    if updates < done:
        raise ConfigError(
            f"{folder} has had {done} updates, more than {updates}; to go back, resume from an earlier checkpoint "
            f"under a new name, as in marl-gem train --resume {folder}@{updates} --name NAME"
        )
    values = msgspec.to_builtins(config)
    values["training"]["updates"] = updates
    return parse(values, f"{folder} with {updates} updates")


def _unsent(episodes: Sequence[Episode]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for episode in episodes:
        for turn in episode.turns:
            if turn.response.unsent:
                found.setdefault(episode.models[turn.agent], set()).update(turn.response.unsent)
    return {model: sorted(fields) for model, fields in sorted(found.items())}


def read_report(folder: Path) -> TrainingReport:
    """The report of a finished run.

    Raises:
        ConfigError: there is none, or it was written by an older version.
    """
    path = folder / REPORT
    try:
        return msgspec.convert(read_json_file(path), TrainingReport)
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {REPORT}: the run has not ended; marl-gem train --resume {folder}"
        ) from None
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. Remove it and write it anew with --resume") from error
