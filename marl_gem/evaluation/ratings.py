"""Ratings from all games at once, whatever their order: Bradley and Terry's model, on Elo's scale.

A player of strength p is expected to get the share p / (p + q) of the points against one of strength q (Bradley and
Terry, Biometrika 39, 1952). The strengths that explain the points best are found by minorization-maximization (Hunter,
"MM algorithms for generalized Bradley-Terry models", Annals of Statistics 32, 2004).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence

from marl_gem.evaluation.estimates import quantile
from marl_gem.evaluation.report import Rating

AVERAGE = 1000.0
"""The rating of an average player of the tournament."""

PER_TENFOLD = 400.0
"""So many points more are ten times the strength: 91% of the points. 200 more are 76%."""

PRIOR = 1.0
"""So many draws against an average player count for everybody, so that who won every game has a finite rating."""

SCALE = (
    "from all games at once, on Elo's scale. An average player of this tournament has 1000; 200 more are an expected "
    "score of 76%, 400 more 91%."
)
"""What people need to read a rating."""

RESAMPLES = 200

Comparison = tuple[str, str, float]
"""Two players that met, and the points of the first: 1 for a win, 1/2 for a draw, 0 for a loss."""


def rate(names: Sequence[str], tasks: Mapping[int, Sequence[Comparison]], seed: int) -> dict[str, Rating]:
    """Ratings with 95% intervals by bootstrap, which draws tasks: games of one task are alike.

    Where every task came out the same, a bootstrap would give an interval of no width; then it follows from the
    curvature of the likelihood, each task of a pair counted once.

    Args:
        names: the players.
        tasks: the comparisons of each task, each once.
        seed: fixes the resamples.

    Returns:
        by player; of who met nobody, the average without an interval.
    """
    names = sorted(names)  # the order in which they are named changes nothing, not even the last digit
    each = [_totals(comparisons) for _, comparisons in sorted(tasks.items())]
    totals = _sum(each)
    logs = _strengths(names, totals)
    met = {name for pair in totals for name in pair}
    if len(each) < 2:  # one task tells nothing of how tasks differ
        return {name: Rating(_elo(logs[name]), None, None) for name in names}
    rng, drawn = random.Random(seed), {name: list[float]() for name in names}
    for _ in range(RESAMPLES):
        resampled = _strengths(names, _sum(rng.choices(each, k=len(each))), logs, tolerance=1e-3)
        for name, log in resampled.items():
            drawn[name].append(_elo(log))
    return {
        name: _with_interval(_elo(logs[name]), sorted(drawn[name]), _deviation(name, logs, each))
        if name in met
        else Rating(_elo(logs[name]), None, None)
        for name in names
    }


def elo(points: Mapping[tuple[str, str], tuple[float, float]]) -> dict[str, float]:
    """Ratings without intervals, of all who met somebody.

    Args:
        points: of two players that met, the points of the first and of the second; they need not be whole numbers.
    """
    totals = _sum({pair: won} if pair[0] < pair[1] else {pair[::-1]: won[::-1]} for pair, won in points.items())
    names = sorted({name for pair in totals for name in pair})
    return {name: _elo(log) for name, log in _strengths(names, totals).items()} if names else {}


def _with_interval(value: float, drawn: Sequence[float], deviation: float) -> Rating:
    low, high = quantile(drawn, 0.025), quantile(drawn, 0.975)
    if high - low < 1:
        low, high = value - 1.96 * deviation, value + 1.96 * deviation
    return Rating(value, round(low, 3), round(high, 3))


def _deviation(name: str, logs: Mapping[str, float], each: Sequence[_Totals]) -> float:
    """The standard error of a rating, each task of a pair counted once."""
    information = PRIOR / 4
    for other in {player for part in each for pair in part if name in pair for player in pair} - {name}:
        share = 1 / (1 + math.exp(logs[other] - logs[name]))
        information += share * (1 - share) * sum(tuple(sorted((name, other))) in part for part in each)
    return PER_TENFOLD / math.log(10) / math.sqrt(information)


_Totals = dict[tuple[str, str], tuple[float, float]]
"""For two players, in the order of their names: the points of each against the other."""


def _totals(comparisons: Iterable[Comparison]) -> _Totals:
    totals: _Totals = {}
    for name, other, points in comparisons:
        pair = (name, other) if name < other else (other, name)
        first, second = totals.get(pair, (0.0, 0.0))
        won, lost = (points, 1 - points) if name < other else (1 - points, points)
        totals[pair] = (first + won, second + lost)
    return totals


def _sum(parts: Iterable[_Totals]) -> _Totals:
    totals: _Totals = {}
    for part in parts:
        for pair, (won, lost) in part.items():
            first, second = totals.get(pair, (0.0, 0.0))
            totals[pair] = (first + won, second + lost)
    return totals


def _strengths(
    names: Sequence[str], totals: _Totals, start: Mapping[str, float] | None = None, tolerance: float = 1e-9
) -> dict[str, float]:
    """The logarithms of the strengths, with mean 0."""
    points = dict.fromkeys(names, PRIOR / 2)
    games: dict[str, list[tuple[str, float]]] = {name: [] for name in names}
    for (first, second), (won, lost) in sorted(totals.items()):
        points[first] += won
        points[second] += lost
        games[first].append((second, won + lost))
        games[second].append((first, won + lost))
    strength = {name: math.exp(start[name]) if start else 1.0 for name in names}
    for _ in range(10_000):
        change = 0.0
        for name in names:
            expected = PRIOR / (strength[name] + 1)
            expected += math.fsum(count / (strength[name] + strength[other]) for other, count in games[name])
            better = points[name] / expected
            change = max(change, abs(math.log(better / strength[name])))
            strength[name] = better
        if change < tolerance:
            break
    logs = {name: math.log(value) for name, value in strength.items()}
    mean = math.fsum(logs.values()) / len(logs)
    return {name: log - mean for name, log in logs.items()}


def _elo(log: float) -> float:
    return round(AVERAGE + PER_TENFOLD * log / math.log(10), 3)  # less is the rounding of sums
