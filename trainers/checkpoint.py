"""Everything a training run needs to go on, on disk, complete or not at all.

    checkpoints/update-000120/
      state.json                   what this is: configuration, updates, and every file's size and hash
      POLICY/                      one folder for every policy that learns
        model/                     weights and tokenizer, in the layout of transformers
        optimizer.safetensors      the optimizer's state
        frozen.safetensors         the reference and the earlier versions

A checkpoint is written under another name, flushed to disk and then renamed. Nothing is pickled. All random choices
follow from the seed and the number of updates, so no generator's state is kept; a resumed run equals an unbroken one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from marl_gem.errors import CheckpointError
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.policies import LLMPolicy, PolicyPerSeat
from marl_gem.runs.files import replacing_folder
from marl_gem.runs.folder import CHECKPOINTS
from marl_gem.specs import ScenarioSpec
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.config import TrainConfig, parse_stored
from marl_gem.trainers.learner import Learner, load_pretrained, make_learner
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.samplers.in_process import llm_policy
from marl_gem.trainers.schedule import SHARED_POLICY, TrainingPhase, training_phases
from marl_gem.trainers.start import record_name, set_threads

FORMAT = 3
OLD_FORMAT = 2
KEEP = 2
"""How many checkpoints of a run are kept."""

MODEL, OPTIMIZER, FROZEN = "model", "optimizer.safetensors", "frozen.safetensors"
OLD_FILES = {OPTIMIZER: "learner.safetensors", FROZEN: "others.safetensors"}
"""What the files of a policy are called in the older format."""


def save(folder: Path, loop: TrainingLoop) -> Path:
    """Write a checkpoint into `folder`, and remove all but the newest two.

    Returns:
        the checkpoint's own folder.

    Raises:
        CheckpointError: it cannot be written; the earlier ones are unchanged.
    """
    target = folder / f"update-{loop.updates:06d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(".update-*"):  # of a process that was killed while it wrote
            shutil.rmtree(unfinished)
        with replacing_folder(target) as draft:
            _write(draft, loop)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write a checkpoint to {target}: {error}. Free the space and resume") from error
    for old in checkpoints(folder)[:-KEEP]:
        shutil.rmtree(old)
    return target


def load(path: Path, config: TrainConfig | None = None) -> TrainingLoop:
    """Read a checkpoint, and go on where it was written.

    Args:
        path: a checkpoint, or a folder of checkpoints or a run's folder, which give their newest.
        config: what the checkpoint must have been written under; None takes what it says.

    Raises:
        CheckpointError: there is none, it is damaged, or it belongs to another scenario.
    """
    path = newest(path)
    state = read_state(path)
    written = _config(path, state)
    if config is not None and config.title != written.title:
        raise CheckpointError(f"{path} was trained on {written.title}, not on {config.title}")
    config = config or written
    set_threads(config)
    learners = {
        name: _read_learner(path / name, name, description, config) for name, description in state["policies"].items()
    }
    return TrainingLoop(config, learners, updates=state["updates"])


def load_policy(path: Path, scenario: str) -> LLMPolicy | PolicyPerSeat:
    """What a checkpoint's run has learned: one policy for all seats, or one for each seat that it trained.

    Args:
        path: a checkpoint, or a folder of checkpoints or a run's folder, which give their newest.
        scenario: the id of the scenario that it is to play.

    Raises:
        CheckpointError: there is none, it is damaged, or it was not trained on this scenario.
    """
    path = newest(path)
    state = read_state(path)
    config = _config(path, state)
    ids = [trained.id for trained in config.scenarios]
    if scenario not in ids:
        raise CheckpointError(f"{path} was trained on {config.title} and cannot play {scenario}")
    run = path.resolve().parent.parent.name
    alone = list(state["policies"]) == [SHARED_POLICY]
    policies = {}
    for name, description in state["policies"].items():
        llm = TransformersLLM(*load_pretrained(str(path / name / MODEL)), name=run if alone else f"{run}/{name}")
        llm.version = description["updates"]
        policies[name] = llm_policy(config.policy, llm)
    if alone:
        return policies[SHARED_POLICY]
    phases = training_phases(config, [trained.spec.inspect().agents for trained in config.scenarios])
    holders = _holders(phases, ids.index(scenario), state["updates"])
    return PolicyPerSeat(f"{run}@{state['updates']}", {seat: policies[name] for seat, name in holders.items()})


def scenario_spec(path: Path, scenario: str) -> ScenarioSpec | None:
    """The scenario with this id as a checkpoint's run was trained on it; None if it was trained on others.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
    """
    path = newest(path)
    config = _config(path, read_state(path))
    return next((trained.spec for trained in config.scenarios if trained.id == scenario), None)


def newest(path: Path) -> Path:
    """The newest checkpoint in a run's folder, in a folder of checkpoints, or `path` itself if it is one.

    Raises:
        CheckpointError: there is none.
    """
    if (path / "state.json").exists():
        return path
    found = checkpoints(path / CHECKPOINTS) or checkpoints(path)
    if not found:
        raise CheckpointError(f"there is no checkpoint in {path}; name a run's folder, such as runs/demo")
    return found[-1]


def checkpoints(folder: Path) -> list[Path]:
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
    if state.get("format") not in (FORMAT, OLD_FORMAT):
        raise CheckpointError(
            f"{path} has format {state.get('format')!r}, but this marl_gem reads {OLD_FORMAT} and {FORMAT}; use the "
            "marl_gem that wrote it, or train anew under another name"
        )
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{path} is damaged: {name} is missing. {advice}")
        if file.stat().st_size != size or _digest(file) != digest:
            raise CheckpointError(f"{path} is damaged: {name} is cut short or changed. {advice}")
    return state


def _config(path: Path, state: Mapping[str, Any]) -> TrainConfig:
    return parse_stored(state["config"], f"{path}/state.json")


def _holders(phases: Sequence[TrainingPhase], scenario: int, updates: int) -> dict[str, str]:
    """For each seat that is trained the policy that trained in it last, or will be the first to."""
    begun = [phase for phase in phases if phase.start < updates]
    holders: dict[str, str] = {}
    for phase in [*reversed(phases[len(begun) :]), *begun]:  # later ones in this list count more
        holders |= phase.learning(scenario)
    return holders


def _write(draft: Path, loop: TrainingLoop) -> None:
    policies = {name: _write_learner(draft / name, learner) for name, learner in loop.learners.items()}
    files = sorted(file for file in draft.rglob("*") if file.is_file())
    state = {
        "format": FORMAT,
        "updates": loop.updates,
        "policies": policies,
        "config": msgspec.to_builtins(loop.config),
        "files": {file.relative_to(draft).as_posix(): [file.stat().st_size, _digest(file)] for file in files},
    }
    (draft / "state.json").write_text(json.dumps(state, indent=1), "utf-8")


def _write_learner(folder: Path, learner: Learner) -> dict[str, Any]:
    """Write a policy, and return what its files do not say."""
    backend, snapshots = learner.backend, learner.pool.snapshots
    backend.save_model(folder / MODEL)
    frozen = {f"version-{old.version}/{name}": value for old in snapshots for name, value in old.weights.items()}
    frozen |= {f"reference/{name}": value for name, value in (backend.reference or {}).items()}
    save_file(frozen, folder / FROZEN)
    save_file(backend.optimizer_state(), folder / OPTIMIZER)
    return {
        "updates": backend.version,
        "pool": [snapshot.version for snapshot in snapshots],
        "reference": backend.reference is not None,
    }


def _read_learner(folder: Path, name: str, description: Mapping[str, Any], config: TrainConfig) -> Learner:
    model, tokenizer = load_pretrained(str(folder / MODEL))
    optimizer, frozen = _load_file(folder, OPTIMIZER), _load_file(folder, FROZEN)
    learner = make_learner(
        record_name(name, config),
        config,
        model,
        tokenizer,
        version=description["updates"],
        reference=_part(frozen, "reference") if description["reference"] else None,
        snapshots=[Snapshot(version, _part(frozen, f"version-{version}")) for version in description["pool"]],
    )
    learner.backend.load_optimizer_state(optimizer)
    return learner


def _load_file(folder: Path, name: str) -> Weights:
    path = folder / name if (folder / name).exists() else folder / OLD_FILES[name]
    try:
        tensors: Weights = load_file(path)
        return tensors
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{folder.parent} is damaged: {error}. Remove it, so that the one before it is used"
        ) from error


def _part(tensors: Weights, prefix: str) -> Weights:
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.partition("/")[0] == prefix}


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
