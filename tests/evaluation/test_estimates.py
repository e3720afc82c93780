"""Means with intervals, pass^k, quantiles."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marl_gem.evaluation.estimates import (
    MOST_RESAMPLED,
    Estimate,
    estimate,
    pass_at_k,
    pass_hat_k,
    passes,
    quantile,
    wilson,
)


class TestEstimates:
    @given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=5))
    @settings(max_examples=100, deadline=None)
    def test_pass_k_equals_the_mean_over_all_choices_of_k_tries(self, tasks: list[list[bool]]) -> None:
        for entry in passes(tasks, seed=0):
            choices = [list(itertools.combinations(tries, entry.k)) for tries in tasks if len(tries) >= entry.k]
            means = {way: [sum(map(way, chosen)) / len(chosen) for chosen in choices] for way in (all, any)}
            assert entry.hat.mean == pytest.approx(sum(means[all]) / len(choices))
            assert entry.at.mean == pytest.approx(sum(means[any]) / len(choices))
            assert entry.hat.n == len(choices)

    @given(n=st.integers(1, 12), data=st.data())
    def test_pass_k_of_one_task_is_monotonous(self, n: int, data: st.DataObject) -> None:
        c = data.draw(st.integers(0, n))
        hats, ats = ([way(n, c, k) for k in range(1, n + 1)] for way in (pass_hat_k, pass_at_k))
        assert hats == sorted(hats, reverse=True) and ats == sorted(ats)
        assert hats[0] == pytest.approx(ats[0]) and hats[0] == pytest.approx(c / n)

    @given(st.lists(st.lists(st.floats(-100, 100), max_size=4), min_size=1, max_size=20), st.integers(0, 2**63 - 1))
    @settings(max_examples=50, deadline=None)
    def test_an_interval_holds_the_mean_and_lies_within_the_values(self, tasks: list[list[float]], seed: int) -> None:
        values = [value for task in tasks for value in task]
        estimated = estimate(tasks, seed)
        if not values:
            assert estimated is None
            return
        assert (
            estimated is not None
            and estimated.mean == pytest.approx(sum(values) / len(values))
            and estimated.n == len(values)
        )
        means = [sum(task) / len(task) for task in tasks if task]
        if max(means) - min(means) < 1e-9:
            assert (estimated.low is None) == (estimated.high is None)
        if estimated.low is None or len(means) == 1:
            assert estimated.low is estimated.high is None and max(means) - min(means) < 1e-9
            return
        assert estimated.low is not None and estimated.high is not None
        assert min(values) - 1e-9 <= estimated.low <= estimated.high <= max(values) + 1e-9
        assert estimate(tasks, seed) == estimated

    def test_an_interval_agrees_with_theory_on_a_large_sample(self) -> None:
        rng = random.Random(0)
        values = [[rng.gauss(10, 3)] for _ in range(2000)]
        estimated = estimate(values, seed=1)
        assert estimated is not None and estimated.low is not None and estimated.high is not None
        assert estimated.high - estimated.low == pytest.approx(2 * 1.96 * 3 / math.sqrt(2000), rel=0.1)

    def test_covers_the_truth_as_often_as_it_says(self) -> None:
        rng, hits = random.Random(3), 0
        for trial in range(200):
            estimated = estimate([[float(rng.random() < 0.6)] for _ in range(60)], trial, proportion=True)
            assert estimated is not None and estimated.low is not None and estimated.high is not None
            hits += estimated.low <= 0.6 <= estimated.high
        assert 180 <= hits <= 199

    def test_tasks_that_agree_are_no_certainty(self) -> None:
        assert estimate([[2.0], [2.0], [2.0, 2.0]], 0) == Estimate(2.0, None, None, 4), (
            "nothing says how much they vary"
        )
        won = estimate([[1.0, 1.0]] * 4, 0, proportion=True)
        assert won == Estimate(1.0, *wilson(4, 4), 8)
        half = estimate([[1.0, 0.0]] * 4, 0, proportion=True)
        assert half and half.low == pytest.approx(0.255, abs=1e-3) and half.high == pytest.approx(0.745, abs=1e-3)
        alone = estimate([[1.0, 0.0, 1.0, 0.0]], 0, proportion=True)
        assert alone and alone.low is not None and alone.high is not None and alone.high - alone.low > 0.75
        never = estimate([[0.0]] * 4, 0, within=(-1.0, 1.0))
        assert never and never.low == pytest.approx(-0.49, abs=1e-2) and never.high == pytest.approx(0.49, abs=1e-2)

    def test_repeats_that_agree_add_no_certainty(self) -> None:
        once = [[float(value)] for value in (1, 0, 1, 1, 0, 0, 1, 1)]
        single, tenfold = estimate(once, 7), estimate([values * 10 for values in once], 7)
        assert single is not None and tenfold is not None
        assert (single.low, single.high) == (pytest.approx(tenfold.low), pytest.approx(tenfold.high))
        independent = estimate([[value] for values in once for value in values * 10], 7)
        assert independent is not None and independent.low is not None and tenfold.low is not None
        assert independent.low > tenfold.low

    @pytest.mark.parametrize("proportion", [True, False])
    def test_many_tasks_have_the_interval_that_resampling_would_find(self, proportion: bool) -> None:
        rng = random.Random(1)
        tasks = [[float(rng.random() < 0.3) for _ in range(rng.choice((1, 3)))] for _ in range(MOST_RESAMPLED + 1)]
        many, resampled = estimate(tasks, 1, proportion), estimate(tasks[:-1], 1, proportion)
        assert many and resampled and many.high and many.low and resampled.high and resampled.low
        assert many.mean == pytest.approx(resampled.mean, abs=1e-3)
        assert many.high - many.low == pytest.approx(resampled.high - resampled.low, rel=0.1)

    def test_a_share_of_many_tasks_lies_within_0_and_1(self) -> None:
        estimated = estimate([[1.0]] * 10_000 + [[0.0]], 1, proportion=True)
        assert estimated and estimated.high == 1.0 and estimated.low and 0.999 < estimated.low < estimated.mean

    def test_where_all_agree_a_share_is_not_certain(self) -> None:
        estimated = estimate([[1.0]] * 10, 0, proportion=True)
        assert (
            estimated is not None and estimated.high == 1 and estimated.low == pytest.approx(0.7225, abs=1e-3)
        )  # Wilson, 10 of 10
        assert estimate([[0.0, 0.0]] * 10, 0, proportion=True) == Estimate(
            0.0,
            0.0,
            pytest.approx(1 - 0.7225, abs=1e-3),  # type: ignore[arg-type]
            20,
        )

    def test_tasks_with_unequal_repeats_weigh_by_their_episodes(self) -> None:
        estimated = estimate([[1.0, 1.0, 1.0], [0.0]], 0)
        assert estimated is not None and estimated.mean == 0.75

    @pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2.5), (1, 4), (0.95, 3.85)])
    def test_quantiles_lie_between_their_neighbours(self, share: float, value: float) -> None:
        assert quantile([1, 2, 3, 4], share) == pytest.approx(value)
