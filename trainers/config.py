"""What a training run is told. Everything that happens in a run follows from these values.

A configuration is plain data, from a TOML file or a command line; `parse` makes a frozen `TrainConfig` of it. The
comment above each field gives its meaning, unit, range and source; the reference page is made from these comments.
"""

from __future__ import annotations

import difflib
import itertools
import math
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.runs.configuration import rename_keys
from marl_gem.runs.folder import read_config as read_plain_config
from marl_gem.specs import PolicySpec, ScenarioSpec, is_learner_name
from marl_gem.views import view

RECIPES = Path(__file__).parent / "recipes"

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveFloat = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]

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


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the configuration; an unknown name in it is an error."""


class TrainingScenario(_Section, frozen=True):
    """A scenario that is trained on."""

    # The scenario: an id such as "game:KuhnPoker-v0", `package.module:Class` or `path/to/file.py:Class`.
    id: str
    # Options for `make`, by name.
    options: dict[str, Any] = {}
    # Options that differ in the episodes that measure the policies, such as tasks that are not trained on.
    test_options: dict[str, Any] = {}
    # Wrappers around the env, the innermost first, as in "time_limit=20"; see `marl_gem.wrappers`.
    wrappers: tuple[str, ...] = ()
    # The share of each update's episodes that are of this scenario, in proportion to the other weights.
    weight: PositiveFloat = 1.0
    # Who holds each seat of this scenario, where that differs from the run's `seats`.
    seats: dict[str, str] = {}

    @property
    def spec(self) -> ScenarioSpec:
        """The scenario as it is trained on."""
        return ScenarioSpec.parse(self.id, self.options, self.wrappers)

    @property
    def test_spec(self) -> ScenarioSpec:
        """The scenario as the policies are measured on it."""
        return self.spec.with_options(self.test_options)


class PolicyConfig(_Section, frozen=True):
    """The model, what it is shown and how its responses are sampled. Where several policies learn, each has its own."""

    # A folder with a transformers model and its tokenizer to start from. Empty: a tiny model with random weights.
    start_from: str = ""
    # Of a tiny model: the size of the hidden states, a multiple of `heads`.
    width: Positive = 64
    # Of a tiny model: the number of layers.
    layers: Positive = 2
    # Of a tiny model: the number of attention heads.
    heads: Positive = 4
    # Of a tiny model: the greatest number of tokens it reads, prompt and response together.
    context: Positive = 512
    # Of a tiny model's tokenizer: what a token holds at most, a line ("lines") or a word with what stands before it.
    tokens: Literal["lines", "words"] = "lines"
    # How an agent's history becomes the next prompt: the name of a view, see `marl_gem.views`.
    view: str = "bare"
    # The longest response, in tokens.
    max_tokens: Positive = 8
    # The temperature that responses are sampled at, above 0. Trained log-probabilities are those at this temperature.
    temperature: PositiveFloat = 1.0


class ImitationConfig(_Section, frozen=True):
    """The warm start: a fresh model learns to answer at all, from demonstrations."""

    # Who is imitated in each seat, as in a command line's --seat: scripted:NAME, MODEL@URL, ...; by default random.
    seats: dict[str, str] = {}
    # How many episodes are demonstrated.
    episodes: Positive = 1000
    # How many optimizer steps each policy takes; 0 for a model that needs no warm start.
    steps: Count = 300
    # How many turns a step learns from, about.
    batch: Positive = 128
    # The learning rate of the first step; it falls along a line to a tenth of it.
    learning_rate: PositiveFloat = 2e-3


class AlgorithmConfig(_Section, frozen=True):
    """How advantages and the loss are computed."""

    # The algorithm: "rebn", "rloo", one that was registered, or `package.module:Class`.
    name: str = "rebn"
    # The algorithm's own options, see `Options` in its file.
    options: dict[str, Any] = {}


class TrainingConfig(_Section, frozen=True):
    """The loop: updates, each on fresh episodes."""

    # How many updates there are.
    updates: Count = 100
    # How many episodes are played for each update, over all scenarios.
    episodes: Positive = 256
    # The learning rate at the beginning of each phase; it falls along a cosine to a tenth of it at the end.
    learning_rate: PositiveFloat = 1e-3
    # The discount from one turn of an agent to its next, from 0 to 1.
    gamma: Share = 1.0
    # The weight of the divergence from the reference, the policy as it was when the phase began, in nats a sampled
    # token; it changes along a line from `kl` to `kl_final` in each phase. With both 0 there is no reference.
    kl: Weight = 0.2
    # The weight at the end of each phase.
    kl_final: Weight = 0.05
    # The greatest norm of an update's gradient; a longer one is scaled down to it.
    max_grad_norm: PositiveFloat = 1.0
    # The greatest number of tokens, padding included, in one forward and backward pass. It changes the memory that an
    # update takes, and its gradient only by rounding.
    micro_batch_tokens: Positive = 16_384
    # The share of episodes in which one seat learns and earlier versions of the policies hold the other learning seats.
    opponent_pool_fraction: Share = 0.25
    # A version of each policy goes into its pool every so many of its updates.
    snapshot_every: Positive = 10
    # The greatest number of versions in a pool. When it is full, every second one goes, so that it spans the whole run.
    pool_size: Positive = 8
    # A checkpoint is written every so many updates.
    save_every: Positive = 10
    # How many of each update's episodes are written to episodes.jsonl.
    keep_episodes: Count = 8


class EvaluationConfig(_Section, frozen=True):
    """How the policies are measured."""

    # In self-play, whom the policy meets in each seat, as in a command line's --seat: random, scripted:NAME,
    # MODEL@URL, ... The run's score is the one against the first. Where no legal actions are listed, random play is
    # left out.
    opponents: tuple[str, ...] = ("random",)
    # How many episodes of each seating are played before and after training, and at the end of a phase.
    final_episodes: Positive = 400
    # How many episodes of each seating are played for a point of the curve.
    probe_episodes: Positive = 100
    # A point of the curve is measured every so many updates.
    probe_every: Positive = 10


class PhaseConfig(_Section, frozen=True):
    """A change of who holds which seat."""

    # The update from which on it holds, from 1 up.
    start: Positive
    # Who holds these seats from then on; seats that are not named stay as they were.
    seats: dict[str, str]


class TrainConfig(_Section, frozen=True):
    """One run."""

    # What is trained on. A file may write `scenario = "ID"` (with `options`, `test_options` and `wrappers`), a table
    # `[scenario]`, or several tables `[[scenarios]]`.
    scenarios: tuple[TrainingScenario, ...]
    # The seed that every random choice of the run follows from.
    seed: Count = 0
    # Where the models are: "cpu", "cuda", "cuda:1", "mps"; "auto" is a GPU if there is one.
    device: str = "auto"
    # How many CPU threads torch may use; one is best for tiny models, 0 lets torch choose.
    threads: Count = 1
    # Who holds each seat. A name in small letters is a policy that learns; anything else is a policy as in a command
    # line's --seat (random, scripted:NAME, MODEL@URL, hf:FOLDER, runs/x@120, ...) and does not learn. Empty: one
    # policy holds all seats.
    seats: dict[str, str] = {}
    # When seats change hands, in order.
    phases: tuple[PhaseConfig, ...] = ()
    policy: PolicyConfig = PolicyConfig()
    imitation: ImitationConfig = ImitationConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def is_self_play(self) -> bool:
        """Whether one policy holds all seats of all scenarios, because no seats are named."""
        return not self.seats and not any(scenario.seats for scenario in self.scenarios)

    @property
    def title(self) -> str:
        """The scenarios' ids."""
        return " + ".join(scenario.id for scenario in self.scenarios)


_SECTIONS: dict[str, type[_Section]] = {
    "scenarios": TrainingScenario,
    "phases": PhaseConfig,
    "policy": PolicyConfig,
    "imitation": ImitationConfig,
    "algorithm": AlgorithmConfig,
    "training": TrainingConfig,
    "evaluation": EvaluationConfig,
}


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
        from marl_gem.trainers.algorithms import make_algorithm
    except ImportError as error:
        raise MissingPackage(error.name or "torch", "train", "training") from error
    algorithm = make_algorithm(config.algorithm.name, config.algorithm.options)
    if config.training.episodes % algorithm.needs.group_size:
        raise ConfigError(
            f"{source}: training.episodes is a multiple of the algorithm's group size, {algorithm.needs.group_size}, "
            f"not {config.training.episodes}"
        )
    return config


def check(values: dict[str, Any], source: str) -> TrainConfig:
    """As `parse`, without looking at the algorithm; so it needs no torch."""
    _refuse_old_names(values, source)
    config = _converted(values, source)
    _check_finite(config, source)
    _check_policy(config.policy, source)
    _check_seats(config, source)
    for scenario in config.scenarios:
        _ = scenario.spec
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
    short = {name: values.pop(name) for name in ("scenario", "options", "test_options", "wrappers") if name in values}
    if "scenario" not in short and not values.get("scenarios"):
        raise ConfigError(f"{source}: name what is trained on, as in scenario = 'game:KuhnPoker-v0'")
    if "scenarios" in values:
        if short:
            raise ConfigError(
                f"{source}: with [[scenarios]], {', '.join(short)} cannot stand beside them; write each scenario's "
                "options, test_options and wrappers into its table"
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
    """Options with others that count more, or wrappers with others around them."""
    if isinstance(inner, dict) and isinstance(outer, dict):
        return {**inner, **outer}
    if isinstance(inner, list) and isinstance(outer, list):
        return [*inner, *outer]
    raise ConfigError(f"{field} is a {'list of wrappers' if field.endswith('wrappers') else 'table of options'}")


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
    section = path.partition("$.")[2].rstrip("`").partition("[")[0]
    here = {field: field for field in _SECTIONS.get(section, TrainConfig).__struct_fields__}
    kinds: dict[str, type[msgspec.Struct]] = {"": TrainConfig, **_SECTIONS}
    elsewhere = {
        field: f"{name}.{field}" if name else field for name, kind in kinds.items() for field in kind.__struct_fields__
    }
    exact = {field: name for field, name in elsewhere.items() if field == unknown}
    for fields in (exact, here, elsewhere):
        if near := difflib.get_close_matches(unknown, fields, 1):
            return f". Did you mean {fields[near[0]]}?"
    return ""


def _check_finite(config: TrainConfig, source: str) -> None:
    for name, section in (("policy", config.policy), ("imitation", config.imitation), ("training", config.training)):
        for field, value in msgspec.structs.asdict(section).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{source}: {name}.{field} is a finite number, not {value}")
    for scenario in config.scenarios:
        if not math.isfinite(scenario.weight):
            raise ConfigError(f"{source}: a scenario's weight is a finite number, not {scenario.weight}")


def _check_policy(policy: PolicyConfig, source: str) -> None:
    view(policy.view)
    if not policy.start_from and policy.width % policy.heads:
        raise ConfigError(
            f"{source}: policy.width is a multiple of policy.heads, not {policy.width} for {policy.heads}"
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


def _check_fixed(field: str, who: str) -> None:
    if PolicySpec.parse(who).kind == "human":
        raise ConfigError(
            f"{field}: {who!r} cannot hold a seat in training; name a policy that learns in small letters, or say "
            "random, scripted:NAME, MODEL@URL or a run's folder"
        )


def read(name: str) -> dict[str, Any]:
    """The values behind a name: a TOML file, a recipe that ships with marl_gem, or a scenario.

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
