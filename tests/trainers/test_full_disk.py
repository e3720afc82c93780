"""What cannot be written, or has diverged: the message says so, no draft is left, the last checkpoint is complete."""

from __future__ import annotations

import errno
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from marl_gem.errors import CheckpointError, JournalError, TrainingError
from marl_gem.trainers import checkpoint
from marl_gem.trainers.backends.local import LocalBackend
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.start import start
from tests.chaos.checkpoints import no_larger_files
from tests.trainers.support import kuhn, weights, work

SMALL = (
    *("imitation.steps=1", "imitation.episodes=10", "policy.width=8", "training.episodes=8"),
    *("training.updates=2", "training.save_every=1", "evaluation.final_episodes=2", "evaluation.probe_episodes=1"),
)


@pytest.fixture(scope="module")
def loop() -> TrainingLoop:
    found, _ = start(kuhn("imitation.steps=0", "policy.width=8", "training.episodes=8"))
    return found


def left_behind(folder: Path) -> list[str]:
    """Drafts."""
    return [path.name for path in folder.rglob("*") if path.name.startswith(".") and path.name != ".lock"]


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_that_cannot_be_written_changes_nothing(loop: TrainingLoop, tmp_path: Path) -> None:
    """Each writer in turn: of the weights, of the tokenizer (whose library raises a bare Exception), of JSON."""
    folder = tmp_path / "checkpoints"
    loop.updates = 0
    written = sizes(checkpoint.save(folder, loop))
    assert written["model.safetensors"] < written["tokenizer.json"]
    loop.updates = 1
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        with no_larger_files(written[name] - 1), pytest.raises(CheckpointError) as refused:
            checkpoint.save(folder, loop)
        assert "cannot write a checkpoint to" in str(refused.value) and "File too large" in str(refused.value)
        assert f"go on with marl-gem train --resume {tmp_path}" in str(refused.value)
        assert [path.name for path in folder.iterdir()] == ["update-000000"]
        assert checkpoint.load(folder).updates == 0


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was stopped before its last update."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    work(TrainingRun.start(folder, kuhn(*SMALL)), until=1)
    return folder


def fill_up(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As if the disk had filled up when this file, or its draft, is opened."""
    opened = os.open

    def full(path: Any, *arguments: Any, **options: Any) -> int:
        if name in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", full)


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl", "curve.png", "report.json"])
def test_a_run_on_a_full_disk_stops_with_a_message_and_can_be_resumed(
    interrupted: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(interrupted, tmp_path / "run"))
    with monkeypatch.context() as patch:
        fill_up(patch, name)
        with pytest.raises(JournalError, match=f"cannot write to .*{name}: No space left on device"):
            work(TrainingRun.resume(folder))
    assert not left_behind(folder)
    assert checkpoint.load(folder).updates >= 1
    work(TrainingRun.resume(folder))
    assert (folder / "report.json").exists()


def test_a_run_that_cannot_begin_on_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_up(monkeypatch, "config.json")
    with pytest.raises(JournalError, match=r"cannot write to .*config.json: No space left on device"):
        TrainingRun.start(tmp_path / "run", kuhn(*SMALL))
    assert not left_behind(tmp_path)


def test_a_picture_that_cannot_be_drawn_does_not_hide_what_ended_the_run(
    interrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(interrupted, tmp_path / "run"))
    fill_up(monkeypatch, "curve.png")
    training = TrainingRun.resume(folder)
    assert training.loop is not None
    monkeypatch.setattr(training.loop, "update", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        work(training)


# Training that has diverged


def spoil(loop: TrainingLoop, part: str) -> None:
    """Put a number that is not finite into a part of what is saved."""
    (learner,) = loop.learners.values()
    backend = learner.backend
    assert isinstance(backend, LocalBackend)
    with torch.no_grad():
        if part == "weights":
            next(backend.model.parameters()).view(-1)[3] = math.nan
        elif part == "optimizer":
            state = backend.optimizer.state[next(backend.model.parameters())]
            state["exp_avg_sq"].view(-1)[0] = math.inf
        elif part == "reference":
            assert backend.reference is not None
            next(iter(backend.reference.values())).view(-1)[0] = -math.inf
        else:
            next(iter(learner.pool.snapshots[0].weights.values())).view(-1)[0] = math.nan


@pytest.mark.parametrize("part", ["weights", "optimizer", "reference", "version-0"])
def test_a_training_that_has_diverged_does_not_replace_its_last_checkpoint(part: str, tmp_path: Path) -> None:
    loop, _ = start(kuhn("imitation.steps=0", "imitation.episodes=10", "policy.width=8", "training.episodes=8"))
    loop.update()
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, loop)
    before = weights(checkpoint.load(folder))
    loop.update()
    spoil(loop, part)
    for _ in range(3):
        with pytest.raises(TrainingError) as refused:
            checkpoint.save(folder, loop)
    message = str(refused.value)
    assert f"policy has diverged: {part}/" in message and "not finite after update 2. No checkpoint was" in message
    assert f"the last one is {folder / 'update-000001'}. Start a new run with a lower training.learning_rate" in message
    assert f"policy.start_from={tmp_path}@1 if it is to begin there" in message
    assert [path.name for path in folder.iterdir()] == ["update-000001"]
    assert all(torch.equal(value, before[name]) for name, value in weights(checkpoint.load(folder)).items())


def test_a_step_into_numbers_that_are_not_finite_is_noticed_at_once(tmp_path: Path) -> None:
    loop, _ = start(kuhn("imitation.steps=0", "training.episodes=8", "training.learning_rate=1e38"))
    with pytest.raises(TrainingError, match=r"after this step .* the training has diverged"):
        for _ in range(5):
            loop.update()
