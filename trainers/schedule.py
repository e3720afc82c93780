"""What changes in the course of a run: who holds which seat, the learning rate, the pull to the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from marl_gem.errors import ConfigError
from marl_gem.specs import is_learner_name
from marl_gem.trainers.sections import TrainConfig, TrainingConfig

SHARED_POLICY = "policy"
"""The name of the policy that holds all seats, where nothing else is said."""

Seating: TypeAlias = dict[str, str]
"""For each seat of a scenario who holds it: the name of a policy that learns, or the text of another."""


@dataclass(frozen=True)
class TrainingPhase:
    """The updates from `start` up to, not including, `end`, who holds the seats in them, and who learns.

    `seatings` has one entry for each of the run's scenarios, in their order. `only` are the policies that learn; empty
    for all that hold a seat.
    """

    start: int
    end: int
    seatings: tuple[Seating, ...]
    only: tuple[str, ...] = ()

    def policies(self, scenario: int) -> Seating:
        """The seats of a scenario, by its index, that policies of the run hold, and these policies' names."""
        return {seat: who for seat, who in self.seatings[scenario].items() if is_learner_name(who)}

    def learning(self, scenario: int) -> Seating:
        """Those of them whose policies learn."""
        return {seat: who for seat, who in self.policies(scenario).items() if not self.only or who in self.only}

    @property
    def learners(self) -> tuple[str, ...]:
        """The names of the policies that learn."""
        learning = (self.learning(scenario) for scenario in range(len(self.seatings)))
        return tuple(dict.fromkeys(who for seats in learning for who in seats.values()))

    def at(self, update: int, alternate_every: int) -> TrainingPhase:
        """The phase as it is at an update: with an interval one policy learns at a time, in turn."""
        if not alternate_every or len(self.learners) < 2:
            return self
        turn = (update - self.start) // alternate_every
        return replace(self, only=(self.learners[turn % len(self.learners)],))

    @property
    def length(self) -> int:
        """The number of its updates."""
        return self.end - self.start


def training_phases(config: TrainConfig, agents: Sequence[Sequence[str]]) -> list[TrainingPhase]:
    """The phases of a run, in order; there is at least one.

    Args:
        config: the run's.
        agents: the seats of each scenario.

    Raises:
        ConfigError: a seat is none of a scenario's, or empty, or nobody learns.
    """
    known = list(dict.fromkeys(seat for seats in agents for seat in seats))
    if unknown := [seat for seat in config.seats if seat not in known]:
        raise ConfigError(f"seats: {config.title} has no agent {unknown[0]!r}; its agents are {', '.join(known)}")
    seatings = [_seating(config, index, seats) for index, seats in enumerate(agents)]
    starts = [0, *(phase.start for phase in config.phases)]
    ends = [*starts[1:], config.training.updates]
    phases: list[TrainingPhase] = []
    changed = [({}, config.learning), *((phase.seats, phase.learning) for phase in config.phases)]
    for start, end, (changes, only) in zip(starts, ends, changed, strict=True):
        if unknown := [seat for seat in changes if not any(seat in seating for seating in seatings)]:
            raise ConfigError(f"phases: {config.title} has no agent {unknown[0]!r}")
        seatings = [{seat: changes.get(seat, who) for seat, who in seating.items()} for seating in seatings]
        phases.append(TrainingPhase(start, end, tuple(seatings)))
        if idle := [name for name in only if name not in phases[-1].learners]:
            raise ConfigError(
                f"learning: {idle[0]!r} holds no seat from update {start} on; there are "
                f"{', '.join(phases[-1].learners) or 'no policies that could learn'}"
            )
        phases[-1] = replace(phases[-1], only=only)
        if not phases[-1].learners:
            raise ConfigError(
                f"nobody learns from update {start} on; give a seat the name of a policy, in small letters"
            )
    return phases


def _seating(config: TrainConfig, index: int, agents: Sequence[str]) -> Seating:
    """Who holds the seats of a scenario at first."""
    scenario = config.scenarios[index]
    given = (
        {**config.seats, **scenario.seats}
        if len(config.scenarios) == 1
        else {
            **{seat: who for seat, who in config.seats.items() if seat in agents},
            **scenario.seats,
        }
    )
    if not given:
        return dict.fromkeys(agents, SHARED_POLICY)
    if unknown := [seat for seat in given if seat not in agents]:
        raise ConfigError(f"seats: {scenario.id} has no agent {unknown[0]!r}; its agents are {', '.join(agents)}")
    if empty := [seat for seat in agents if seat not in given]:
        raise ConfigError(
            f"seats: nobody holds the seat of {', '.join(map(repr, empty))} in {scenario.id}; name a policy or random"
        )
    return {seat: given[seat] for seat in agents}


def learner_seats(phases: Sequence[TrainingPhase]) -> dict[str, tuple[set[str], ...]]:
    """The run's policies, by name, and for each scenario the seats that they ever hold."""
    scenarios = range(len(phases[0].seatings))
    names = dict.fromkeys(who for phase in phases for index in scenarios for who in phase.policies(index).values())
    return {
        name: tuple(
            {seat for phase in phases for seat, who in phase.policies(scenario).items() if who == name}
            for scenario in scenarios
        )
        for name in names
    }


def learning_rate(training: TrainingConfig, done: int, total: int) -> float:
    """The learning rate after `done` of a phase's `total` updates; see the fields of `TrainingConfig`."""
    highest = training.learning_rate
    falling = {
        "cosine": cosine(highest, done, total),
        "linear": linear(highest, highest / 10, done, total),
        "constant": highest,
    }
    return falling[training.learning_rate_schedule] * min(1.0, (done + 1) / (training.warmup_updates + 1))


def cosine(start: float, done: int, total: int) -> float:
    """Along a cosine from `start` to a tenth of it, after `done` of `total` updates."""
    return start * (0.55 + 0.45 * math.cos(math.pi * done / total))


def linear(start: float, end: float, done: int, total: int) -> float:
    """Along a line from `start` to `end`, after `done` of `total` updates."""
    return start + (end - start) * done / total


def shares(total: int, weights: Sequence[float], multiple: int = 1) -> list[int]:
    """`total` split in proportion to the weights, into multiples of `multiple`, as exactly as that allows."""
    units = total // multiple
    exact = [units * weight / sum(weights) for weight in weights]
    counts = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(weights)), key=lambda index: counts[index] - exact[index])
    for index in by_remainder[: units - sum(counts)]:
        counts[index] += 1
    return [count * multiple for count in counts]
