"""Everything a training run needs to go on, on disk, complete or not at all.

    checkpoints/update-000120/
      state.json                   what this is: configuration, updates, and every file's size and hash
      POLICY/                      one folder for every policy that learns
        model/                     weights and tokenizer, in the layout of transformers
        optimizer.safetensors      the optimizer's state
        frozen.safetensors         the reference and the earlier versions
        critic.safetensors         the critic and its optimizer, where there is one

Policies that are adapters over one model have only these in `model/`; the model stays where `policy.start_from` says.

A checkpoint is written under another name, flushed to disk and then renamed; one whose numbers are not all finite is
not written. Nothing is pickled. All random choices follow from the seed and the number of updates, so no generator's
state is kept; a resumed run equals an unbroken one.

What is read may come from somebody else. Whatever state.json says, `load_policy` reads the model alone: it makes no
env, asks no server and imports nothing that the configuration names. `load` goes on with the run, and so does what the
configuration says.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from marl_gem.errors import CheckpointError, MarlGemError, TrainingError
from marl_gem.llm.pretrained import load_pretrained, not_finite
from marl_gem.llm.transformers import TransformersLLM
from marl_gem.policies import LLMPolicy, PolicyPerSeat
from marl_gem.runs.configuration import differences
from marl_gem.runs.files import replacing_folder
from marl_gem.runs.folder import checkpoints, updates_of
from marl_gem.specs import ScenarioSpec
from marl_gem.trainers.backends.adapters import CausalModel, SharedBase
from marl_gem.trainers.backends.base import Weights
from marl_gem.trainers.backends.frozen import fits
from marl_gem.trainers.checkpoint_folder import find, newest, remove_old
from marl_gem.trainers.checkpoint_state import (
    ADVICE,
    MODEL,
    STATE,
    CheckpointState,
    PolicyState,
    read_state,
    write_state,
)
from marl_gem.trainers.config import complete, parse_stored
from marl_gem.trainers.critic import TurnCritic
from marl_gem.trainers.learner import Learner, make_learner
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.trainers.played import parse_played
from marl_gem.trainers.policy_algorithms import algorithm_state, restore_algorithms
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.samplers.in_process import llm_policy
from marl_gem.trainers.schedule import SHARED_POLICY, learner_seats
from marl_gem.trainers.sections import MACHINE_FIELDS, PolicyConfig, TrainConfig
from marl_gem.trainers.shared_base import fingerprint, load_adapter, load_base
from marl_gem.trainers.start import record_name, set_threads

__all__ = ["checkpoints", "find", "load", "load_policy", "newest", "save", "scenario_options"]

OPTIMIZER, FROZEN, CRITIC = "optimizer.safetensors", "frozen.safetensors", "critic.safetensors"
OLD_FILES = {OPTIMIZER: "learner.safetensors", FROZEN: "others.safetensors"}
"""What the files of a policy are called in format 2."""


def save(folder: Path, loop: TrainingLoop) -> Path:
    """Write a checkpoint into `folder`, and remove all but the newest two and those that the configuration keeps.

    Returns:
        the checkpoint's own folder.

    Raises:
        CheckpointError: it cannot be written; the earlier ones are unchanged.
        TrainingError: a number in it is not finite; the earlier ones are unchanged.
    """
    target = folder / f"update-{loop.updates:06d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(".update-*"):  # of a process that was killed while it wrote
            shutil.rmtree(unfinished)
        with replacing_folder(target) as draft:
            _write(draft, loop)
        training = loop.config.training
        remove_old(folder, training.keep_every * training.save_every)
    except MarlGemError:
        raise
    except Exception as error:
        cause = _system_error(error)
        raise CheckpointError(
            f"cannot write a checkpoint to {target}: {cause.strerror or cause}. The earlier ones are unchanged; when "
            f"this is mended, go on with marl-gem train --resume {folder.parent}"
        ) from cause
    return target


def load(path: Path, config: TrainConfig | None = None) -> TrainingLoop:
    """Read a checkpoint, and go on where it was written.

    Args:
        path: a checkpoint, or a folder of checkpoints or a run's folder, which give their newest.
        config: what the checkpoint must have been written under, but for updates and trackers; None takes what it
            says, which is then acted upon: scenarios are made, and algorithms are imported.

    Raises:
        CheckpointError: there is none, it is damaged, or it belongs to another scenario.
    """
    path = newest(path)
    state = read_state(path)
    written = parse_played(state.config, f"{path}/{STATE}").title
    if config is not None and config.title != written:
        raise CheckpointError(f"{path} was trained on {written}, not on {config.title}")
    stored = complete(state.config, f"{path}/{STATE}")
    free = ("training.updates", *MACHINE_FIELDS)
    if config is not None and (changes := differences(stored, msgspec.to_builtins(config), ignore=free)):
        raise CheckpointError(f"{path} was written under another configuration: {'; '.join(changes)}")
    config = config or parse_stored(state.config, f"{path}/{STATE}")
    set_threads(config)
    configs = {name: for_policy(config, name) for name in state.policies}
    half = config.training.precision == "bfloat16"
    shared = _load_base(path, state, [mine.policy for mine in configs.values()], half=half)
    learners = {
        name: _read_learner(path, name, policy, configs[name], shared) for name, policy in state.policies.items()
    }
    loop = TrainingLoop(config, learners, updates=state.updates)
    _restore_memories(path, state, loop)
    trained = sorted(learner_seats(loop.phases))
    if sorted(learners) != trained or state.updates > config.training.updates:
        raise CheckpointError(
            f"{path} has {', '.join(learners)} after {state.updates} updates, but its run trains "
            f"{', '.join(trained)} for {config.training.updates}. {ADVICE}"
        )
    return loop


def load_policy(path: Path, scenario: ScenarioSpec | str, learner: str = "") -> LLMPolicy | PolicyPerSeat:
    """What a checkpoint's run has learned: one policy for all seats, or one for each seat that it trained.

    Args:
        path: a checkpoint, or a folder of checkpoints or a run's folder, which give their newest.
        scenario: what it is to play.
        learner: the policy of this name for all seats.

    Raises:
        CheckpointError: there is none, it is damaged, or it was not trained on this scenario.
    """
    path, scenario = newest(path), ScenarioSpec.parse(scenario)
    state = read_state(path)
    config = parse_played(state.config, f"{path}/{STATE}")
    ids = [trained.id for trained in config.scenarios]
    if scenario.id not in ids:
        raise CheckpointError(f"{path} was trained on {config.title} and cannot play {scenario.id}")
    if learner and learner not in state.policies:
        raise CheckpointError(f"{path} has no policy {learner!r}; it has {', '.join(state.policies)}")
    run = path.resolve().parent.parent.name
    alone = list(state.policies) == [SHARED_POLICY]
    policies = {}
    configs = {name: config.of(name) for name in state.policies}
    shared = _load_base(path, state, configs.values(), half=torch.cuda.is_available())
    for name, policy in state.policies.items():
        if name != (learner or name):
            continue
        llm = TransformersLLM(
            *_load_model(path / name / MODEL, name, configs[name], shared),
            name=run if alone else f"{run}/{name}",
            template_options=configs[name].chat_template_kwargs,
        )
        llm.version = policy.updates
        policies[name] = llm_policy(configs[name], llm)
    if alone or learner:
        return policies[learner or SHARED_POLICY]
    holders = config.holders(ids.index(scenario.id), scenario.inspect().agents, state.updates)
    if unknown := sorted(set(holders.values()) - policies.keys()):
        raise CheckpointError(f"{path} is damaged: it lacks the policy {unknown[0]!r}. {ADVICE}")
    return PolicyPerSeat(f"{run}@{state.updates}", {seat: policies[name] for seat, name in holders.items()})


def _restore_memories(path: Path, state: CheckpointState, loop: TrainingLoop) -> None:
    """Put back what algorithm and league remember."""
    try:
        loop.league.restore(state.league)
        restore_algorithms(loop.algorithms, state.algorithm)
    except Exception as error:  # the algorithm may be somebody else's
        raise CheckpointError(f"{path} is damaged: {STATE}: {type(error).__name__}: {error}. {ADVICE}") from error


def scenario_options(path: Path, scenario: str) -> dict[str, Any]:
    """The options that the scenario with this id had in a checkpoint's run; none if the run was trained on others.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
    """
    path = newest(path)
    config = parse_played(read_state(path).config, f"{path}/{STATE}")
    return next((dict(trained.options) for trained in config.scenarios if trained.id == scenario), {})


def _system_error(error: Exception) -> OSError:
    """What the system said. The libraries that write weights and tokenizers raise their own exceptions, with a number.

    Any other exception is raised as it is.
    """
    if isinstance(error, OSError):
        return error
    if number := re.search(r"\(os error (\d+)\)", str(error)):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    raise error


def _write(draft: Path, loop: TrainingLoop) -> None:
    policies = {}
    for name, learner in loop.learners.items():
        tensors = _tensors(learner)
        if broken := not_finite(tensors):
            raise TrainingError(_diverged(draft.parent, name, broken, loop.updates))
        policies[name] = _write_learner(draft / name, learner, tensors)
    base = next((learner.base for learner in loop.learners.values() if learner.base), "")
    write_state(
        draft,
        loop.updates,
        policies,
        msgspec.to_builtins(loop.config),
        algorithm=algorithm_state(loop.algorithms),
        league=loop.league.state(),
        base=fingerprint(base) if base else "",
        base_folder=base,
    )


def _diverged(folder: Path, name: str, tensor: str, updates: int) -> str:
    earlier = checkpoints(folder)
    last = f"{folder.parent}@{updates_of(earlier[-1])}" if earlier else ""
    begin = f", from policy.start_from={last} if it is to begin there" if last else ""
    return (
        f"{name} has diverged: {tensor} holds numbers that are not finite after update {updates}. No checkpoint was "
        f"written; the last one is {earlier[-1] if earlier else 'none'}. Start a new run with a lower "
        f"training.learning_rate or training.max_grad_norm{begin}"
    )


def _tensors(learner: Learner) -> Weights:
    """All that a policy's files hold: a copy of its weights, its earlier versions, its reference, its optimizer."""
    backend = learner.backend
    parts = {"weights": backend.weights(), "optimizer": backend.optimizer_state(), "reference": backend.reference or {}}
    parts |= {f"version-{snapshot.version}": snapshot.weights for snapshot in learner.pool.snapshots}
    parts["critic"] = learner.critic.state() if learner.critic else {}
    return {f"{part}/{name}": value for part, tensors in parts.items() for name, value in tensors.items()}


def _write_learner(folder: Path, learner: Learner, tensors: Weights) -> PolicyState:
    """Write a policy, and return what its files do not say."""
    learner.backend.save_model(folder / MODEL)
    frozen = {name: value for name, value in tensors.items() if name.startswith(("reference/", "version-"))}
    save_file(frozen, folder / FROZEN)
    save_file(_part(tensors, "optimizer"), folder / OPTIMIZER)
    if critic := _part(tensors, "critic"):
        save_file(critic, folder / CRITIC)
    return PolicyState(
        learner.backend.version,
        learner.pool.versions,
        learner.backend.reference is not None,
        learner.critic is not None,
    )


def _load_base(
    path: Path, state: CheckpointState, policies: Iterable[PolicyConfig], *, half: bool
) -> tuple[SharedBase, PreTrainedTokenizerBase] | None:
    """The model over which policies of the checkpoint are adapters; None if all are models of their own.

    Raises:
        CheckpointError: it is not where it was, or is another one.
    """
    adapted = next((policy for policy in policies if policy.lora_rank), None)
    if adapted is None:
        return None
    folder = state.base_folder or adapted.start_from
    if fingerprint(folder) != state.base:
        raise CheckpointError(
            f"{path} holds adapters, but {folder!r} is not the model over which they were trained. Put that "
            "model back in its place, as seen from the working directory"
        )
    return load_base(adapted, folder, half=half)


def _load_model(
    folder: Path, name: str, policy: PolicyConfig, shared: tuple[SharedBase, PreTrainedTokenizerBase] | None
) -> tuple[CausalModel, PreTrainedTokenizerBase]:
    """A policy's model and tokenizer: its own, or an adapter over a shared one."""
    if shared is None or not policy.lora_rank:
        return load_pretrained(folder)
    base, tokenizer = shared
    return load_adapter(base, name, folder, policy), tokenizer


def _read_learner(
    path: Path,
    name: str,
    policy: PolicyState,
    config: TrainConfig,
    shared: tuple[SharedBase, PreTrainedTokenizerBase] | None,
) -> Learner:
    model, tokenizer = _load_model(path / name / MODEL, name, config.policy, shared)
    optimizer, frozen = _load_file(path / name, OPTIMIZER), _load_file(path / name, FROZEN)
    parts = {name: _part(frozen, name) for name in dict.fromkeys(key.partition("/")[0] for key in frozen)}
    expected = {*["reference"] * policy.reference, *(f"version-{version}" for version in policy.pool)}
    if parts.keys() != expected or not all(fits(model, part) for part in parts.values()) or not_finite(frozen):
        raise CheckpointError(f"{path} is damaged: {name}: {FROZEN} holds other tensors than it should. {ADVICE}")
    learner = make_learner(
        record_name(name, config),
        config,
        model,
        tokenizer,
        version=policy.updates,
        reference=parts.get("reference"),
        snapshots=[Snapshot(version, parts[f"version-{version}"]) for version in policy.pool],
    )
    fresh = not optimizer and policy.updates > 0
    if fresh or not _is_optimizer_state(optimizer, list(model.parameters())) or not_finite(optimizer):
        raise CheckpointError(f"{path} is damaged: {name}: {OPTIMIZER} holds other tensors than it should. {ADVICE}")
    learner.backend.load_optimizer_state(optimizer)
    if learner.critic:
        _restore_critic(path, name, policy, learner.critic)
    return learner


def _restore_critic(path: Path, name: str, policy: PolicyState, critic: TurnCritic) -> None:
    tensors = _load_file(path / name, CRITIC) if policy.critic else {}
    try:
        if broken := not_finite(tensors):
            raise ValueError(f"{broken} holds numbers that are not finite")
        critic.restore(tensors)
    except (ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged: {name}: {CRITIC}: {error}. {ADVICE}") from error


def _is_optimizer_state(state: Weights, parameters: Sequence[torch.Tensor]) -> bool:
    """Whether this is the state of Adam, under `INDEX/NAME`, for some of these parameters."""
    shapes: dict[str, tuple[int, ...]] = {}
    for index, parameter in enumerate(parameters):
        if f"{index}/step" in state:  # a parameter that has had a gradient
            shapes |= {f"{index}/step": (), f"{index}/exp_avg": parameter.shape, f"{index}/exp_avg_sq": parameter.shape}
    return {name: value.shape for name, value in state.items()} == shapes


def _load_file(folder: Path, name: str) -> Weights:
    path = folder / name if (folder / name).exists() else folder / OLD_FILES.get(name, name)
    try:
        tensors: Weights = load_file(path)
        return tensors
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{folder.parent} is damaged: {path.name}: {error}. {ADVICE}") from error


def _part(tensors: Weights, prefix: str) -> Weights:
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.partition("/")[0] == prefix}
