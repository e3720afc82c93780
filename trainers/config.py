"""What a training run can be told. Everything that happens in a run follows from these values."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from marl_gem.errors import ConfigError
from marl_gem.trainers.transitions import NORMALIZATIONS
from marl_gem.views import view

RECIPES = Path(__file__).parent / "recipes"
NO_NAMES = ("human", "scripted", "replay")
"""What sits in a seat elsewhere, and so is no name for a policy that learns."""

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
    spot, `width` wide and `layers` deep with `heads` heads, reading up to `context` tokens, whose tokenizer has
    tokens for whole "lines" or for "words". `view` names how history becomes a prompt; `max_tokens` and
    `temperature` are how answers are drawn. Where several policies learn, each has a model like this.
    """

    start_from: str = ""
    width: Positive = 64
    layers: Positive = 2
    heads: Positive = 4
    context: Positive = 512
    tokens: Literal["lines", "words"] = "lines"
    view: str = "bare"
    max_tokens: Positive = 8
    temperature: Rate = 1.0


class ImitationConfig(_Section, frozen=True):
    """The warm start: `steps` updates on `batch` turns each, out of `games` games.

    They are games of random legal play, or of those whom `seats` names for an agent: `random` or `scripted:NAME`.
    """

    seats: dict[str, str] = {}
    games: Positive = 1000
    steps: Count = 300
    batch: Positive = 128
    learning_rate: Rate = 2e-3


class SelfPlayConfig(_Section, frozen=True):
    """The loop: `updates` updates on `games` games each.

    In a share `older_selves` of the games one seat learns and older versions hold the others that learn; one
    version is kept every `pool_every` updates, and `pool_size` of them at most. In each phase `learning_rate`
    falls along a cosine to a tenth of itself, and the weight of the divergence from the policy that the phase
    began with linearly from `kl` to `kl_final`. `gamma` discounts from one turn of an agent to its next;
    `normalization` is "agent" (per-agent ReBN), "all" or "none"; `clip` is the greatest norm of a gradient.
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


class PhaseConfig(_Section, frozen=True):
    """From update `start` on the `seats` named here are held by others."""

    start: Positive
    seats: dict[str, str]


class RecordConfig(_Section, frozen=True):
    """What is measured and kept.

    `final_games` before and after, `probe_games` every `probe_every` updates for the curve: against random play
    in each seat, or, where `seats` are named, by those who hold them. `options` are other options of the scenario
    for these games, such as tasks that are not trained on. A checkpoint every `save_every` updates; of each
    update's episodes the first `episodes`.
    """

    options: dict[str, Any] = {}
    final_games: Positive = 400
    probe_games: Positive = 100
    probe_every: Positive = 10
    save_every: Positive = 10
    episodes: Count = 8


class TrainConfig(_Section, frozen=True):
    """One run: what is played, with which options for `make`, and the seed of every random choice.

    `seats` names for every agent the policy that holds its seat, see `seating`; empty is self-play. `phases` tell
    which seats change hands later. `threads` is how many CPU threads torch may use; one is best for tiny models,
    0 lets torch choose.
    """

    scenario: str
    options: dict[str, Any] = {}
    seed: Count = 0
    threads: Count = 1
    seats: dict[str, str] = {}
    phases: tuple[PhaseConfig, ...] = ()
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
    if not config.policy.start_from and config.policy.width % config.policy.heads:
        raise ConfigError(
            f"{source}: policy.width is a multiple of policy.heads, not {config.policy.width} for {config.policy.heads}"
        )
    _check_seats(config, source)
    return config


def learns(who: str) -> bool:
    """Whether the holder of a seat is a policy of the run's own, and not `random` or `scripted:NAME`."""
    return who != "random" and not who.startswith("scripted:")


def _check_seats(config: TrainConfig, source: str) -> None:
    """What can be told of seats and phases without the scenario."""
    for seats in (config.seats, *(phase.seats for phase in config.phases)):
        for seat, who in seats.items():
            if learns(who) and (who in NO_NAMES or not re.fullmatch(r"[a-z][a-z0-9_-]*", who)):
                raise ConfigError(
                    f"{source}: {who!r} cannot hold the seat {seat}; name a policy that is to learn in small letters, "
                    "or say random or scripted:NAME"
                )
    for seat, who in config.imitation.seats.items():
        if learns(who):
            raise ConfigError(f"{source}: imitation.seats.{seat} is random or scripted:NAME, not {who!r}")
    if config.phases and not config.seats:
        raise ConfigError(f"{source}: phases change who holds the seats, so name those who begin in `seats`")
    starts = [0, *(phase.start for phase in config.phases), config.self_play.updates]
    if any(later <= earlier for earlier, later in itertools.pairwise(starts)) and config.phases:
        told = ", ".join(str(phase.start) for phase in config.phases)
        raise ConfigError(
            f"{source}: phases start one after the other, before the last of the {config.self_play.updates} updates, "
            f"not at {told}; set phases along with self_play.updates (phases=[] for none)"
        )


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


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
