"""Everything a self-play run needs to go on, on disk, whole or not at all.

    checkpoints/update-000120/
      state.json                 what this is: scenario, configuration, updates, and every file's size and hash
      POLICY/                    one folder for every policy that learns
        model/                   weights and tokenizer, in the layout of transformers
        learner.safetensors      the optimizer's state
        others.safetensors       the reference and the older versions

A checkpoint is written under another name, flushed to disk and then renamed, so that one that is there is
complete. Nothing is pickled. All random choices follow from the seed and the number of updates, so no
generator's state is kept; a resumed run equals an unbroken one.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from marl_gem.errors import CheckpointError
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.policies import LLMPolicy, PolicyPerSeat
from marl_gem.trainers.config import TrainConfig, parse
from marl_gem.trainers.seating import ONE, Phase, phases, training_ground
from marl_gem.trainers.self_play import SelfPlay
from marl_gem.trainers.trainee import Trainee, Weights, llm_policy, load_pretrained

FORMAT = 2
KEEP = 2


def save(folder: Path, run: SelfPlay) -> Path:
    """Write a checkpoint into `folder`, and remove all but the newest two.

    Returns:
        the checkpoint's own folder.

    Raises:
        CheckpointError: it cannot be written; the earlier ones are as they were.
    """
    target = folder / f"update-{run.updates:06d}"
    draft = folder / f".{target.name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(".update-*"):  # of a process that was killed while it wrote
            shutil.rmtree(unfinished)
        draft.mkdir()
        _write(draft, run)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        _flush(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise CheckpointError(f"cannot write a checkpoint to {target}: {error}. Free the space and resume") from error
    for old in found(folder)[:-KEEP]:
        shutil.rmtree(old)
    return target


def load(path: Path, config: TrainConfig | None = None) -> SelfPlay:
    """Read a checkpoint, and go on where it was written.

    Args:
        path: a checkpoint, or a folder of checkpoints or a run's folder, which give their newest.
        config: what the checkpoint must have been written under; None takes what it says.

    Raises:
        CheckpointError: there is none, it is damaged, or it belongs to another scenario.
    """
    path = newest(path)
    state = read_state(path)
    written = parse(state["config"], f"{path}/state.json")
    if config is not None and config.scenario != written.scenario:
        raise CheckpointError(f"{path} was trained on {written.scenario}, not on {config.scenario}")
    config = config or written
    if config.threads:
        torch.set_num_threads(config.threads)
    trainees = {name: _read(path / name, told, config) for name, told in state["policies"].items()}
    return SelfPlay(config, trainees, updates=state["updates"])


def load_policy(path: Path, scenario: str) -> LLMPolicy | PolicyPerSeat:
    """What a checkpoint's run has learned: one policy for all seats, or one for each seat that it trained.

    Raises:
        CheckpointError: there is none, it is damaged, or it was trained on another scenario.
    """
    path = newest(path)
    state = read_state(path)
    if state["scenario"] != scenario:
        raise CheckpointError(f"{path} was trained on {state['scenario']} and cannot play {scenario}")
    config = parse(state["config"], f"{path}/state.json")
    run = path.resolve().parent.parent.name
    policies = {}
    for name, told in state["policies"].items():
        called = f"{run}/{name}" if config.seats else run
        llm = TransformersLLM(*load_pretrained(str(path / name / "model")), name=called)
        llm.version = told["updates"]
        policies[name] = llm_policy(config.policy, llm)
    if not config.seats:
        return policies[ONE]
    held = _holders(phases(config, training_ground(config).agents), state["updates"])
    return PolicyPerSeat(f"{run}@{state['updates']}", {seat: policies[name] for seat, name in held.items()})


def newest(path: Path) -> Path:
    """The newest checkpoint in a run's folder, in a folder of checkpoints, or `path` itself if it is one.

    Raises:
        CheckpointError: there is none.
    """
    if (path / "state.json").exists():
        return path
    checkpoints = found(path / "checkpoints") or found(path)
    if not checkpoints:
        raise CheckpointError(f"there is no checkpoint in {path}; name a run's folder, such as runs/demo")
    return checkpoints[-1]


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("update-*"))


def read_state(path: Path) -> dict[str, Any]:
    """A checkpoint's description, after checking that every file is there and as it was written.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    advice = "Remove it, so that the one before it is used"
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text("utf-8"))
        files = state["files"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is no checkpoint, or its state.json is damaged: {error!r}. {advice}") from error
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {state.get('format')!r}, but this marl_gem reads {FORMAT}; use the marl_gem that wrote "
            "it, or train anew under another name"
        )
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{path} is damaged: {name} is missing. {advice}")
        if file.stat().st_size != size or _digest(file) != digest:
            raise CheckpointError(f"{path} is damaged: {name} is cut short or changed. {advice}")
    return state


def _holders(all_phases: Sequence[Phase], updates: int) -> dict[str, str]:
    """For each seat that is trained the policy that trained in it last, or will be the first to."""
    begun = [phase for phase in all_phases if phase.start < updates]
    held: dict[str, str] = {}
    for phase in [*reversed(all_phases[len(begun) :]), *begun]:  # the later in this list, the more it counts
        held |= phase.learning
    return held


def _write(draft: Path, run: SelfPlay) -> None:
    policies = {name: _write_policy(draft / name, trainee) for name, trainee in run.trainees.items()}
    files = sorted(file for file in draft.rglob("*") if file.is_file())
    state = {
        "format": FORMAT,
        "scenario": run.config.scenario,
        "updates": run.updates,
        "policies": policies,
        "config": msgspec.to_builtins(run.config),
        "files": {str(file.relative_to(draft)): [file.stat().st_size, _digest(file)] for file in files},
    }
    (draft / "state.json").write_text(json.dumps(state, indent=1), "utf-8")
    folders = [folder for folder in draft.rglob("*") if folder.is_dir()]
    for path in [*files, draft / "state.json", *folders, draft]:
        _flush(path)


def _write_policy(folder: Path, trainee: Trainee) -> dict[str, Any]:
    """Write a policy, and say what its files do not."""
    trainee.llm.model.save_pretrained(folder / "model")
    trainee.llm.tokenizer.save_pretrained(folder / "model")
    others = {f"version-{version}/{name}": value for version, own in trainee.pool for name, value in own.items()}
    if trainee.reference is not None:
        others |= {f"reference/{name}": value for name, value in trainee.reference.state_dict().items()}
    save_file({name: value.clone() for name, value in others.items()}, folder / "others.safetensors")
    save_file(_flattened(trainee.learner.optimizer), folder / "learner.safetensors")
    return {
        "told": trainee.name,
        "updates": trainee.updates,
        "pool": [version for version, _ in trainee.pool],
        "reference": trainee.reference is not None,
    }


def _read(folder: Path, state: dict[str, Any], config: TrainConfig) -> Trainee:
    model, tokenizer = load_pretrained(str(folder / "model"))
    try:
        others = load_file(folder / "others.safetensors")
        learned = load_file(folder / "learner.safetensors")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{folder.parent} is damaged: {error}. Remove it, so that the one before it is used"
        ) from error
    reference = None
    if state["reference"]:
        reference = copy.deepcopy(model)
        reference.load_state_dict(_part(others, "reference"))
    pool = [(version, _part(others, f"version-{version}")) for version in state["pool"]]
    trainee = Trainee(state["told"], config, model, tokenizer, updates=state["updates"], pool=pool, reference=reference)
    _restore(trainee.learner.optimizer, learned)
    return trainee


def _flattened(optimizer: torch.optim.Optimizer) -> Weights:
    """The optimizer's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{place}/{name}": value.clone() for place, values in state.items() for name, value in values.items()}


def _restore(optimizer: torch.optim.Optimizer, tensors: Weights) -> None:
    state: dict[int, Weights] = {}
    for name, value in tensors.items():
        place, _, key = name.partition("/")
        state.setdefault(int(place), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _part(tensors: Weights, prefix: str) -> Weights:
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.partition("/")[0] == prefix}


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
