"""Which episodes an update plays, who learns from each, and whom they meet; everything follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marl_gem.seeding import derive_seed
from marl_gem.trainers.league import League, Opponent
from marl_gem.trainers.opponent_pool import OpponentPool, Snapshot
from marl_gem.trainers.schedule import SHARED_POLICY, TrainingPhase, shares
from marl_gem.trainers.sections import TrainConfig


@dataclass(frozen=True)
class PlannedEpisode:
    """An episode that is to be played.

    `scenario` is the index of its scenario, `learning` the seats that learn from it, `group` what it shares with the
    episodes that start from the same state. `opponents` hold other seats of the run's policies, by seat; in all
    other seats of these are the newest versions.
    """

    id: str
    seed: int
    repeat: int
    scenario: int
    learning: tuple[str, ...]
    group: str
    opponents: Mapping[str, Opponent]


@dataclass(frozen=True)
class Plan:
    """The episodes of one update, and the earlier versions that are needed to play them, by policy and version.

    With `fork` the episodes of a group continue from the same state in mid-episode.
    """

    update: int
    phase: TrainingPhase
    episodes: Sequence[PlannedEpisode]
    past: Mapping[tuple[str, int], Snapshot]
    fork: bool = False

    def parts(self, scenario: int) -> list[tuple[dict[str, int], list[PlannedEpisode]]]:
        """The episodes of a scenario, by the earlier version of each policy that they need.

        Those that need none join the first part.
        """
        entries = [entry for entry in self.episodes if entry.scenario == scenario]
        seating = self.phase.seatings[scenario]
        parts: dict[tuple[tuple[str, int], ...], list[PlannedEpisode]] = {}
        for entry in entries:
            past = {seating[seat]: o.version for seat, o in entry.opponents.items() if o.kind == "past"}
            parts.setdefault(tuple(sorted(past.items())), []).append(entry)
        plain = parts.pop((), [])
        groups = [(dict(versions), part) for versions, part in parts.items()] or [({}, [])]
        first = {entry.id for entry in (*groups[0][1], *plain)}
        groups[0] = (groups[0][0], [entry for entry in entries if entry.id in first])
        return [(versions, part) for versions, part in groups if part]


def plan_episodes(
    config: TrainConfig,
    phase: TrainingPhase,
    update: int,
    league: League,
    pools: Mapping[str, OpponentPool],
    *,
    group_size: int,
) -> Plan:
    """The episodes of an update.

    Args:
        config: the run's.
        phase: the update's.
        update: how many updates there were before it.
        league: draws the opponents.
        pools: the earlier versions of each policy.
        group_size: so many episodes in a row start from the same state, with the same seats learning.
    """
    counts = shares(config.training.episodes, [scenario.weight for scenario in config.scenarios], group_size)
    draw = _Draw(config, update, league, pools)
    planned: list[PlannedEpisode] = []
    for scenario, count in enumerate(counts):
        policies, seats = phase.policies(scenario), list(phase.learning(scenario))
        fraction = config.training.opponent_pool_fraction if seats and len(policies) > 1 else 0.0
        against_pool = round(fraction * count)
        for episode in range(count):
            index, start = len(planned), episode - episode % group_size  # of the group
            trained = (seats[start // group_size % len(seats)],) if start < against_pool else tuple(seats)
            met = [seat for seat in policies if seat not in trained] if start < against_pool else []
            opponents = {seat: draw(policies[trained[0]], policies[seat], start) for seat in met}
            first = index - episode % group_size
            planned.append(
                PlannedEpisode(
                    id=f"{update}-{index}",
                    seed=derive_seed(config.seed, "game", update, first),
                    repeat=episode % group_size,
                    scenario=scenario,
                    learning=trained,
                    group=f"{update}-{first}",
                    opponents=opponents,
                )
            )
    needed = {o[1:]: pools[o.name].get(o.version) for e in planned for o in e.opponents.values() if o.kind == "past"}
    return Plan(update, phase, planned, needed, fork=config.training.group_start == "fork")


class _Draw:
    """Draws whom a policy that learns meets in the seat of another."""

    def __init__(self, config: TrainConfig, update: int, league: League, pools: Mapping[str, OpponentPool]) -> None:
        self._config, self._update, self._league, self._pools = config, update, league, pools
        self._drawn: dict[tuple[str, str], Opponent] = {}  # for the update

    def __call__(self, learner: str, name: str, start: int) -> Opponent:
        """An opponent for `learner` in the seat of `name`, in the group whose first episode is `start`."""
        once = self._config.league.draw == "update"
        if once and (learner, name) in self._drawn:
            return self._drawn[learner, name]
        parts = ("older", self._update) if once else ("opponent", self._update, start)
        rng = random.Random(derive_seed(self._config.seed, *parts, *seed_part(name)))
        opponent = self._league.draw(learner, name, self._pools[name].versions, rng)
        self._drawn[learner, name] = opponent
        return opponent


def seed_part(name: str) -> tuple[str, ...]:
    """What tells the seeds of one policy from another's; nothing for the one that holds all seats."""
    return () if name == SHARED_POLICY else (name,)
