"""Whom a policy meets in the episodes in which it learns alone: kinds of opponents, draws, and how it did against each.

The kinds, each with a weight in `LeagueConfig`:

    past         an earlier version, each as likely as the others
    prioritized  an earlier version, the likelier the less the policy wins against it (PFSP: Vinyals et al.,
                 "Grandmaster level in StarCraft II", Nature 575, 2019, methods): (1 - win rate)^power
    latest       the newest version, which does not learn in this episode
    fixed        a policy that never learns, by its text
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from marl_gem.evaluation.ratings import elo
from marl_gem.trainers.sections import LeagueConfig

MEMORY = 0.95
"""What a result still counts for after each further update: the policy has changed since."""

PRIOR = 1.0
"""Wins and losses that every opponent is credited with before it is met, so that new ones are drawn too."""


class Opponent(NamedTuple):
    """Whom a policy meets: a version of a policy that learns, earlier or the newest one, or a policy by its text.

    `name` is that of the policy that learns, or the text.
    """

    kind: Literal["past", "latest", "fixed"]
    name: str
    version: int = 0

    @property
    def label(self) -> str:
        """What tables and metrics call it."""
        return {"past": f"{self.name}@{self.version}", "latest": f"{self.name}@latest", "fixed": self.name}[self.kind]


class Record(msgspec.Struct):
    """Results against one opponent: how many episodes count, and the sum of the scores, each from 0 to 1."""

    episodes: float = 0.0
    score: float = 0.0

    @property
    def win_rate(self) -> float:
        """The mean score, drawn towards 0.5 while there are few episodes."""
        return (self.score + PRIOR) / (self.episodes + 2 * PRIOR)


class League:
    """Draws opponents and keeps the results, for each policy that learns.

    Args:
        config: the kinds' weights.
    """

    def __init__(self, config: LeagueConfig) -> None:
        self._config = config
        self.records: dict[str, dict[str, Record]] = {}
        """The results of each policy against each opponent, by the opponent's label."""

    def draw(self, learner: str, policy: str, versions: Sequence[int], rng: random.Random) -> Opponent:
        """An opponent for a policy.

        Args:
            learner: the policy that meets it.
            policy: the policy whose seat it holds; in self-play the same.
            versions: its earlier versions; without any, the newest stands in for them.
            rng: decides.
        """
        config = self._config
        named = {"past": config.past, "prioritized": config.prioritized, "latest": config.latest}
        weights = {kind: weight for kind, weight in {**named, **config.fixed}.items() if weight}
        kind = rng.choices([*weights], [*weights.values()])[0] if len(weights) > 1 else next(iter(weights))
        if kind in config.fixed:
            return Opponent("fixed", kind)
        if kind == "latest" or not versions:
            return Opponent("latest", policy)
        if kind == "past":
            return Opponent("past", policy, rng.choice(versions))
        candidates = [Opponent("past", policy, version) for version in versions]
        return rng.choices(candidates, [self._priority(learner, candidate) for candidate in candidates])[0]

    def record(self, results: Mapping[str, Sequence[tuple[Opponent, float]]]) -> None:
        """Add an update's results, after letting the earlier ones count less.

        Args:
            results: for each policy the opponents it met, and its score, from 0 to 1.
        """
        for records in self.records.values():
            for record in records.values():
                record.episodes, record.score = record.episodes * MEMORY, record.score * MEMORY
        for policy, met in results.items():
            records = self.records.setdefault(policy, {})
            for opponent, score in met:
                record = records.setdefault(opponent.label, Record())
                record.episodes, record.score = record.episodes + 1, record.score + score

    def metrics(self) -> dict[str, float]:
        """`win_rate/POLICY/OPPONENT` for all that were met, and `rating/NAME` of all of them and the policies."""
        met = [
            (policy, label, record)
            for policy, records in sorted(self.records.items())
            for label, record in records.items()
            if record.episodes
        ]
        rates = {f"win_rate/{policy}/{label}": record.score / record.episodes for policy, label, record in met}
        points = {
            (policy, label.removesuffix("@latest")): (record.score, record.episodes - record.score)
            for policy, label, record in met
            if label != f"{policy}@latest"
        }
        return {**rates, **{f"rating/{name}": rating for name, rating in elo(points).items()}}

    def state(self) -> dict[str, Any]:
        """The results as plain data, for a checkpoint."""
        return dict(msgspec.to_builtins(self.records))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` gave.

        Raises:
            msgspec.ValidationError: it is none.
        """
        self.records = msgspec.convert(state, dict[str, dict[str, Record]])

    def _priority(self, learner: str, opponent: Opponent) -> float:
        rate = self.records.get(learner, {}).get(opponent.label, Record()).win_rate
        return float(max(1 - rate, 1e-6) ** self._config.power)
