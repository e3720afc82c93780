"""Means with intervals, pass^k and pass@k, quantiles. Plain Python, and the same numbers on every machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import msgspec

RESAMPLES = 1000
MOST_RESAMPLED = 5000
"""With more tasks the bootstrap's distribution is normal, and its interval is computed and not drawn."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean and its 95% interval."""

    mean: float
    # The bounds of the interval; None where nothing says how much values vary: there is only one task, or all agree,
    # and the values have no bounds.
    low: float | None
    high: float | None
    # How many values there are. They may be of fewer tasks.
    n: int


def estimate(
    tasks: Sequence[Sequence[float]],
    seed: int,
    proportion: bool = False,
    within: tuple[float, float] | None = None,
) -> Estimate | None:
    """The mean of all values and its 95% interval by bootstrap (Efron, 1979), which draws tasks, not values:
    repeats of one task are alike, and taking them for independent would make the interval too narrow. With more than
    `MOST_RESAMPLED` tasks it is the interval that infinitely many resamples of infinitely many tasks would give.

    Where all tasks have the same mean, or there is one task, a bootstrap would give an interval of no width. Then it is
    that of `agreeing`, for values that have bounds, and none for others.

    Args:
        tasks: the values of each task.
        seed: fixes the resamples.
        proportion: the values lie from 0 to 1.
        within: the bounds of the values, if they have other ones.

    Returns:
        None if there is no value.
    """
    within = (0.0, 1.0) if proportion else within
    sums = [(math.fsum(values), len(values)) for values in tasks if values]
    n = sum(count for _, count in sums)
    if not n:
        return None
    mean = math.fsum(total for total, _ in sums) / n
    means = [total / count for total, count in sums]
    if max(means) - min(means) <= 1e-12 * max(1.0, abs(mean)):
        low, high = agreeing(mean, len(sums), *within) if within else (None, None)
        return Estimate(mean, low, high, n)
    if len(sums) > MOST_RESAMPLED:
        half = 1.96 * math.sqrt(math.fsum((total - mean * count) ** 2 for total, count in sums)) / n
        least, most = within or (-math.inf, math.inf)
        return Estimate(mean, max(mean - half, least), min(mean + half, most), n)
    resampled = sorted(_resampled(sums, random.Random(seed)))
    return Estimate(mean, quantile(resampled, 0.025), quantile(resampled, 0.975), n)


def agreeing(value: float, count: int, low: float, high: float) -> tuple[float, float]:
    """The 95% interval of a mean when all of `count` values from `low` to `high` were the same.

    By Wilson's interval, at least some share of all values is this one; the others may lie anywhere within the bounds.
    At 0 and 1 this is Wilson's interval itself.
    """
    share = wilson(count, count)[0]
    return low + share * (value - low), high - share * (high - value)


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """The 95% interval of a proportion (Wilson, 1927); good at 0 and 1 too. `trials` is at least 1."""
    z, share = 1.96, successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return (0.0 if successes == 0 else (centre - half) / scale), (
        1.0 if successes == trials else (centre + half) / scale
    )


def _resampled(sums: list[tuple[float, int]], rng: random.Random) -> list[float]:
    size = len(sums)
    if len({count for _, count in sums}) == 1:  # mostly; three times as fast
        totals, n = [total for total, _ in sums], size * sums[0][1]
        return [sum(rng.choices(totals, k=size)) / n for _ in range(RESAMPLES)]
    means = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(sums, k=size)
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    return means


class Pass(msgspec.Struct, frozen=True):
    """pass^k and pass@k for one k."""

    k: int
    # The chance that all of k tries at a task succeed.
    hat: Estimate
    # The chance that at least one of k tries at a task succeeds.
    at: Estimate


def passes(tasks: Sequence[Sequence[bool]], seed: int) -> list[Pass]:
    """pass^k and pass@k for every k up to the number of repeats, over the tasks that have been tried k times."""
    result = []
    for k in range(1, max(map(len, tasks), default=0) + 1):
        tried = [(len(tries), sum(tries)) for tries in tasks if len(tries) >= k]
        hat, at = (_over_tasks(way, tried, k, seed) for way in (pass_hat_k, pass_at_k))
        result.append(Pass(k, hat, at))
    return result


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k tries, drawn from n of which c succeeded, are among the c (arXiv 2406.12045)."""
    return math.comb(c, k) / math.comb(n, k)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k tries, drawn from n of which c succeeded, is (arXiv 2107.03374)."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie, between two neighbours in proportion. `ordered` is not empty."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _over_tasks(way: Callable[[int, int, int], float], tried: list[tuple[int, int]], k: int, seed: int) -> Estimate:
    estimated = estimate([[way(n, c, k)] for n, c in tried], seed, proportion=True)
    assert estimated is not None  # k is at most the greatest number of tries
    return estimated
