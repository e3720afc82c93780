"""What differs for one policy: the configuration's tables `[policies.NAME]`, laid over its sections.

[policies.user]
learning_rate = 1e-3
algorithm = { name = "grpo", options = { group_size = 4 } }

for_policy(config, "user").training.learning_rate  # 1e-3
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from marl_gem.errors import ConfigError
from marl_gem.specs import is_learner_name
from marl_gem.trainers.schedule import SHARED_POLICY
from marl_gem.trainers.sections import PolicyConfig, TrainConfig, TrainingConfig

OF_TRAINING = (
    "learning_rate",
    "learning_rate_schedule",
    "warmup_updates",
    "gamma",
    "kl",
    "kl_final",
    "kl_estimator",
    "kl_in",
    "kl_average",
    "entropy",
    "reward",
    "cut_answers",
    "cut_penalty",
    "critic_learning_rate",
    "max_grad_norm",
    "momentum",
    "reference_every",
    "micro_batch_tokens",
    "activation_checkpointing",
    "packing",
    "snapshot_every",
    "pool_size",
)
"""The fields of `[training]` that may differ from policy to policy."""

OF_POLICY = tuple(field for field in PolicyConfig.__struct_fields__ if field != "lora_targets")
"""Those of `[policy]`: adapters over one model change the same layers of it."""

ALGORITHM = "algorithm"


def for_policy(config: TrainConfig, name: str) -> TrainConfig:
    """A run's configuration as it holds for one policy: the fields of its table replace those of the sections.

    Raises:
        ConfigError: a field of the table is unknown, or its value makes no sense.
    """
    table = config.policies.get(name)
    if not table:
        return config
    try:
        policy = msgspec.convert({**msgspec.to_builtins(config.policy), **_fields(table, OF_POLICY)}, PolicyConfig)
        training = msgspec.convert(
            {**msgspec.to_builtins(config.training), **_fields(table, OF_TRAINING)}, TrainingConfig
        )
        algorithm = msgspec.convert(_algorithm(config, table.get(ALGORITHM, {})), type(config.algorithm))
    except msgspec.ValidationError as error:
        raise ConfigError(f"policies.{name}: {error}") from error
    return msgspec.structs.replace(config, policy=policy, training=training, algorithm=algorithm)


def policy_config(shared: PolicyConfig, table: Mapping[str, Any]) -> PolicyConfig:
    """The section `[policy]` as it holds for the policy with this table.

    Raises:
        msgspec.ValidationError: a value makes no sense.
    """
    return msgspec.convert({**msgspec.to_builtins(shared), **_fields(table, OF_POLICY)}, PolicyConfig)


def check_tables(config: TrainConfig, source: str) -> None:
    """Hold the tables against the policies that there are, and their fields against those that may differ.

    Raises:
        ConfigError: a table is of no policy, or a field is none that may differ; the message says which there are.
    """
    known = policy_names(config)
    for name, table in config.policies.items():
        if name not in known:
            raise ConfigError(
                f"{source}: policies.{name} is about a policy that holds no seat; there are {', '.join(known)}"
                f"{_near(name, known)}"
            )
        for field in table:
            if field not in (*OF_POLICY, *OF_TRAINING, ALGORITHM):
                raise ConfigError(f"{source}: {_unknown(name, field, config)}")


def policy_names(config: TrainConfig) -> list[str]:
    """The names of the policies that hold a seat at any time."""
    seatings = (config.seats, *(s.seats for s in config.scenarios), *(phase.seats for phase in config.phases))
    named = [who for seats in seatings for who in seats.values() if is_learner_name(who)]
    return [*dict.fromkeys(named)] or [SHARED_POLICY]


def _fields(table: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {field: value for field, value in table.items() if field in names}


def _algorithm(config: TrainConfig, given: Any) -> dict[str, Any]:
    """The algorithm's section. Options of the run's algorithm do not go over to another one."""
    changes = (
        {"name": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {"name": given}
    )
    same = changes.get("name", config.algorithm.name) == config.algorithm.name
    options: Any = changes.pop("options", {})
    if isinstance(options, Mapping):
        options = {**(config.algorithm.options if same else {}), **options}
    return {"name": config.algorithm.name, **changes, "options": options}


def _unknown(name: str, field: str, config: TrainConfig) -> str:
    for section in config.__struct_fields__:
        of_run = getattr(config, section)
        if isinstance(of_run, msgspec.Struct) and field in of_run.__struct_fields__:
            return f"policies.{name}.{field}: it is the same for all policies; set it in [{section}]"
    fields = (*OF_POLICY, *OF_TRAINING, ALGORITHM)
    return f"policies.{name}: unknown field `{field}`{_near(field, fields)}"


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f". Did you mean {near[0]}?" if near else ""
