"""Everything a self-play run needs to go on, on disk, whole or not at all.

    checkpoints/update-000120/
      state.json               what this is: scenario, configuration, updates, and every file's size and hash
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
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from marl_gem.agents import LLMPolicy
from marl_gem.errors import CheckpointError
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.trainers.config import TrainConfig, parse
from marl_gem.trainers.self_play import SelfPlay, Weights, load_pretrained, make_policy

FORMAT = 1
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
        shutil.rmtree(draft, ignore_errors=True)
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
    model, tokenizer = load_pretrained(str(path / "model"))
    try:
        others = load_file(path / "others.safetensors")
        learned = load_file(path / "learner.safetensors")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: {error}. Remove it, so that the one before it is used") from error
    reference = None
    if state["reference"]:
        reference = copy.deepcopy(model)
        reference.load_state_dict(_part(others, "reference"))
    pool = [(version, _part(others, f"version-{version}")) for version in state["pool"]]
    run = SelfPlay(config, model, tokenizer, updates=state["updates"], pool=pool, reference=reference)
    _restore(run.learner.optimizer, learned)
    return run


def load_policy(path: Path, scenario: str) -> LLMPolicy:
    """The policy in a checkpoint, ready to sit in any seat of its scenario.

    Raises:
        CheckpointError: there is none, it is damaged, or it was trained on another scenario.
    """
    path = newest(path)
    state = read_state(path)
    if state["scenario"] != scenario:
        raise CheckpointError(f"{path} was trained on {state['scenario']} and cannot play {scenario}")
    config = parse(state["config"], f"{path}/state.json")
    run = path.resolve().parent.parent.name
    llm = TransformersLLM(*load_pretrained(str(path / "model")), name=run)
    llm.version = state["updates"]
    return make_policy(config.policy, llm)


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
            f"{path} has format {state.get('format')!r}, but this marl_gem reads {FORMAT}; use the one that wrote it"
        )
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{path} is damaged: {name} is missing. {advice}")
        if file.stat().st_size != size or _digest(file) != digest:
            raise CheckpointError(f"{path} is damaged: {name} is cut short or changed. {advice}")
    return state


def _write(draft: Path, run: SelfPlay) -> None:
    run.llm.model.save_pretrained(draft / "model")
    run.llm.tokenizer.save_pretrained(draft / "model")
    others = {f"version-{version}/{name}": value for version, weights in run.pool for name, value in weights.items()}
    if run.reference is not None:
        others |= {f"reference/{name}": value for name, value in run.reference.state_dict().items()}
    save_file({name: value.clone() for name, value in others.items()}, draft / "others.safetensors")
    save_file(_flattened(run.learner.optimizer), draft / "learner.safetensors")
    files = sorted(file for file in draft.rglob("*") if file.is_file())
    state = {
        "format": FORMAT,
        "scenario": run.config.scenario,
        "updates": run.updates,
        "pool": [version for version, _ in run.pool],
        "reference": run.reference is not None,
        "config": msgspec.to_builtins(run.config),
        "files": {str(file.relative_to(draft)): [file.stat().st_size, _digest(file)] for file in files},
    }
    (draft / "state.json").write_text(json.dumps(state, indent=1), "utf-8")
    for file in [*files, draft / "state.json", draft / "model", draft]:
        _flush(file)


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
