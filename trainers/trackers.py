"""What a run measures, sent to TensorBoard, trackio or Weights & Biases as well, each behind the same three calls.

    trackers = ["tensorboard"]        # in a training file; --tracker tensorboard on the command line

Each update is sent once, also where a run is resumed from before it. A tracker that fails is left out from then on,
with a warning; the run goes on.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from marl_gem.errors import ConfigError
from marl_gem.runs.files import read_json_file, write_json
from marl_gem.trainers.sections import TrainConfig

STATE = "trackers.json"
"""In a run's folder: for each tracker the id of the run there, and the last update that was sent."""

PROJECT = "marl_gem"


class Tracker(Protocol):
    """One tracker of one run."""

    def start(self, config: Mapping[str, Any]) -> None:
        """Begin, or go on with the run."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of an update."""
        ...

    def finish(self) -> None:
        """Send what is left."""
        ...


class TensorBoardTracker:
    """Event files in `tensorboard/` of the run's folder.

    TensorBoard itself leaves out what an earlier process wrote of updates that come again (`purge_step`).
    """

    sends_again = True

    def __init__(self, folder: Path, _: str, done: int) -> None:
        self._folder, self._done = folder / "tensorboard", done

    def start(self, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(self._folder), purge_step=self._done + 1)  # type: ignore[no-untyped-call]
        self._writer.add_text("config", f"    {config}")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()


class TrackioTracker:
    """A run of trackio's project `marl_gem`, on this machine unless trackio is set up otherwise."""

    sends_again = False

    def __init__(self, folder: Path, identity: str, _: int) -> None:
        self._name = f"{folder.name}-{identity}"

    def start(self, config: Mapping[str, Any]) -> None:
        self._trackio: Any = importlib.import_module("trackio")
        self._trackio.init(project=PROJECT, name=self._name, config=dict(config), resume="allow", embed=False)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trackio.log(dict(metrics), step=step)

    def finish(self) -> None:
        self._trackio.finish()


class WandbTracker:
    """A run of Weights & Biases, offline in the run's folder unless WANDB_MODE says otherwise."""

    sends_again = False

    def __init__(self, folder: Path, identity: str, _: int) -> None:
        self._folder, self._id = folder, identity

    def start(self, config: Mapping[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=self._folder.name,
            id=self._id,
            dir=str(self._folder),
            config=dict(config),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
            settings=wandb.Settings(silent=True),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def finish(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[Path, str, int], Any]] = {
    "tensorboard": TensorBoardTracker,
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
}


def check_trackers(names: Sequence[str]) -> None:
    """Look whether the trackers' packages are installed.

    Raises:
        ConfigError: one is not; the message has the command that installs it.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:  # each is called as its package
            raise ConfigError(f"trackers: {name} is not installed. Install it with: pip install {name}")


class Trackers:
    """The trackers of a run, as one.

    Args:
        folder: the run's.
        config: the run's.
        done: the updates of the checkpoint that the run goes on from; -1 for a new run.
    """

    def __init__(self, folder: Path, config: TrainConfig, done: int) -> None:
        self._folder, self._config = folder, config
        self._state = _read_state(folder)
        self._active: dict[str, Any] = {}
        for name in config.trackers:
            state = self._state.setdefault(name, {"id": secrets.token_hex(4), "update": -1})
            self._active[name] = TRACKERS[name](folder, state["id"], done)
            if self._active[name].sends_again:
                state["update"] = min(state["update"], done)

    def start(self) -> None:
        """Begin with all of them."""
        if self._active:
            self._save()
            config = msgspec.to_builtins(self._config)
            self._each(lambda tracker: tracker.start(config))

    def log(self, row: Mapping[str, Any]) -> None:
        """Send a row of metrics: its numbers, as of its update."""
        update, training = row["update"], row["stage"] == "training"
        if not self._active or not (training or row["stage"] == "before"):
            return
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
        metrics = {name: value for name, value in numbers.items() if name not in ("update", "episodes")}
        new = [name for name in self._active if update > self._state[name]["update"]]
        self._each(lambda tracker: tracker.log(update, metrics), new)
        for name in new:
            self._state[name]["update"] = update
        self._save()

    def finish(self) -> None:
        """End all of them."""
        self._each(lambda tracker: tracker.finish())

    def _each(self, action: Callable[[Any], None], names: Sequence[str] | None = None) -> None:
        for name in list(self._active) if names is None else names:
            try:
                action(self._active[name])
            except Exception as error:  # whatever a tracker raises
                del self._active[name]
                self._warn(name, error)

    def _save(self) -> None:
        if self._state:
            with contextlib.suppress(Exception):  # where the run itself cannot write, it says so
                write_json(self._folder / STATE, self._state)

    def _warn(self, name: str, error: Exception) -> None:
        warnings.warn(
            f"the tracker {name} failed, and the run goes on without it: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def _read_state(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        stored = read_json_file(folder / STATE)
        return {
            name: {"id": str(values["id"]), "update": int(values["update"])}
            for name, values in stored.items()
            if name in TRACKERS
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
