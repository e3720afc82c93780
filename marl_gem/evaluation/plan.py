"""What is to be played: who meets whom, on which tasks, how often.

    Plan        everything that follows from what was asked
      Ground      the scenario: how to make an env, its seats, its tasks
      Numbers     n tasks, k repeats, one seed, limits of an episode
      Match       who sits where; an evaluation has one, a grid or a tournament many
        Player      a policy, and what it was called when it was asked for
      Slot        one episode of a match: a task and a repeat of it

A task is a seed; it is the same in every match, and n=100 holds the tasks of n=50. A scenario that counts its
tasks, by an attribute `tasks` of its env, is also given the task's number from 0, as the reset option "task".
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

import marl_gem
from marl_gem import registry
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import AgentError, ConfigError, ScenarioFault
from marl_gem.policies import Policy
from marl_gem.rollout import Job
from marl_gem.seeding import derive_seed
from marl_gem.types import Limits

FORMAT = 1
Kind: TypeAlias = Literal["eval", "grid", "cell", "tournament"]
Config: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Player:
    """A policy, and the text by which it was asked for, such as `random` or `litellm:gpt-4o,temperature=0`.

    `typed` is false where nobody wrote that text: it is the name of a policy that came from Python.
    """

    who: str
    policy: Policy
    typed: bool = True


Seats: TypeAlias = Policy | Mapping[str, Policy | Player]
"""One policy for all seats, or one for each agent."""


@dataclass(frozen=True)
class Match:
    """Who sits where. `labels` says what to call the players of the seats in tables and pictures.

    `name` tells the matches of a plan apart; the episodes go to `folder` within the run's, or to that itself.
    """

    name: str
    players: Mapping[str, Player]
    labels: Mapping[str, str]
    folder: str = ""


@dataclass(frozen=True)
class Slot:
    """One episode: task `index` of a match, for the time number `repeat`, both from 0."""

    id: str
    match: int
    index: int
    repeat: int
    seed: int


class Numbers(msgspec.Struct, frozen=True):
    """How much is played: `n` tasks, `repeats` times each.

    By default `n` is all tasks that the scenario counts, else 100. Repeats play a task again with other random
    choices of the agents. Everything random follows from `seed`; `limits` are of each episode.
    """

    n: int | None = None
    repeats: int = 1
    seed: int = 0
    limits: Limits = Limits()


@dataclass(frozen=True)
class Ground:
    """What one look at an env tells of its scenario. `named`: the scenario was asked for by its id."""

    scenario: str
    named: bool
    make: Callable[[], MultiAgentEnv]
    made_with: Mapping[str, Any]
    agents: tuple[str, ...]
    joins: bool
    tasks: int | None
    competitive: bool
    trivial_baselines: Mapping[str, Sequence[float]]

    @classmethod
    def of(cls, scenario: str | Callable[[], MultiAgentEnv], options: Mapping[str, Any] | None = None) -> Ground:
        """Look at a scenario.

        Args:
            scenario: an id, or what makes an env.
            options: what `make` is given, for a scenario named by its id.

        Raises:
            RegistryError, MissingPackage: it cannot be made.
            ScenarioFault: its trivial_baselines are not one share for each task.
        """
        made_with, named = dict(options or {}), isinstance(scenario, str)
        if made_with and not named:
            raise ConfigError("options are for scenarios named by an id; a function that makes envs knows its own")
        make = functools.partial(registry.make, scenario, **made_with) if isinstance(scenario, str) else scenario
        env = make()
        try:
            agents, tasks = tuple(env.possible_agents), env.tasks
            counted = tasks if isinstance(tasks, int) else None
            joins, competitive = env.metadata.joins, env.metadata.zero_sum is True
            trivial_baselines = _trivial_baselines(env, counted)
            return cls(env.scenario, named, make, made_with, agents, joins, counted, competitive, trivial_baselines)
        finally:
            env.close()

    def seat(self, seats: Seats) -> dict[str, Player]:
        """A player for every seat, in the scenario's order.

        Raises:
            AgentError: a seat is empty, or is none of the scenario's.
        """
        if not isinstance(seats, Mapping):
            return dict.fromkeys(self.agents, as_player(seats))
        empty = [agent for agent in self.agents if agent not in seats]
        unknown = [agent for agent in seats if agent not in self.agents and not self.joins]
        if empty or unknown:
            raise AgentError(
                f"{self.scenario} has the seats {', '.join(self.agents)}; without a player: {empty}, unknown: {unknown}"
            )
        return {agent: as_player(seats[agent]) for agent in dict.fromkeys([*self.agents, *seats])}


@dataclass(frozen=True)
class Plan:
    """What is to be played. `asked` is what goes into the configuration: the seats, or the players.

    Raises:
        ConfigError: a number makes no sense, or the scenario has fewer tasks.
    """

    kind: Kind
    ground: Ground
    numbers: Numbers
    asked: Mapping[str, Any]
    matches: tuple[Match, ...]

    def __post_init__(self) -> None:
        n, repeats, seed, tasks = self.n, self.numbers.repeats, self.numbers.seed, self.ground.tasks
        if n < 1 or repeats < 1 or seed < 0:
            raise ConfigError(f"n and repeats count from 1, the seed from 0; not n={n}, repeats={repeats}, seed={seed}")
        if tasks is not None and n > tasks:
            raise ConfigError(f"{self.ground.scenario} has {tasks} tasks, not {n}; to play each again use repeats")

    @property
    def n(self) -> int:
        """How many tasks."""
        return self.numbers.n if self.numbers.n is not None else self.ground.tasks or 100

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """Every episode by its id, in the order of play: all matches go through the tasks side by side, so that a
        run that is stopped early has played the same tasks in each."""
        places = itertools.product(range(self.numbers.repeats), range(self.n), range(len(self.matches)))
        slots = (self._slot(match, index, repeat) for repeat, index, match in places)
        return {slot.id: slot for slot in slots}

    def _slot(self, match: int, index: int, repeat: int) -> Slot:
        name = self.matches[match].name
        id = f"{name}:{index}.{repeat}" if name else f"{index}.{repeat}"
        return Slot(id, match, index, repeat, derive_seed(self.numbers.seed, "eval", index))

    def job(self, slot: Slot) -> Job:
        return Job(
            seed=slot.seed,
            seating={agent: player.policy for agent, player in self.matches[slot.match].players.items()},
            id=slot.id,
            options={} if self.ground.tasks is None else {"task": slot.index},
            repeat=slot.repeat,
            limits=self.numbers.limits,
        )

    @property
    def players(self) -> list[Player]:
        """Everybody who plays, each once."""
        return list({id(seated.policy): seated for match in self.matches for seated in match.players.values()}.values())

    def config(self) -> Config:
        """What was asked, as plain data for config.json; an option that is none goes by its name."""
        drawn = {player.who: getattr(player.policy, "sampling", None) for player in self.players}
        sampling = {who: msgspec.to_builtins(how) for who, how in drawn.items() if isinstance(how, msgspec.Struct)}
        config = {
            "format": FORMAT,
            "kind": self.kind,
            "scenario": self.ground.scenario,
            "options": self.ground.made_with,
            **self.asked,
            "n": self.n,
            "repeats": self.numbers.repeats,
            "seed": self.numbers.seed,
            "limits": msgspec.to_builtins(self.numbers.limits),
            "sampling": sampling,
            "version": marl_gem.__version__,
        }
        plain: Config = json.loads(json.dumps(config, default=_called))
        return plain

    def alone(self, match: Match) -> Plan:
        """The plan of one match that has a folder of its own."""
        return replace(self, kind="cell", asked=_seats(match.players), matches=(match,))


def plan_evaluation(ground: Ground, seats: Seats, numbers: Numbers) -> Plan:
    """One policy in all seats, or one for each agent."""
    players = ground.seat(seats)
    match = Match("", players, {agent: player.who for agent, player in players.items()})
    return Plan("eval", ground, numbers, _seats(players), (match,))


def plan_grid(ground: Ground, seats: Mapping[str, Sequence[Policy | Player]], numbers: Numbers) -> Plan:
    """All combinations of several players for each seat, on the same tasks.

    Raises:
        ConfigError: a seat has nobody, or the same player twice.
    """
    candidates = {agent: [as_player(policy) for policy in several] for agent, several in seats.items()}
    for agent, several in candidates.items():
        if not several or len({player.who for player in several}) < len(several):
            whos = [player.who for player in several]
            raise ConfigError(f"the players for seat {agent!r} must be one or more, all different; not {whos}")
    labels = {agent: _labels(several) for agent, several in candidates.items()}
    varied = [agent for agent, several in candidates.items() if len(several) > 1]
    matches = []
    for number, seated in enumerate(itertools.product(*candidates.values()), 1):
        players = ground.seat(dict(zip(candidates, seated, strict=True)))
        called = {agent: labels[agent][player.who] for agent, player in players.items()}
        name = f"{number:02d}"
        matches.append(Match(name, players, called, "_".join([name, *(_slug(called[agent]) for agent in varied)])))
    asked = {"seats": {agent: [player.who for player in several] for agent, several in candidates.items()}}
    return Plan("grid", ground, numbers, asked, tuple(matches))


def plan_tournament(ground: Ground, players: Mapping[str, Policy | Player], numbers: Numbers) -> Plan:
    """A round robin of players, who go by their names: every ordered choice of different players for the seats
    plays the same tasks. So each sits in each seat equally often, and meets there what all others meet.

    Raises:
        ConfigError: the scenario has one seat, there are fewer players than seats, or a name is none.
    """
    seats = len(ground.agents)
    if seats < 2:
        raise ConfigError(f"{ground.scenario} has one seat; to compare players in it, use marl-gem eval --grid")
    if len(players) < seats:
        raise ConfigError(f"{ground.scenario} has {seats} seats; name at least as many players, not {len(players)}")
    for name in players:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise ConfigError(f"{name!r} is no name for a player; use letters, digits and . _ + -")
    matches = []
    for names in itertools.permutations(players, seats):
        labels = dict(zip(ground.agents, names, strict=True))
        seated = ground.seat({agent: players[name] for agent, name in labels.items()})
        matches.append(Match(",".join(names), seated, labels))
    asked = {"players": {name: as_player(policy).who for name, policy in players.items()}}
    return Plan("tournament", ground, numbers, asked, tuple(matches))


def as_player(policy: Policy | Player) -> Player:
    """A player; one who was not asked for by text goes by its policy's name."""
    return policy if isinstance(policy, Player) else Player(policy.name, policy, typed=False)


def differences(stored: Config, wanted: Config) -> list[str]:
    """Where a run's configuration and another differ, field by field. `n` and `repeats` may grow; the version of
    marl_gem may change."""
    grown = {"n", "repeats"}
    told = []
    was, now = _flat(stored), _flat(wanted)
    for name in dict.fromkeys([*was, *now]):
        before, after = was.get(name), now.get(name)
        if name == "version" or before == after:
            continue
        if name in grown and isinstance(before, int) and isinstance(after, int) and after > before:
            continue
        told.append(f"{name} was {_told(before)} and would be {_told(after)}")
    return told


def _seats(players: Mapping[str, Player]) -> dict[str, Any]:
    return {"seats": {agent: player.who for agent, player in players.items()}}


def _trivial_baselines(env: MultiAgentEnv, tasks: int | None) -> Mapping[str, Sequence[float]]:
    """A scenario's trivial baselines, if they are what the contract says."""
    trivial_baselines = env.trivial_baselines
    for name, shares in trivial_baselines.items():
        if not isinstance(shares, Sequence) or len(shares) != tasks or not all(0 <= share <= 1 for share in shares):
            raise ScenarioFault(
                f"{env.scenario}: trivial_baselines[{name!r}] must hold a share from 0 to 1 for each of its tasks, "
                f"of which there are {tasks or 'none'}; not {shares!s:.80}"
            )
    return trivial_baselines


def _labels(players: Sequence[Player]) -> dict[str, str]:
    """What to call the players of one seat: the names of their policies, if these tell them apart."""
    names = [player.policy.name for player in players]
    unique = len(set(names)) == len(names)
    return {player.who: name if unique else player.who for player, name in zip(players, names, strict=True)}


def _called(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _slug(label: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", label).strip("-.")[:40]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _told(value: Any) -> str:
    return "not set" if value is None else repr(value)
