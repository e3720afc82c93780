"""Algorithms: advantages, what they ask of the loop, and one from outside the package."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import marl_gem.trainers.algorithms as algorithms
from marl_gem.errors import ConfigError, TrainingError
from marl_gem.trainers.algorithms import Advantages, Needs, TokenBatch, make_algorithm, register_algorithm
from marl_gem.trainers.algorithms.normalization import normalize
from marl_gem.trainers.batch import Batch, Transition
from marl_gem.trainers.run import TrainingRun
from marl_gem.types import Episode
from tests.trainers.support import kuhn, rows, warmed_up, work


def transition(agent: str, return_: float, *, episode: str = "0", group: str = "0", turn: int = 0) -> Transition:
    return Transition(
        episode=episode,
        group=group,
        turn=turn,
        scenario="s",
        agent=agent,
        prompt_ids=(1,),
        action_ids=(2,),
        logprobs=(-1.0,),
        version=0,
        reward=0.0,
        return_=return_,
    )


def batch(*transitions: Transition) -> Batch:
    return Batch([[transition] for transition in transitions])


class TestReBN:
    def test_each_group_is_normalized_by_itself(self) -> None:
        advantages, baselines = normalize([0.0, 10.0, 2.0, 20.0], [("x",), ("y",), ("x",), ("y",)])
        assert advantages == [-1.0, -1.0, 1.0, 1.0]
        assert baselines[("x",)] == (2, 1.0, 1.0, False)
        assert baselines[("y",)] == (2, 15.0, 5.0, False)

    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
    def test_advantages_have_mean_0_and_deviation_1_or_zero_variance(self, returns: list[float]) -> None:
        advantages, baselines = normalize(returns, [("x",)] * len(returns))
        assert all(map(math.isfinite, advantages))
        if baselines[("x",)].zero_variance:
            assert set(advantages) == {0.0}
        else:
            assert math.fsum(advantages) / len(returns) == pytest.approx(0, abs=1e-5)
            assert math.fsum(a * a for a in advantages) / len(returns) == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize("returns", [[3.0], [0.1] * 7, [1e9] * 1000])
    def test_a_group_without_spread_gets_exactly_0(self, returns: list[float]) -> None:
        advantages, baselines = normalize(returns, [("x",)] * len(returns))
        assert set(advantages) == {0.0}
        assert baselines[("x",)].zero_variance

    def test_groups_are_told_apart_by_scenario_and_agent(self) -> None:
        """Joined into one text, ("x", "y z") and ("x y", "z") would be one group."""
        first = msgspec.structs.replace(transition("y z", 0.0), scenario="x")
        second = msgspec.structs.replace(transition("z", 1.0), scenario="x y")
        result = make_algorithm("rebn", {}).advantages(batch(first, second))
        assert result.values == [0.0, 0.0] and len(result.metrics["zero_variance"]) == 2

    def test_grouped_by_agent_all_or_none(self) -> None:
        four = batch(*(transition(agent, value) for agent, value in [("a", 0), ("a", 2), ("b", 10), ("b", 12)]))

        def advantages(group_by: str) -> list[float]:
            return list(make_algorithm("rebn", {"group_by": group_by}).advantages(four).values)

        assert advantages("agent") == [-1.0, 1.0, -1.0, 1.0]
        assert advantages("none") == [0, 2, 10, 12]
        returns = [0.0, 2.0, 10.0, 12.0]
        assert advantages("all") == pytest.approx([(r - fmean(returns)) / pstdev(returns) for r in returns])
        with pytest.raises(ConfigError, match="'agents'"):
            advantages("agents")

    def test_agents_without_spread_are_named(self) -> None:
        result = make_algorithm("rebn", {}).advantages(
            batch(transition("a", 1), transition("a", 1), transition("b", 1))
        )
        assert result.metrics["zero_variance"] == ["s a", "s b"]
        assert not any(name.startswith("noise_gain") for name in result.metrics)

    def test_sizes_and_spreads_of_the_groups_are_measured(self) -> None:
        four = batch(*(transition(agent, value) for agent, value in [("a", 0), ("a", 2), ("a", 10), ("b", 12)]))
        metrics = make_algorithm("rebn", {}).advantages(four).metrics
        assert (metrics["group_size/s a"], metrics["group_size/s b"]) == (3, 1)
        assert metrics["group_std/s a"] == pytest.approx(pstdev([0, 2, 10])) and metrics["group_std/s b"] == 0
        assert metrics["advantage_max"] == pytest.approx((10 - 4) / pstdev([0, 2, 10]))

    def test_the_gain_in_noise_is_that_of_the_theory(self) -> None:
        """An offset d standard deviations from the mean of all makes the gradient 1 + d^2 times as noisy."""
        four = batch(*(transition(agent, value) for agent, value in [("a", 0), ("a", 2), ("b", 10), ("b", 14)]))
        metrics = make_algorithm("rebn", {}).advantages(four).metrics
        assert metrics["noise_gain/s a"] == 1 + 5.5**2 and metrics["noise_gain/s b"] == 1 + 2.75**2


class TestRLOO:
    def test_the_baseline_is_the_mean_of_the_others(self) -> None:
        three = batch(*(transition("a", value, episode=str(value)) for value in (1.0, 4.0, 7.0)))
        result = make_algorithm("rloo", {"group_size": 3}).advantages(three)
        assert result.values == [1.0 - 5.5, 4.0 - 4.0, 7.0 - 2.5]
        assert result.metrics == {"groups": 1, "zero_variance_groups": 0}

    def test_groups_and_agents_are_kept_apart(self) -> None:
        result = make_algorithm("rloo", {"group_size": 2}).advantages(
            batch(
                transition("a", 1.0, episode="0", group="g"),
                transition("a", 3.0, episode="1", group="g"),
                transition("b", 50.0, episode="0", group="g"),
                transition("a", 9.0, episode="2", group="h"),
                transition("a", 9.0, episode="3", group="h"),
            )
        )
        assert result.values == [-2.0, 2.0, 0.0, 0.0, 0.0]  # whoever is alone in a group has nothing to compare with
        assert result.metrics == {"groups": 3, "zero_variance_groups": 2}

    def test_later_turns_have_the_baseline_of_the_first(self) -> None:
        result = make_algorithm("rloo", {"group_size": 2}).advantages(
            Batch(
                [
                    [transition("a", 5.0, episode="0", turn=0), transition("a", 2.0, episode="0", turn=1)],
                    [transition("a", 1.0, episode="1", turn=0)],
                ]
            )
        )
        assert result.values == [4.0, 1.0, -4.0]

    def test_episodes_of_a_group_start_alike_and_differ_in_what_agents_draw(self) -> None:
        config = kuhn("algorithm.name=rloo", "algorithm.options.group_size=4", "training.opponent_pool_fraction=0.5")
        loop, _ = warmed_up(config)
        _, episodes = loop.update()
        groups: dict[int, list[Episode]] = {}
        for episode in episodes:
            groups.setdefault(episode.seed, []).append(episode)
        assert [[episode.repeat for episode in group] for group in groups.values()] == [[0, 1, 2, 3]] * 4
        for group in groups.values():
            assert len({episode.turns[0].observation for episode in group}) == 1
        assert any(len({str(episode.turns) for episode in group}) > 1 for group in groups.values())

    def test_it_trains(self, tmp_path: Path) -> None:
        run = TrainingRun.start(tmp_path / "run", kuhn("algorithm.name=rloo", "training.updates=2"))
        work(run)
        updates = [row for row in rows(tmp_path / "run") if row["stage"] == "training"]
        assert all(4 <= row["groups"] <= 8 for row in updates)  # of 16 episodes, with one or two learning seats
        assert all(math.isfinite(row["loss"]) for row in updates)

    def test_episodes_that_are_no_multiple_of_the_group_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="multiple of the algorithm's group size, 3, not 16"):
            kuhn("algorithm.name=rloo", "algorithm.options.group_size=3")


class Clipped:
    """An algorithm of somebody else: centred returns with a clipped ratio, several steps a batch."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        clip: float = 0.2

    METRICS: ClassVar = {"centre": "the mean return of the batch"}

    def __init__(self, options: Options) -> None:
        self.clip = options.clip
        self.needs = Needs(epochs=3)

    def advantages(self, batch: Batch) -> Advantages:
        centre = fmean(transition.return_ for transition in batch.transitions)
        return Advantages([t.return_ - centre for t in batch.transitions], {"centre": centre})

    def loss(self, tokens: TokenBatch) -> torch.Tensor:
        assert int(tokens.counts.max()) == 1  # rows are not folded for a loss that is not linear
        ratio = torch.exp((tokens.logprobs - tokens.behaviour_logprobs) * tokens.counts)
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        gain = torch.minimum(ratio * tokens.advantages, clipped * tokens.advantages)
        return -(gain * tokens.counts).sum() / tokens.denominator


class TestFromOutside:
    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(algorithms, "_algorithms", dict(algorithms._algorithms))
        register_algorithm("clipped", Clipped)  # type: ignore[arg-type]

    def test_it_trains_kuhn_poker(self, tmp_path: Path, steps: list[dict[str, Any]]) -> None:
        config = kuhn("algorithm.name=clipped", "algorithm.options.clip=0.1", "imitation.steps=20")
        run = TrainingRun.start(tmp_path / "run", config)
        work(run)
        assert run.report is not None and run.loop is not None
        assert len(steps) == 20 + 3 * 6
        assert run.loop.learners["policy"].backend.version == 6
        updates = [row for row in rows(tmp_path / "run") if row["stage"] == "training"]
        assert all(math.isfinite(row["loss"]) and "centre" in row for row in updates)
        assert any(abs(row["logprob_diff"]) > 1e-4 for row in updates)  # the last of three steps is off-policy

    def test_it_can_be_named_by_where_it_is(self) -> None:
        config = kuhn("algorithm.name=tests.trainers.test_algorithms:Clipped")
        assert make_algorithm(config.algorithm.name, {}).needs.epochs == 3

    @pytest.mark.parametrize(
        ("assignment", "complaint"),
        [
            (
                "algorithm.name=rebnn",
                "'rebnn'; there are clipped, grpo, ppo, rae, rebn, reinforce_pp, rloo. Did you mean 'rebn'",
            ),
            ("algorithm.name=nowhere:Class", "'nowhere:Class' cannot be imported"),
            ("algorithm.options.clip=1", "algorithm.options of 'rebn': Object contains unknown field `clip`"),
        ],
    )
    def test_what_there_is_not_is_an_error(self, assignment: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            kuhn(assignment)

    @pytest.mark.parametrize(
        ("source", "complaint"),
        [
            ("def (:", "'mine:Mine' cannot be imported: SyntaxError"),
            ("1 / 0", "'mine:Mine' cannot be imported: ZeroDivisionError"),
            ("Mine = 3", "'mine:Mine' is no algorithm: it has no Options and no advantages"),
        ],
    )
    def test_a_file_that_holds_none_is_an_error(
        self, source: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "mine.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        with pytest.raises(ConfigError, match=complaint):
            kuhn("algorithm.name=mine:Mine")
        sys.modules.pop("mine", None)

    @pytest.mark.parametrize(
        ("values", "complaint"),
        [([0.0], "gave 1 advantages for 2 transitions"), ([0.0, math.nan], "the advantage nan to 'a' in episode 1")],
    )
    def test_advantages_are_one_finite_number_for_each_transition(self, values: list[float], complaint: str) -> None:
        two = batch(transition("a", 0.0, episode="0"), transition("a", 1.0, episode="1"))
        with pytest.raises(TrainingError, match=complaint):
            two.with_advantages(values)

    @pytest.mark.parametrize("needs", [{"group_size": 0}, {"epochs": 0}])
    def test_needs_are_numbers_from_1_up(self, needs: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="from 1 up"):
            Needs(**needs)

    def test_a_name_can_be_taken_once(self) -> None:
        with pytest.raises(ConfigError, match="'rebn' cannot name an algorithm"):
            register_algorithm("rebn", Clipped)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rebn", "rloo", "rae", "grpo", "reinforce_pp", "ppo"])
def test_an_algorithm_is_a_file_of_under_80_lines(name: str) -> None:
    text = (Path(algorithms.__file__).parent / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) < 80
