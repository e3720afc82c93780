"""Trackers: each update is sent once, and what fails ends nothing. Real ones where they are installed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from marl_gem.errors import ConfigError
from marl_gem.trainers.run import TrainingRun
from tests.trainers.support import kuhn, rows, work

pytestmark = pytest.mark.slow

SMALL = (
    *("training.updates=4", "training.episodes=8", "training.save_every=2", "imitation.steps=1"),
    *("evaluation.final_episodes=2", "evaluation.probe_episodes=2", "evaluation.probe_every=2"),
)


class FakeWandb(ModuleType):
    """Records calls; raises where it is told to."""

    def __init__(self, raises: str = "") -> None:
        super().__init__("wandb")
        self.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
        self.raises = raises
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def Settings(self, **options: Any) -> dict[str, Any]:
        return options

    def init(self, **options: Any) -> FakeWandb:
        self._may_raise("init")
        self.begun.append(options)
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self._may_raise("log")
        self.logged.append((step, metrics))

    def finish(self) -> None:
        self._may_raise("finish")
        self.finished += 1

    def _may_raise(self, call: str) -> None:
        if call == self.raises:
            raise OSError(f"no network in {call}")


def installed(monkeypatch: pytest.MonkeyPatch, raises: str = "") -> FakeWandb:
    fake = FakeWandb(raises)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return fake


def interrupted_and_resumed(folder: Path, tracker: str) -> None:
    work(TrainingRun.start(folder, kuhn(*SMALL, f"trackers=['{tracker}']")), until=3)  # the checkpoint is of update 2
    work(TrainingRun.resume(folder))


def test_each_update_is_sent_once_also_where_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = installed(monkeypatch)
    interrupted_and_resumed(tmp_path / "run", "wandb")
    assert [step for step, _ in fake.logged] == [0, 1, 2, 3, 4]
    table = {row["update"]: row for row in rows(tmp_path / "run") if row["stage"] in ("before", "training")}
    for step, metrics in fake.logged:
        assert metrics["score"] == table[step]["score"] if step % 2 == 0 else "score" not in metrics
        assert step == 0 or metrics["return/player_0"] == table[step]["return/player_0"]
    first, second = fake.begun
    assert first["id"] == second["id"] and first["mode"] == "offline" and fake.finished == 2
    assert first["config"]["training"]["updates"] == 4 and first["dir"] == str(tmp_path / "run")


@pytest.mark.parametrize("call", ["init", "log", "finish"])
def test_a_tracker_that_fails_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    installed(monkeypatch, raises=call)
    with pytest.warns(RuntimeWarning, match=f"tracker wandb failed, .* goes on without it: OSError: no .* in {call}"):
        work(TrainingRun.start(tmp_path / "run", kuhn(*SMALL, "trackers=['wandb']")))
    assert (tmp_path / "run" / "report.json").exists()


def test_what_is_not_installed_is_told_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"trackers: trackio is not installed\. Install it with: pip install trackio"):
        TrainingRun.start(tmp_path / "run", kuhn("trackers=['trackio']"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="Invalid enum value 'tensorbord'"):
        kuhn("trackers=['tensorbord']")


def test_a_resumed_run_may_have_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(TrainingRun.start(tmp_path / "run", kuhn(*SMALL)), until=2)
    fake = installed(monkeypatch)
    work(TrainingRun.resume(tmp_path / "run", kuhn(*SMALL, "trackers=['wandb']")))
    assert [step for step, _ in fake.logged] == [3, 4]


# Real ones


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    accumulators = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    interrupted_and_resumed(tmp_path / "run", "tensorboard")
    found = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    expected = [row["return/player_0"] for row in rows(tmp_path / "run") if row["stage"] == "training"]
    events = found.Scalars("return/player_0")
    assert [event.step for event in events] == [1, 2, 3, 4]
    assert [event.value for event in events] == pytest.approx(expected)
    assert [event.step for event in found.Scalars("score")] == [0, 2, 4]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    work(TrainingRun.start(tmp_path / "run", kuhn(*SMALL, "trackers=['wandb']")))
    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    content = written.read_bytes()
    assert b"return/player_0" in content and b"entropy" in content


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    interrupted_and_resumed(tmp_path / "run", "trackio")
    (name,) = [run for run in storage.get_runs("marl_gem") if run.startswith("run-")]
    logs = storage.get_logs("marl_gem", name)
    assert [entry["step"] for entry in logs] == [0, 1, 2, 3, 4]
    assert all("return/player_0" in entry for entry in logs[1:])
