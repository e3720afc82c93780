"""What a training run can be told. Everything that happens in a run follows from these values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from marl_gem.errors import ConfigError
from marl_gem.trainers.transitions import NORMALIZATIONS
from marl_gem.views import view

RECIPES = Path(__file__).parent / "recipes"

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Rate = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the configuration; an unknown name in it is an error."""


class PolicyConfig(_Section, frozen=True):
    """The model, what it is shown and how it answers.

    `start_from` is a folder with a transformers model and its tokenizer; empty makes a tiny model on the
    spot, `width` wide and `layers` deep with `heads` heads, reading up to `context` tokens. `view` names how
    history becomes a prompt; `max_tokens` and `temperature` are how answers are drawn.
    """

    start_from: str = ""
    width: Positive = 64
    layers: Positive = 2
    heads: Positive = 4
    context: Positive = 512
    view: str = "bare"
    max_tokens: Positive = 8
    temperature: Rate = 1.0


class ImitationConfig(_Section, frozen=True):
    """The warm start: `steps` updates on `batch` turns each, out of `games` games of random legal play."""

    games: Positive = 1000
    steps: Count = 300
    batch: Positive = 128
    learning_rate: Rate = 2e-3


class SelfPlayConfig(_Section, frozen=True):
    """The loop: `updates` updates on `games` games each.

    In a share `older_selves` of the games one seat learns and an older version holds the others; one
    version is kept every `pool_every` updates, and `pool_size` of them at most. `learning_rate` falls along
    a cosine to a tenth of itself, `entropy_bonus` linearly to 0. `gamma` discounts from one turn of an
    agent to its next; `normalization` is "agent" (per-agent ReBN), "all" or "none"; `clip` is the greatest
    norm of a gradient.
    """

    updates: Count = 100
    games: Positive = 256
    older_selves: Share = 0.25
    pool_every: Positive = 10
    pool_size: Positive = 8
    learning_rate: Rate = 1e-3
    gamma: Share = 1.0
    normalization: str = "agent"
    kl: Weight = 0.2
    kl_final: Weight = 0.05
    clip: Rate = 1.0


class RecordConfig(_Section, frozen=True):
    """What is measured and kept.

    `final_games` against random play in each seat before and after, `probe_games` every `probe_every`
    updates for the curve; a checkpoint every `save_every` updates; of each update's episodes the first
    `episodes`.
    """

    final_games: Positive = 400
    probe_games: Positive = 100
    probe_every: Positive = 10
    save_every: Positive = 10
    episodes: Count = 8


class TrainConfig(_Section, frozen=True):
    """One self-play run: what is played, with which options for `make`, and the seed of every random choice.

    `threads` is how many CPU threads torch may use; one is best for tiny models, 0 lets torch choose.
    """

    scenario: str
    options: dict[str, Any] = {}
    seed: Count = 0
    threads: Count = 1
    policy: PolicyConfig = PolicyConfig()
    imitation: ImitationConfig = ImitationConfig()
    self_play: SelfPlayConfig = SelfPlayConfig()
    record: RecordConfig = RecordConfig()


def parse(values: dict[str, Any], source: str) -> TrainConfig:
    """A configuration from plain data.

    Raises:
        ConfigError: a name is unknown or a value makes no sense; the message says which, and in what `source`.
    """
    try:
        config = msgspec.convert(values, TrainConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}") from error
    if config.self_play.normalization not in NORMALIZATIONS:
        raise ConfigError(f"{source}: self_play.normalization is one of {', '.join(NORMALIZATIONS)}")
    view(config.policy.view)
    return config


def read(name: str) -> dict[str, Any]:
    """The values behind a name: a TOML file, a recipe that ships with marl_gem, or a scenario id.

    Raises:
        ConfigError: the file is missing or not TOML.
    """
    if name.endswith(".toml"):
        path = Path(name)
    elif (RECIPES / f"{name}.toml").exists():
        path = RECIPES / f"{name}.toml"
    else:
        return {"scenario": name}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; recipes that ship: {', '.join(recipes())}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def recipes() -> list[str]:
    """The names of the configurations that ship with marl_gem."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def differences(before: TrainConfig, after: TrainConfig) -> list[str]:
    """Where two configurations differ, as `name: before -> after`."""
    flat_before, flat_after = _flat(msgspec.to_builtins(before)), _flat(msgspec.to_builtins(after))
    names = sorted(flat_before.keys() | flat_after.keys())
    return [
        f"{name}: {flat_before.get(name)!r} -> {flat_after.get(name)!r}"
        for name in names
        if flat_before.get(name) != flat_after.get(name)
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
