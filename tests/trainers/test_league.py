"""The league: who is drawn, what is recorded, and episodes with several opponents in one update."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from marl_gem.errors import ConfigError
from marl_gem.trainers.league import League, Opponent
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.sections import LeagueConfig
from marl_gem.types import Episode
from tests.trainers.support import desk, kuhn, warmed_up


def shares(config: LeagueConfig, results: list[tuple[Opponent, float]] | None = None) -> dict[str, float]:
    """How often each opponent is drawn."""
    league = League(config)
    league.record({"a": results or []})
    rng = random.Random(0)
    drawn = Counter(league.draw("a", "a", [0, 10, 20], rng).label for _ in range(6000))
    return {label: count / 6000 for label, count in drawn.items()}


class TestDraws:
    def test_earlier_versions_are_equally_likely(self) -> None:
        assert shares(LeagueConfig()) == pytest.approx({"a@0": 1 / 3, "a@10": 1 / 3, "a@20": 1 / 3}, abs=0.03)

    def test_kinds_have_weights(self) -> None:
        found = shares(LeagueConfig(past=1.0, latest=2.0, fixed={"random": 3.0}))
        assert found["random"] == pytest.approx(0.5, abs=0.03) and found["a@latest"] == pytest.approx(1 / 3, abs=0.03)

    def test_prioritized_are_those_that_win(self) -> None:
        """Of 98 episodes each the policy won all, half and none: win rates of 0.99, 0.5 and 0.01."""
        results = [(Opponent("past", "a", version), score) for version, score in [(0, 1.0), (10, 0.5), (20, 0.0)]] * 98
        found = shares(LeagueConfig(past=0.0, prioritized=1.0, power=2.0), results)
        total = 0.01**2 + 0.5**2 + 0.99**2
        assert found.get("a@0", 0.0) < 0.01
        assert found["a@10"] == pytest.approx(0.25 / total, abs=0.03)
        assert found["a@20"] == pytest.approx(0.99**2 / total, abs=0.03)

    def test_without_an_earlier_version_the_newest_stands_in(self) -> None:
        assert League(LeagueConfig()).draw("a", "b", [], random.Random(0)) == Opponent("latest", "b")

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            ("league.past=0", "all weights are 0"),
            ("league.fixed.partner=1", "policies that never learn"),
            ("league.fixed.human=1", "cannot hold a seat in training"),
            ("league.draw=game", "league.draw"),
        ],
    )
    def test_what_makes_no_sense_is_an_error(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            kuhn(assignment)


class TestRecords:
    def test_results_count_less_with_every_update(self) -> None:
        league, opponent = League(LeagueConfig()), Opponent("past", "a", 3)
        league.record({"a": [(opponent, 1.0), (opponent, 0.0)]})
        assert league.metrics() == {"win_rate/a/a@3": 0.5, "rating/a": 1000.0, "rating/a@3": 1000.0}
        league.record({"a": [(opponent, 1.0)]})
        assert league.metrics()["win_rate/a/a@3"] == pytest.approx((0.95 + 1) / (1.9 + 1))

    def test_ratings_follow_from_all_results(self) -> None:
        league = League(LeagueConfig())
        old, older, newest = Opponent("past", "a", 9), Opponent("past", "a", 3), Opponent("latest", "a")
        league.record({"a": [(old, 0.5)] * 40 + [(older, 1.0)] * 30 + [(older, 0.0)] * 10 + [(newest, 1.0)]})
        ratings = {name: value for name, value in league.metrics().items() if name.startswith("rating/")}
        assert ratings.keys() == {"rating/a", "rating/a@9", "rating/a@3"}  # against itself says nothing
        assert ratings["rating/a"] - ratings["rating/a@9"] == pytest.approx(0, abs=15)  # a draw with the average counts
        assert 150 < ratings["rating/a"] - ratings["rating/a@3"] < 200

    def test_two_policies_rate_one_another(self) -> None:
        league = League(LeagueConfig())
        league.record({"user": [(Opponent("latest", "assistant"), 1.0)] * 9, "assistant": []})
        assert league.metrics()["rating/user"] > 1000 > league.metrics()["rating/assistant"]

    def test_the_state_goes_through_json(self) -> None:
        league, restored = League(LeagueConfig()), League(LeagueConfig())
        league.record({"a": [(Opponent("fixed", "random"), 1.0), (Opponent("past", "b", 3), 0.5)]})
        restored.restore(msgspec.json.decode(msgspec.json.encode(league.state())))
        assert restored.records == league.records and restored.metrics() == league.metrics()


def played(config: Any, updates: int) -> tuple[TrainingLoop, list[list[Episode]], list[dict[str, Any]]]:
    loop, _ = warmed_up(config)
    found = [loop.update() for _ in range(updates)]
    return loop, [episodes for _, episodes in found], [metrics for metrics, _ in found]


class TestTraining:
    def test_each_episode_may_have_another_opponent(self) -> None:
        config = kuhn(
            "imitation.steps=10", "league.draw=episode", "training.opponent_pool_fraction=1",
            "training.snapshot_every=1", "training.pool_size=4",
        )  # fmt: skip
        _, updates, metrics = played(config, 4)
        names = [sorted({model for e in episodes for model in e.models.values()}) for episodes in updates]
        assert len(names[0]) == 1 and len(names[3]) >= 3  # the newest and at least two of its earlier versions
        assert [episode.id for episode in updates[3]] == [f"3-{index}" for index in range(16)]
        assert any(name.startswith("win_rate/policy/policy@") for name in metrics[3])

    def test_one_opponent_an_update_by_default(self) -> None:
        config = kuhn("imitation.steps=10", "training.opponent_pool_fraction=1", "training.snapshot_every=1")
        _, updates, _ = played(config, 4)
        for episodes in updates[1:]:
            assert len({model for episode in episodes for model in episode.models.values()}) <= 2

    def test_a_fixed_opponent_and_the_newest_version(self) -> None:
        config = kuhn(
            "imitation.steps=10", "league.draw=episode", "training.opponent_pool_fraction=1",
            "league.past=0", "league.latest=1", "league.fixed.random=1",
        )  # fmt: skip
        _, (episodes,), (metrics,) = played(config, 1)
        against = [episode for episode in episodes if "random" in episode.models.values()]
        assert 0 < len(against) < len(episodes)
        assert metrics.keys() >= {"win_rate/policy/random", "win_rate/policy/policy@latest"}
        assert all(len(set(episode.models.values())) == 2 for episode in against)

    def test_policies_meet_earlier_versions_of_one_another(self) -> None:
        config = desk(
            "seats.user=user", "phases=[]", "league.draw=episode", "training.opponent_pool_fraction=1",
            "imitation.steps=2", "training.updates=3",
        )  # fmt: skip
        _, _, metrics = played(config, 2)
        assert {name.rpartition("@")[0] for name in metrics[1] if name.startswith("win_rate")} == {
            "win_rate/user/assistant",
            "win_rate/assistant/user",
        }
