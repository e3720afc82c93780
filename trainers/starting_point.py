"""Where a policy begins: with the model in a folder, or with what a policy of another run has learned.

`policy.start_from` is the folder of a model in the layout of transformers, a run's folder or the folder of one of its
checkpoints, `RUN@120`, or `RUN:POLICY` and `RUN@120:POLICY` where the run has trained several policies. Of another run,
which may be somebody else's, only what is needed to play its policy is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from transformers import PreTrainedModel

from marl_gem.errors import AgentError, CheckpointError, ConfigError
from marl_gem.llm.pretrained import check_pretrained
from marl_gem.runs.folder import updates_of
from marl_gem.specs import PolicySpec
from marl_gem.trainers.backends.adapters import ADAPTER
from marl_gem.trainers.checkpoint_folder import find, is_trained
from marl_gem.trainers.checkpoint_state import MODEL, STATE, CheckpointState, read_state
from marl_gem.trainers.played import parse_played
from marl_gem.trainers.policy_tables import for_policy
from marl_gem.trainers.sections import PolicyConfig, TrainConfig

FIELD = "policy.start_from"


@dataclass(frozen=True)
class StartingPoint:
    """The files of a policy's first weights.

    `model` is a folder in the layout of transformers; `adapter` is the folder of an adapter over it, with `policy`, the
    configuration that it was trained under.
    """

    model: Path
    adapter: Path | None = None
    policy: PolicyConfig | None = None


def starting_point(config: TrainConfig, name: str) -> StartingPoint:
    """Where a policy begins that does not begin with random weights.

    Args:
        config: the run's.
        name: the policy's. If another run has trained several, it begins with the one of the same name.

    Raises:
        ConfigError: there is no such folder, checkpoint or policy.
        CheckpointError: the checkpoint is damaged.
    """
    spec = _spec(start_text(config, name))
    if not _names_run(spec):
        return StartingPoint(Path(spec.name))
    folder = _found(spec)
    state = read_state(folder)
    model = folder / _learner(spec, state, name) / MODEL
    if not (model / ADAPTER).exists():
        return StartingPoint(model)
    policy = parse_played(state.config, f"{folder}/{STATE}").of(model.parent.name)
    return StartingPoint(Path(state.base_folder or policy.start_from), model, policy)


def start_text(config: TrainConfig, name: str) -> str:
    """What the configuration says about where this policy begins; empty for random weights."""
    return for_policy(config, name).policy.start_from


def begins_trained(config: TrainConfig, name: str) -> bool:
    """Whether a policy begins with what another run has learned, so that it needs no warm start.

    Raises:
        ConfigError: there is no such folder.
    """
    text = start_text(config, name)
    return bool(text) and _names_run(_spec(text))


def imitators(config: TrainConfig, names: Iterable[str]) -> list[str]:
    """Those of the policies that take a warm start: all but those that another run has trained.

    Raises:
        ConfigError: see `begins_trained`.
    """
    return [name for name in names if config.imitation.steps and not begins_trained(config, name)]


def check_start(config: TrainConfig, name: str) -> PreTrainedModel:
    """Look for what a policy begins with. Weights are not loaded.

    Returns:
        the model without its weights, on torch's meta device.

    Raises:
        ConfigError: it is not there, damaged, or does not fit the run.
    """
    try:
        point = starting_point(config, name)
        network = check_pretrained(point.model)
    except CheckpointError as error:
        raise ConfigError(f"{FIELD}: {error}") from error
    mine = for_policy(config, name).policy
    if point.policy and mine.lora_rank:
        _check_same_adapters(mine, point.policy)
    return network


def shared_model(config: TrainConfig, names: Sequence[str]) -> Path:
    """The folder of the model over which the run's policies are adapters.

    Raises:
        ConfigError: they begin with different models, or see `starting_point`.
    """
    models = {name: starting_point(config, name).model for name in names}
    if len(set(models.values())) > 1:
        raise ConfigError(
            f"{FIELD}: adapters share one model, but here they would begin with several: "
            f"{', '.join(f'{name} with {model}' for name, model in models.items())}; name one of them, or set "
            "policy.lora_rank = 0"
        )
    return models[names[0]]


def pinned(config: TrainConfig) -> TrainConfig:
    """The configuration with the checkpoint's number where a run is named, because that run may go on meanwhile.

    Raises:
        ConfigError: there is no such checkpoint.
    """
    policy = msgspec.structs.replace(config.policy, start_from=_pinned(config.policy.start_from))
    tables = {name: {**table} for name, table in config.policies.items()}
    for table in tables.values():
        if isinstance(text := table.get("start_from"), str):
            table["start_from"] = _pinned(text)
    return msgspec.structs.replace(config, policy=policy, policies=tables)


def with_pins(wanted: TrainConfig, config: TrainConfig) -> TrainConfig:
    """`wanted`, with the checkpoint's number that `config` has where both name the same run."""
    policy = msgspec.structs.replace(
        wanted.policy, start_from=_with_pin(wanted.policy.start_from, config.policy.start_from)
    )
    tables = {name: {**table} for name, table in wanted.policies.items()}
    for name, table in tables.items():
        if isinstance(text := table.get("start_from"), str):
            table["start_from"] = _with_pin(text, str(config.policies.get(name, {}).get("start_from", "")))
    return msgspec.structs.replace(wanted, policy=policy, policies=tables)


def _with_pin(text: str, stored: str) -> str:
    """`stored` if it names the same run as `text`, with a checkpoint's number, else `text`."""
    run, _, rest = stored.rpartition("@")
    return stored if run and text == run + "".join(rest.partition(":")[1:]) else text


def _pinned(text: str) -> str:
    spec = _spec(text) if text else PolicySpec("hf")
    if not _names_run(spec) or spec.checkpoint is not None or (Path(spec.name) / STATE).exists():
        return text
    return str(msgspec.structs.replace(spec, checkpoint=updates_of(_found(spec))))


def _spec(text: str) -> PolicySpec:
    try:
        spec = PolicySpec.parse(text)
    except AgentError as error:
        if Path(text).is_dir() or "@" in text or ":" in text:
            raise ConfigError(f"{FIELD}: {error}") from error
        raise ConfigError(f"{FIELD}: there is no folder {text}") from error
    if spec.kind not in ("run", "hf"):
        raise ConfigError(
            f"{FIELD}: {text!r} is no model's folder and no run; write FOLDER, RUN, RUN@120 or RUN:POLICY"
        )
    if spec != PolicySpec(spec.kind, spec.name, checkpoint=spec.checkpoint, learner=spec.learner):
        raise ConfigError(f"{FIELD}: {text!r}: values such as temperature are set in [policy]")
    return spec


def _names_run(spec: PolicySpec) -> bool:
    return spec.kind == "run" and (spec.checkpoint is not None or bool(spec.learner) or is_trained(Path(spec.name)))


def _found(spec: PolicySpec) -> Path:
    try:
        return find(Path(spec.name), spec.checkpoint)
    except CheckpointError as error:
        raise ConfigError(f"{FIELD}: {error}") from error


def _learner(spec: PolicySpec, state: CheckpointState, name: str) -> str:
    """The name of the policy in the checkpoint."""
    names = list(state.policies)
    wanted = spec.learner or (names[0] if len(names) == 1 else name)
    if wanted not in names:
        raise ConfigError(
            f"{FIELD}: {spec.who} has no policy {wanted!r}; it has {', '.join(names)}: write "
            f"{msgspec.structs.replace(spec, learner=names[0])}"
        )
    return wanted


def _check_same_adapters(config: PolicyConfig, trained: PolicyConfig) -> None:
    for field in ("lora_rank", "lora_alpha", "lora_targets"):
        if getattr(config, field) != getattr(trained, field):
            raise ConfigError(
                f"{FIELD}: {config.start_from} has adapters with {field} = {getattr(trained, field)!r}, not "
                f"{getattr(config, field)!r}; set policy.{field} so, or policy.lora_rank = 0 to train all weights"
            )
