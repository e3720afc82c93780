"""What a training run is told. Everything that happens in a run follows from these values.

A configuration is plain data, from a TOML file or a command line; `parse` makes a frozen `TrainConfig` of it, whose
fields stand in `sections.py`.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.registry.tables import did_you_mean
from marl_gem.runs.configuration import rename_keys
from marl_gem.runs.folder import read_config as read_plain_config
from marl_gem.specs import PolicySpec, is_learner_name
from marl_gem.trainers.policy_tables import check_tables, for_policy, policy_names
from marl_gem.trainers.sections import (
    Section,
    TrainConfig,
)
from marl_gem.views import view

RECIPES = Path(__file__).parent / "recipes"

RENAMED = {
    "self_play.older_selves": "training.opponent_pool_fraction",
    "self_play.pool_every": "training.snapshot_every",
    "self_play.games": "training.episodes",
    "self_play.clip": "training.max_grad_norm",
    "self_play.normalization": "algorithm.options.group_by",
    "imitation.games": "imitation.episodes",
    "record.options": "test_options",
    "record.final_games": "evaluation.final_episodes",
    "record.probe_games": "evaluation.probe_episodes",
    "record.probe_every": "evaluation.probe_every",
    "record.save_every": "training.save_every",
    "record.episodes": "training.keep_episodes",
}
"""Names of the first version, which configurations of older runs still have, and what became of them."""
RENAMED_SECTIONS = {"self_play": "training", "record": "evaluation"}


SHORT_FORMS = ("scenario", "options", "test_options", "reset", "wrappers", "tools")
"""What may stand at the top in place of one table of `scenarios`."""


def parse(values: dict[str, Any], source: str) -> TrainConfig:
    """A configuration from plain data.

    Args:
        values: sections and fields by name, as a TOML file holds them.
        source: where they come from; it opens every error's message.

    Raises:
        ConfigError: a name is unknown or a value makes no sense; the message names it.
        RegistryError, AgentError: a scenario's wrapper or a seat's policy cannot be read.
    """
    config = check(values, source)
    try:
        from marl_gem.trainers.policy_algorithms import check_rollouts, make_algorithms
    except ImportError as error:
        raise MissingPackage(error.name or "torch", "train", "training") from error
    try:
        check_rollouts(config, make_algorithms(config, policy_names(config)))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    return config


def check(values: dict[str, Any], source: str) -> TrainConfig:
    """As `parse`, without looking at the algorithm; so it needs no torch."""
    _refuse_old_names(values, source)
    config = _converted(values, source)
    _check_finite(config, source)
    check_tables(config, source)
    _check_seats(config, source)
    for scenario in config.scenarios:
        _ = scenario.spec
    for name in policy_names(config):
        _check_policy(for_policy(config, name), source)
    _check_league(config, source)
    _check_sampler(config, source)
    return config


def parse_stored(values: dict[str, Any], source: str) -> TrainConfig:
    """A configuration as a run has stored it, also under the names of the first version; see `parse`."""
    return parse(_renamed(values), source)


def complete(values: dict[str, Any], source: str) -> dict[str, Any]:
    """A configuration that a run has stored, with all fields under today's names. Nothing in it is looked up.

    Raises:
        ConfigError: a field is unknown, or of another type.
    """
    return dict(msgspec.to_builtins(_converted(_renamed(values), source)))


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    values = rename_keys(values, RENAMED)
    for old, new in RENAMED_SECTIONS.items():
        if isinstance(values.get(old), dict) and isinstance(values.get(new, {}), dict):
            values[new] = {**values.pop(old), **values.get(new, {})}
    return values


def _converted(values: dict[str, Any], source: str) -> TrainConfig:
    try:
        return msgspec.convert(canonical(values, source), TrainConfig)
    except (msgspec.ValidationError, UnicodeError) as error:  # msgspec cannot show a text with lone surrogates
        raise ConfigError(f"{source}: {error}{_did_you_mean(str(error))}") from error


def read_config(folder: Path) -> TrainConfig:
    """A run's configuration.

    Raises:
        ConfigError: the folder is no run's, or the file is damaged.
    """
    values = read_plain_config(folder)
    if "kind" in values:
        command = "tournament" if values["kind"] == "tournament" else "eval"
        raise ConfigError(
            f"{folder} is no training run but an evaluation; go on with marl-gem {command} --out {folder} --resume"
        )
    if not values.keys() & {"scenario", "scenarios"}:
        raise ConfigError(f"{folder} is no training run: its config.json names no scenario that is trained on")
    return parse_stored(values, str(folder / "config.json"))


def canonical(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same with `scenarios` in place of its shorter forms."""
    values = dict(values)
    short = {name: values.pop(name) for name in SHORT_FORMS if name in values}
    if "scenario" not in short and not values.get("scenarios"):
        unknown = [name for name in values if name not in TrainConfig.__struct_fields__]
        near = [name for name in unknown if difflib.get_close_matches(name, ["scenario", "scenarios"], 1)]
        hint = f"; did you mean scenario where it says {near[0]!r}?" if near else ""
        raise ConfigError(f"{source}: name what is trained on, as in scenario = 'game:KuhnPoker-v0'{hint}")
    if "scenarios" in values:
        if short:
            raise ConfigError(
                f"{source}: with [[scenarios]], {', '.join(short)} cannot stand beside them; write each scenario's "
                "options, test_options, reset, wrappers and tools into its table"
            )
        return values
    scenario = short.pop("scenario")
    if not isinstance(scenario, str | dict):
        raise ConfigError(f"{source}: scenario is an id such as 'game:KuhnPoker-v0', or a table, not {scenario!r}")
    table: dict[str, Any] = {"id": scenario} if isinstance(scenario, str) else dict(scenario)
    for name, value in short.items():
        table[name] = _joined(f"{source}: scenario.{name}", table[name], value) if name in table else value
    return {**values, "scenarios": [table]}


def _joined(field: str, inner: Any, outer: Any) -> Any:
    """Options with others that count more, wrappers with others around them, or tools and others."""
    if isinstance(inner, dict) and isinstance(outer, dict):
        return {**inner, **outer}
    if isinstance(inner, list) and isinstance(outer, list):
        return [*inner, *outer]
    name = field.rpartition(".")[2]
    raise ConfigError(f"{field} is a {f'list of {name}' if name in ('wrappers', 'tools') else 'table of options'}")


def _refuse_old_names(values: dict[str, Any], source: str) -> None:
    for old, new in RENAMED.items():
        section, _, field = old.partition(".")
        if isinstance(values.get(section), dict) and field in values[section] and old != new:
            raise ConfigError(f"{source}: {old} is called {new} now")
    for old, new in RENAMED_SECTIONS.items():
        if old in values:
            raise ConfigError(f"{source}: the section {old} is called {new} now")


def _did_you_mean(message: str) -> str:
    """The nearest name of a field, if the message is about an unknown one."""
    _, found, rest = message.partition("unknown field `")
    if not found:
        return ""
    unknown, _, path = rest.partition("`")
    sections = _sections(TrainConfig)
    section = re.sub(r"\[[^]]*\]", "", path.partition("$")[2].rstrip("`")).strip(".")
    here = {field: field for field in sections.get(section, TrainConfig).__struct_fields__}
    if not section:
        here |= {field: field for field in SHORT_FORMS}
    elsewhere = {field: f"{name}.{field}".strip(".") for name, kind in sections.items() for field in _names(kind)}
    exact = {field: name for field, name in elsewhere.items() if field == unknown}
    for fields in (exact, here, elsewhere):
        if near := difflib.get_close_matches(unknown, fields, 1):
            return f". Did you mean {fields[near[0]]}?"
    return ""


def _names(section: type[Section]) -> tuple[str, ...]:
    return section.__struct_fields__


def _sections(kind: type[Section], name: str = "") -> dict[str, type[Section]]:
    """The sections of a configuration by their dotted names; that of all of it has an empty name."""
    found = {name: kind}
    for field in msgspec.structs.fields(kind):
        for inner in _sections_in(field.type):
            found |= _sections(inner, f"{name}.{field.encode_name}".strip("."))
    return found


def _sections_in(kind: Any) -> list[type[Section]]:
    if isinstance(kind, type) and issubclass(kind, Section):
        return [kind]
    return [section for argument in get_args(kind) for section in _sections_in(argument)]


def _check_finite(config: TrainConfig, source: str) -> None:
    for name, section in (("policy", config.policy), ("imitation", config.imitation), ("training", config.training)):
        _check_numbers(f"{source}: {name}", section)
    for scenario in config.scenarios:
        if not math.isfinite(scenario.weight):
            raise ConfigError(f"{source}: a scenario's weight is a finite number, not {scenario.weight}")


def _check_numbers(name: str, section: Section) -> None:
    for field, value in msgspec.structs.asdict(section).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}.{field} is a finite number, not {value}")


def _check_policy(config: TrainConfig, source: str) -> None:
    """What holds for one policy, see `for_policy`."""
    policy = config.policy
    _check_numbers(f"{source}: policy", policy)
    _check_numbers(f"{source}: training", config.training)
    view(policy.view)
    if not policy.start_from and policy.width % policy.heads:
        raise ConfigError(
            f"{source}: policy.width is a multiple of policy.heads, not {policy.width} for {policy.heads}"
        )
    if policy.lora_rank and not policy.start_from:
        raise ConfigError(
            f"{source}: policy.lora_rank: adapters need a model that has learned something; name its folder in "
            "policy.start_from"
        )


def _check_seats(config: TrainConfig, source: str) -> None:
    """What can be said of seats and phases without the scenarios."""
    for seats in (config.seats, *(s.seats for s in config.scenarios), *(phase.seats for phase in config.phases)):
        for seat, who in seats.items():
            if not is_learner_name(who):
                _check_fixed(f"{source}: seats.{seat}", who)
    for seat, who in config.imitation.seats.items():
        if is_learner_name(who):
            raise ConfigError(f"{source}: imitation.seats.{seat} is a policy such as scripted:NAME, not {who!r}")
        _check_fixed(f"{source}: imitation.seats.{seat}", who)
    for seat, partners in config.evaluation.partners.items():
        for who in partners:
            if is_learner_name(who):
                raise ConfigError(
                    f"{source}: evaluation.partners.{seat} names policies that do not learn here, not {who!r}"
                )
            _check_fixed(f"{source}: evaluation.partners.{seat}", who)
    for opponent in config.evaluation.opponents:
        _check_fixed(f"{source}: evaluation.opponents", opponent)
    if config.phases and not (config.seats or all(scenario.seats for scenario in config.scenarios)):
        raise ConfigError(f"{source}: phases change who holds the seats; name in `seats` who holds them first")
    starts = [0, *(phase.start for phase in config.phases), config.training.updates]
    if any(later <= earlier for earlier, later in itertools.pairwise(starts)) and config.phases:
        given = ", ".join(str(phase.start) for phase in config.phases)
        raise ConfigError(
            f"{source}: phases start one after the other, before the last of the {config.training.updates} updates, "
            f"not at {given}; set phases along with training.updates (phases=[] for none)"
        )


def _check_league(config: TrainConfig, source: str) -> None:
    league = config.league
    for who in league.fixed:
        if is_learner_name(who):
            near = difflib.get_close_matches(who, ["random"], 1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"{source}: league.fixed names policies that never learn, such as random; not {who!r}{hint}"
            )
        _check_fixed(f"{source}: league.fixed", who)
    if not any((league.past, league.prioritized, league.latest, *league.fixed.values())):
        raise ConfigError(f"{source}: league: all weights are 0; give one kind of opponents a weight above 0")


def _check_sampler(config: TrainConfig, source: str) -> None:
    if config.sampler not in ("in_process", "vllm") and not config.sampler.startswith(("http://", "https://")):
        raise ConfigError(
            f'{source}: sampler is "in_process", "vllm" or the URL of a vLLM server such as http://127.0.0.1:8000/v1, '
            f"not {config.sampler!r}"
        )


def _check_fixed(field: str, who: str) -> None:
    if PolicySpec.parse(who).kind == "human":
        raise ConfigError(
            f"{field}: {who!r} cannot hold a seat in training; name a policy that learns in small letters, or say "
            "random, scripted:NAME, MODEL@URL or a run's folder"
        )


def read(name: str) -> dict[str, Any]:
    """The values behind a name: a TOML file, a recipe that ships with marl_gem, or a scenario.

    Raises:
        ConfigError: the file is missing or not TOML, or the name is neither a recipe's nor can be a scenario's.
    """
    if name.endswith(".toml"):
        path = Path(name)
    elif (RECIPES / f"{name}.toml").exists():
        path = RECIPES / f"{name}.toml"
    elif ":" in name or name.endswith(".py"):
        return {"scenario": name}
    else:
        raise ConfigError(
            f"there is no recipe {name!r}, only {', '.join(recipes())}.{did_you_mean(name, recipes())} A scenario's id "
            "has a colon, as in game:KuhnPoker-v0 or FILE.py:Class; a training file's name ends in .toml"
        )
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; recipes that ship: {', '.join(recipes())}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def recipes() -> list[str]:
    """The names of the configurations that ship with marl_gem."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))
