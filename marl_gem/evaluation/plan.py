"""What is to be played: which policies, in which seats, on which tasks, how often.

    Plan            everything that follows from what was asked for
      ScenarioSpec    the scenario; `ScenarioInfo` has its seats and tasks
      Numbers         n tasks, k repeats, the seed, limits of an episode
      Match           a player for each seat; an evaluation has one match, a grid or a tournament many
        Player          a policy, and the text by which it was asked for
      Slot            one episode of a match: a task and a repeat of it

A task is a seed; it is the same in every match, and n=100 holds the tasks of n=50. A scenario that counts its
tasks, by an attribute `tasks` of its env, is also given the task's number from 0, as the reset option "task".
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

import marl_gem
from marl_gem import bounds
from marl_gem.errors import AgentError, ConfigError
from marl_gem.evaluation.report import Kind, RunConfig
from marl_gem.evaluation.task_choice import TaskOrder, ordered, write_tasks
from marl_gem.llm.models import Models
from marl_gem.policies import Policy
from marl_gem.rollout import Job
from marl_gem.seeding import derive_seed
from marl_gem.specs import ScenarioInfo, ScenarioSpec
from marl_gem.specs.scenario import ScenarioSource
from marl_gem.types import Limits

MOST_MATCHES = 10_000
"""A grid or a tournament has no more matches."""


@dataclass(frozen=True)
class Player:
    """A policy, and the text by which it was asked for, such as `random` or `litellm:gpt-4o,temperature=0`.

    `typed` is false where there is no such text, and `who` is the name of a policy that came from Python. `models` is
    what the policy was loaded with; worker processes load it with the same.
    """

    who: str
    policy: Policy
    typed: bool = True
    models: Models | None = None


Seats: TypeAlias = Policy | Mapping[str, Policy | Player]
"""One policy for all seats, or one for each agent."""


@dataclass(frozen=True)
class Match:
    """A player for each seat, with a short label for tables and pictures.

    `name` tells the matches of a plan apart; the episodes go to `folder` within the run's folder, or, where it is
    empty, to the run's folder itself.
    """

    name: str
    players: Mapping[str, Player]
    labels: Mapping[str, str]
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """One episode: task `index` of a match, for the time number `repeat`, both from 0."""

    id: str
    match: int
    index: int
    repeat: int
    seed: int


class Numbers(msgspec.Struct, frozen=True):
    """How much is played."""

    # How many tasks; None: all tasks that the scenario numbers, else 100.
    n: int | None = None
    # How often each task is played, with other random choices of the agents.
    repeats: int = 1
    # Everything random follows from it.
    seed: int = 0
    # The limits of each episode.
    limits: Limits = Limits()
    # These tasks, by number from 0, instead of the first n.
    tasks: tuple[int, ...] | None = None
    # The order that the n tasks are taken from; None: by grade where the scenario's tasks have grades, else listed.
    order: TaskOrder | None = None
    # The options that `reset` gets in every episode, besides the number of the task.
    reset: dict[str, Any] = {}

    def __post_init__(self) -> None:
        bounds.check_all("", self, {"n": bounds.TASKS, "repeats": bounds.REPEATS, "seed": bounds.SEED})
        if self.tasks is not None and (self.n is not None or self.order is not None):
            raise ConfigError("tasks that are named go without n and without an order; leave out one of them")
        if self.tasks is not None and (not self.tasks or min(self.tasks) < 0 or len({*self.tasks}) < len(self.tasks)):
            raise ConfigError(f"tasks are numbers from 0 up, each once, and at least one; not {self.tasks!r:.80}")

    def continued(self, stored: RunConfig) -> Numbers:
        """The same, with the stored run's choice of tasks and its options where these numbers make none."""
        reset = self.reset or stored.reset
        if self.tasks is not None:
            return msgspec.structs.replace(self, reset=reset)
        if self.n is None and self.order is None and stored.tasks is not None:
            return msgspec.structs.replace(self, tasks=stored.tasks, reset=reset)
        n = stored.n if self.n is None else self.n
        return msgspec.structs.replace(self, n=n, order=self.order or stored.order, reset=reset)


@dataclass(frozen=True)
class Plan:
    """What is to be played.

    `asked` goes into the configuration: `seats` (of an evaluation or a grid) or `players` (of a tournament), and
    `regraded` where recorded episodes are scored again.

    Raises:
        ConfigError: a number is out of range, or the scenario has fewer tasks.
    """

    kind: Kind
    scenario: ScenarioSpec
    info: ScenarioInfo
    numbers: Numbers
    asked: Mapping[str, Any]
    matches: tuple[Match, ...]

    def __post_init__(self) -> None:
        n, tasks, episodes = self.n, self.info.tasks, self.n * self.numbers.repeats * len(self.matches)
        if tasks is not None and n > tasks:
            raise ConfigError(f"{self.info.scenario} has {tasks} tasks, not {n}; to play each again use repeats")
        if tasks is not None and (beyond := [task for task in self.numbers.tasks or () if task >= tasks]):
            raise ConfigError(f"{self.info.scenario} has the tasks 0 to {tasks - 1}, and not {write_tasks(beyond):.80}")
        if tasks is not None and "task" in self.numbers.reset:
            raise ConfigError(f"{self.info.scenario} has numbered tasks: choose them with tasks, not by reset options")
        if self.order == "by grade" and not self.info.grades:
            raise ConfigError(f"the tasks of {self.info.scenario} have no grades to order them by")
        if episodes > bounds.EPISODES.high:
            raise ConfigError(
                f"{n:,} tasks with {self.numbers.repeats:,} repeats in {len(self.matches):,} matches are {episodes:,} "
                f"episodes; a run holds {bounds.EPISODES.high:,} at most"
            )

    @property
    def n(self) -> int:
        """How many tasks."""
        if self.numbers.tasks is not None:
            return len(self.numbers.tasks)
        return self.numbers.n if self.numbers.n is not None else self.info.tasks or 100

    @property
    def order(self) -> TaskOrder:
        """The order that the tasks are taken from."""
        if self.numbers.tasks is not None:
            return "listed"
        return self.numbers.order or ("by grade" if self.info.grades else "listed")

    @cached_property
    def tasks(self) -> Sequence[int]:
        """The numbers of the tasks, in the order of play."""
        if self.numbers.tasks is not None:
            return self.numbers.tasks
        count = self.n if self.info.tasks is None else self.info.tasks
        return ordered(count, self.order, self.info.grades, self.numbers.seed)[: self.n]

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """Every episode by its id, in the order of play: all matches go through the tasks side by side, so that a
        run that is stopped early has played the same tasks in each."""
        order = itertools.product(range(self.numbers.repeats), self.tasks, range(len(self.matches)))
        slots = (self._slot(match, index, repeat) for repeat, index, match in order)
        return {slot.id: slot for slot in slots}

    def _slot(self, match: int, index: int, repeat: int) -> Slot:
        name = self.matches[match].name
        id = f"{name}:{index}.{repeat}" if name else f"{index}.{repeat}"
        return Slot(id, match, index, repeat, derive_seed(self.numbers.seed, "eval", index))

    def job(self, slot: Slot) -> Job:
        """The episode of a slot, for the rollout."""
        return Job(
            seed=slot.seed,
            seating={agent: player.policy for agent, player in self.matches[slot.match].players.items()},
            id=slot.id,
            options={**self.numbers.reset, **({} if self.info.tasks is None else {"task": slot.index})},
            repeat=slot.repeat,
            limits=self.numbers.limits,
        )

    @property
    def players(self) -> list[Player]:
        """All players, each policy once."""
        return list({id(seated.policy): seated for match in self.matches for seated in match.players.values()}.values())

    def config(self) -> RunConfig:
        """What was asked for, as plain data for config.json; an option that is not plain is written as its name."""
        by_text = {player.who: getattr(player.policy, "sampling", None) for player in self.players}
        options, wrappers = self.scenario.options, self.scenario.to_data().get("wrappers", ())
        config = {
            "kind": self.kind,
            "scenario": self.scenario.id if self.scenario.nameable else self.info.scenario,
            "options": options,
            "wrappers": wrappers,
            **self.asked,
            "n": self.n,
            "tasks": self.numbers.tasks,
            "order": self.order,
            "repeats": self.numbers.repeats,
            "reset": self.numbers.reset,
            "seed": self.numbers.seed,
            "limits": msgspec.to_builtins(self.numbers.limits),
            "sampling": {
                text: msgspec.to_builtins(sampling)
                for text, sampling in by_text.items()
                if isinstance(sampling, msgspec.Struct)
            },
            "version": marl_gem.__version__,
        }
        return msgspec.convert(json.loads(json.dumps(config, default=_called)), RunConfig)

    def alone(self, match: Match) -> Plan:
        """The plan of one match that has a folder for itself."""
        asked = {name: value for name, value in self.asked.items() if name == "regraded"}
        return replace(self, kind="cell", asked={**asked, **_seats(match.players)}, matches=(match,))


def plan_evaluation(scenario: ScenarioSource, seats: Seats, numbers: Numbers, info: ScenarioInfo | None = None) -> Plan:
    """One policy in all seats, or one for each agent.

    Args:
        scenario: whatever `ScenarioSpec.parse` takes.
        seats: who plays.
        numbers: how much is played.
        info: what `ScenarioSpec.inspect` gave; by default an env is made to look at.

    Raises:
        AgentError: a seat is empty, or the scenario does not have it.
        ConfigError: a number is out of range.
    """
    spec = ScenarioSpec.parse(scenario)
    info = info or spec.inspect()
    players = _seated(info, seats)
    match = Match("", players, {agent: player.who for agent, player in players.items()})
    return Plan("eval", spec, info, numbers, _seats(players), (match,))


def plan_grid(
    scenario: ScenarioSource,
    seats: Mapping[str, Sequence[Policy | Player]],
    numbers: Numbers,
    info: ScenarioInfo | None = None,
) -> Plan:
    """All combinations of several players for each seat, on the same tasks. See `plan_evaluation` for the rest.

    Raises:
        ConfigError: a seat has no player, or the same player twice.
    """
    spec = ScenarioSpec.parse(scenario)
    info = info or spec.inspect()
    candidates = {agent: [as_player(policy) for policy in policies] for agent, policies in seats.items()}
    for agent, players in candidates.items():
        texts = [player.who for player in players]
        if not texts or len(set(texts)) < len(texts):
            raise ConfigError(f"the players for seat {agent!r} must be one or more, all different; not {texts}")
    _check_matches(math.prod(map(len, candidates.values())))
    labels = {agent: _labels(players) for agent, players in candidates.items()}
    varied = [agent for agent, players in candidates.items() if len(players) > 1]
    matches = []
    for number, combination in enumerate(itertools.product(*candidates.values()), 1):
        seated = _seated(info, dict(zip(candidates, combination, strict=True)))
        called = {agent: labels[agent][player.who] for agent, player in seated.items()}
        name = f"{number:02d}"
        matches.append(Match(name, seated, called, "_".join([name, *(_slug(called[agent]) for agent in varied)])))
    asked = {"seats": {agent: [player.who for player in players] for agent, players in candidates.items()}}
    return Plan("grid", spec, info, numbers, asked, tuple(matches))


def plan_tournament(
    scenario: ScenarioSource, players: Mapping[str, Policy | Player], numbers: Numbers, info: ScenarioInfo | None = None
) -> Plan:
    """A round robin of named players: every ordered choice of different players for the seats plays the same tasks.
    So each sits in each seat equally often, on the same tasks as all others. See `plan_evaluation` for the rest.

    Raises:
        ConfigError: the scenario has one seat, there are fewer players than seats, or a name has other characters
            than letters, digits and . _ + -.
    """
    spec = ScenarioSpec.parse(scenario)
    info = info or spec.inspect()
    seats = len(info.agents)
    if seats < 2:
        raise ConfigError(f"{info.scenario} has one seat; to compare players in it, use marl-gem eval --grid")
    if len(players) < seats:
        raise ConfigError(f"{info.scenario} has {seats} seats; name at least as many players, not {len(players)}")
    for name in players:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise ConfigError(f"{name!r} is no name for a player; use letters, digits and . _ + -")
    _check_matches(math.perm(len(players), seats))
    matches = []
    for names in itertools.permutations(players, seats):
        labels = dict(zip(info.agents, names, strict=True))
        seated = _seated(info, {agent: players[name] for agent, name in labels.items()})
        matches.append(Match(",".join(names), seated, labels))
    asked = {"players": {name: as_player(policy).who for name, policy in players.items()}}
    return Plan("tournament", spec, info, numbers, asked, tuple(matches))


def _check_matches(number: int) -> None:
    if number > MOST_MATCHES:
        raise ConfigError(f"these players can sit in {number:,} ways; a run holds {MOST_MATCHES:,} matches at most")


def as_player(policy: Policy | Player) -> Player:
    """A player; a policy that was not asked for by text goes by its name."""
    return policy if isinstance(policy, Player) else Player(policy.name, policy, typed=False)


def _seated(info: ScenarioInfo, seats: Seats) -> dict[str, Player]:
    """A player for every seat, in the scenario's order.

    Raises:
        AgentError: a seat is empty, or the scenario does not have it.
    """
    if not isinstance(seats, Mapping):
        return dict.fromkeys(info.agents, as_player(seats))
    empty = [agent for agent in info.agents if agent not in seats]
    unknown = [agent for agent in seats if agent not in info.agents and not info.joins]
    if empty or unknown:
        raise AgentError(
            f"{info.scenario} has the seats {', '.join(info.agents)}; without a player: {empty}, unknown: {unknown}"
        )
    return {agent: as_player(seats[agent]) for agent in dict.fromkeys([*info.agents, *seats])}


def _seats(players: Mapping[str, Player]) -> dict[str, Any]:
    return {"seats": {agent: player.who for agent, player in players.items()}}


def _labels(players: Sequence[Player]) -> dict[str, str]:
    """What to call the players of one seat: the names of their policies, if these tell them apart."""
    names = [player.policy.name for player in players]
    unique = len(set(names)) == len(names)
    return {player.who: name if unique else player.who for player, name in zip(players, names, strict=True)}


def _called(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _slug(label: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", label).strip("-.")[:40]
