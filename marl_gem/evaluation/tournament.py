"""A round robin of players: standings, ratings and the matrix of scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec

from marl_gem.evaluation.by_tag import by_tag
from marl_gem.evaluation.estimates import Estimate, estimate
from marl_gem.evaluation.plan import Plan
from marl_gem.evaluation.ratings import Comparison, rate
from marl_gem.evaluation.report import PlayerReport, TournamentReport
from marl_gem.evaluation.summary import EpisodeSummary, combined_usage
from marl_gem.runs.outcomes import Outcome, judge, same_team
from marl_gem.seeding import derive_seed

ONE_TEAM = "the agents of each game are one team, so that no player met another"
"""Why there are no ratings, where that is so."""


@dataclass(frozen=True)
class Game:
    """An episode of a tournament: its task, the player in each seat, and what it came to."""

    task: int
    players: Mapping[str, str]
    summary: EpisodeSummary

    @property
    def returns(self) -> dict[str, float]:
        """The return of each seat that a player had."""
        outcomes = self.summary.outcomes.items()
        return {seat: outcome.return_ for seat, outcome in outcomes if seat in self.players}

    @property
    def met(self) -> Iterator[tuple[str, str, float]]:
        """Each two seats that are not of one team, once, and the points of the first: 1, 1/2 or 0."""
        for (seat, value), (other, other_value) in combinations(self.returns.items(), 2):
            if not same_team(self.summary.tags, seat, other):
                yield seat, other, (value > other_value) + (value == other_value) / 2


def standings(plan: Plan, finished: Mapping[str, EpisodeSummary]) -> TournamentReport:
    """Everything about a tournament.

    In a game each player meets every other that is not of its team: it wins against those with a lower return (1),
    draws with those of the same (1/2) and loses against the others (0). `score` is the mean over all it met;
    `matrix[a][b]` that of a against b; `seats` that of each seat, whoever sat there. Intervals draw whole tasks, since
    the games of one task are alike. `won`, `drawn` and `lost` count games: the highest return alone or with the team,
    shared with others, or not at all. `success` is the share of games in which the player succeeded, as an evaluation
    counts it; in contests, of those it won.

    `rating` is of all games at once, whatever their order: see `ratings`.
    """
    games = [
        Game(slot.index, plan.matches[slot.match].labels, finished[slot.id])
        for slot in plan.slots.values()
        if slot.id in finished
    ]
    policies = plan.config().players
    names = list(policies)
    met: dict[int, list[Comparison]] = {}
    for game in games:
        each = [(game.players[seat], game.players[other], score) for seat, other, score in game.met]
        met.setdefault(game.task, []).extend(each)
    alone = bool(games) and not any(met.values())
    ratings = rate(names, met, derive_seed(plan.numbers.seed, "bootstrap", "rating"))

    points: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for key, task, value in _points(games):
        points.setdefault(key, {}).setdefault(task, []).append(value)

    def share(*key: str) -> Estimate | None:
        seed = derive_seed(plan.numbers.seed, "bootstrap", *key)
        return estimate(list(points.get(key, {}).values()), seed, proportion=True)

    def player(name: str) -> PlayerReport:
        seats = [(game.summary, seat) for game in games for seat in game.returns if game.players[seat] == name]
        results = _results(name, games, plan.info.zero_sum)
        return PlayerReport(
            name=name,
            who=policies[name],
            rating=None if alone else ratings[name],
            score=share("player", name),
            success=share("success", name),
            games=results.total(),
            won=results["win"],
            drawn=results["draw"],
            lost=results["loss"],
            **msgspec.structs.asdict(combined_usage(seats)),
        )

    return TournamentReport(
        players=tuple(sorted(map(player, names), key=_strength, reverse=True)),
        matrix={name: {other: share("pair", name, other) for other in names if other != name} for name in names},
        seats={seat: share("seat", seat) for seat in plan.info.agents},
        by_tag=by_tag(((game.task, game.summary, game.players) for game in games), plan.numbers.seed),
        left_out=ONE_TEAM if alone else "",
    )


def _points(games: Sequence[Game]) -> Iterator[tuple[tuple[str, ...], int, float]]:
    """What is averaged: for each key the task and a value from 0 to 1.

    The keys are ("player", name), ("pair", name, other name) and ("seat", seat), with the score of each two that met,
    and ("success", name).
    """
    for game in games:
        for first, second, points in game.met:
            for seat, other, score in ((first, second, points), (second, first, 1 - points)):
                name = game.players[seat]
                for key in (("player", name), ("pair", name, game.players[other]), ("seat", seat)):
                    yield key, game.task, score
        for seat, name in game.players.items():
            if seat in game.returns:
                yield ("success", name), game.task, float(game.summary.outcomes[seat].success)


def _results(name: str, games: Sequence[Game], contest: bool) -> Counter[str | None]:
    """How often a game was a "win", "draw" and "loss" for a player. In a task the returns alone are compared."""
    results: Counter[str | None] = Counter()
    for game in games:
        outcomes: Mapping[str, Outcome] = game.summary.outcomes
        if not contest:
            returns = {seat: outcome.return_ for seat, outcome in outcomes.items()}
            outcomes = judge(returns, {}, contest=True, tags=game.summary.tags)
        results.update(outcomes[seat].result for seat in game.returns if game.players[seat] == name)
    return results


def _strength(player: PlayerReport) -> tuple[float, float]:
    return (player.rating.value if player.rating else 0.0), (player.score.mean if player.score else 0.0)
