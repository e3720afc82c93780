"""Who is how strong: standings, ratings and the matrix of win rates of a round robin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from marl_gem.errors import MissingPackage
from marl_gem.evaluation.estimates import estimate
from marl_gem.evaluation.outcomes import Outcome, usage
from marl_gem.evaluation.plan import Plan, Slot
from marl_gem.seeding import derive_seed

Game = tuple[Slot, Mapping[str, str], Outcome]
"""An episode's place in the plan, who sat in which seat, and how it went."""


def standings(plan: Plan, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Everything about a tournament.

    In a game each player meets every other: it wins against those with a lower return (1), draws with those of the
    same (1/2) and loses against the others (0). `score` is the mean over all it met; `matrix[a][b]` that of a
    against b; `seats` that of each seat, whoever sat there. Intervals draw whole tasks, since the games of one
    task are alike. `won`, `drawn` and `lost` count games: the highest return alone, shared, or not at all.

    `rating` is Plackett-Luce's as openskill does it (mu, sigma; 25 and 8.33 before the first game), over the games
    in the plan's order; None with a reason in `left_out` if openskill is not installed.
    """
    games = [
        (slot, plan.matches[slot.match].labels, outcomes[slot.id])
        for slot in plan.slots.values()
        if slot.id in outcomes
    ]
    names = list(plan.asked["players"])
    left_out = ""
    try:
        ratings = rate(names, games)
    except MissingPackage as error:
        ratings, left_out = {}, str(error)

    points: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for index, seat, own, other, scored in _meetings(games):
        for key in (("player", own), ("pair", own, other), ("seat", seat)):
            points.setdefault(key, {}).setdefault(index, []).append(scored)

    def score(*key: str) -> Any:
        seed = derive_seed(plan.numbers.seed, "bootstrap", *key)
        estimated = estimate(list(points.get(key, {}).values()), seed, proportion=True)
        return None if estimated is None else msgspec.to_builtins(estimated)

    players = [
        {
            "name": name,
            "who": plan.asked["players"][name],
            "rating": ratings.get(name),
            "score": score("player", name),
            **_tally(name, games),
            **usage(one.uses[seat] for _, labels, one in games for seat in one.uses if labels.get(seat) == name),
        }
        for name in names
    ]
    matrix = {own: {other: score("pair", own, other) for other in names if other != own} for own in names}
    seats = {seat: score("seat", seat) for seat in plan.ground.agents}
    players.sort(key=_strength, reverse=True)
    return {"players": players, "matrix": matrix, "seats": seats, "left_out": left_out}


def rate(names: Sequence[str], games: Sequence[Game]) -> dict[str, dict[str, float]]:
    """Ratings by Plackett-Luce (Weng and Lin, 2011), game after game.

    Raises:
        MissingPackage: openskill is not installed.
    """
    try:
        from openskill.models import PlackettLuce
    except ImportError as error:
        raise MissingPackage("openskill", "eval", "rating players") from error
    model = PlackettLuce()
    ratings = {name: model.rating(name=name) for name in names}
    for _, labels, one in games:
        seated = [(labels[seat], value) for seat, value in one.returns.items() if seat in labels]
        ranks = [-value for _, value in seated]
        for (name, _), (rated,) in zip(seated, model.rate([[ratings[n]] for n, _ in seated], ranks=ranks), strict=True):
            ratings[name] = rated
    return {name: {"mu": rating.mu, "sigma": rating.sigma} for name, rating in ratings.items()}


def _meetings(games: Sequence[Game]) -> Iterator[tuple[int, str, str, str, float]]:
    """For each two in a game: the task, the one's seat, the one, the other, what the one scored against the other."""
    for slot, labels, one in games:
        for seat, own in one.returns.items():
            for other, its in one.returns.items():
                if seat != other and seat in labels and other in labels:
                    yield slot.index, seat, labels[seat], labels[other], (own > its) + (own == its) / 2


def _tally(name: str, games: Sequence[Game]) -> dict[str, int]:
    counts = {"games": 0, "won": 0, "drawn": 0, "lost": 0}
    for _, labels, one in games:
        for seat, own in one.returns.items():
            if labels.get(seat) == name:
                best_other = max((value for other, value in one.returns.items() if other != seat), default=0.0)
                counts["games"] += 1
                counts["won" if own > best_other else "drawn" if own == best_other else "lost"] += 1
    return counts


def _strength(player: Mapping[str, Any]) -> tuple[float, float]:
    rating, score = player["rating"], player["score"]
    return (rating["mu"] if rating else 0.0), (score["mean"] if score else 0.0)
