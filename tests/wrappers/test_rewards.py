"""Wrappers that change rewards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem import Metadata, MultiAgentEnv
from marl_gem.errors import ConfigError, EpisodeOver, ScenarioFault
from marl_gem.wrappers import (
    RewardClip,
    RewardScale,
    RewardWrapper,
    StepPenalty,
    TimeLimit,
)
from tests.toys import one_agent
from tests.wrappers.wrapped import (
    WRAPPERS,
    Inn,
    Race,
    every_env,
    play,
    say,
)


def test_rewards_in_all_their_ways() -> None:
    """A newcomer's first, one in the very step that ends an agent, and one that comes after its end."""
    env = RewardScale(Inn(), 10.0)
    env.reset(seed=0)
    _, rewards, *_ = say(env, "invite dan")
    assert rewards == env.rewards == {"ann": 0.0, "bob": 0.0, "cat": 0.0}
    assert env.returns == {"ann": 0.0, "bob": 0.0, "cat": 0.0, "dan": 40.0}
    _, rewards, *_ = say(env, "leave", "tip bob")
    assert "bob" not in rewards and env.returns["bob"] == 20.0
    _, rewards, *_ = say(env, "7", "tip bob", "tip dan")
    assert rewards == {"ann": 0.0, "cat": 0.0, "dan": 20.0}
    assert env.returns == {"ann": 0.0, "bob": 40.0, "cat": 0.0, "dan": 130.0}
    assert env.unwrapped.returns == {"ann": 0.0, "bob": 4.0, "cat": 0.0, "dan": 13.0}


def test_each_own_action_costs_also_the_last_one() -> None:
    env = StepPenalty(Inn(), 0.5)
    env.reset(seed=0)
    _, rewards, *_ = say(env, "banish bob")
    assert rewards == {"ann": -0.5, "bob": 0.0, "cat": 0.0}
    _, rewards, *_ = say(env, "leave")
    assert rewards == {"ann": 0.0, "cat": -0.5} and env.agents == ("ann",)
    assert say(env, "tip cat")[1] == {"ann": -0.5}
    assert env.returns == {"ann": -1.0, "bob": 0.0, "cat": 1.5}
    race = StepPenalty(Race(), 0.5)
    race.reset(seed=0)
    assert say(race, "up")[1] == {"left": -0.5, "right": -0.5}


def test_clipping_bounds_each_reward_not_their_sum() -> None:
    env = RewardClip(Inn(), -1.0, 1.5)
    env.reset(seed=0)
    say(env, "leave", "9", "tip ann", "1", "tip ann")
    assert env.returns == {"ann": 3.0, "bob": 2.5, "cat": 0.0}
    assert env.rewards == {"bob": 0.0, "cat": 0.0}


CHANGES: dict[str, tuple[Callable[[MultiAgentEnv], MultiAgentEnv], Callable[[float, bool], float]]] = {
    "penalty": (lambda env: StepPenalty(env, 0.25), lambda reward, acted: reward - 0.25 * acted),
    "scale": (lambda env: RewardScale(env, -0.5), lambda reward, acted: -0.5 * reward),
    "clip": (lambda env: RewardClip(env, -0.5, 1.5), lambda reward, acted: max(-0.5, min(1.5, reward))),
}


@every_env
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([*CHANGES]), max_size=4), st.integers(0, 10**6))
def test_rewards_and_returns_against_a_count_by_hand(
    make: Callable[[], MultiAgentEnv], changes: list[str], seed: int
) -> None:
    def change(reward: float, acted: bool) -> float:
        for name in changes:
            reward = CHANGES[name][1](reward, acted)
        return reward

    env = make()
    for name in changes:
        env = CHANGES[name][0](env)
    bare, expected, told = play(make(), seed), dict[str, float](), dict[str, float]()
    for (actions, (_, inner, *_), _, _, returns), (_, (_, changed, *_), _, _, sums) in zip(
        bare[1:], play(env, seed)[1:], strict=True
    ):
        assert changed == pytest.approx({agent: change(reward, agent in actions) for agent, reward in inner.items()})
        for agent, total in returns.items():
            late = total - told.get(agent, 0.0)
            gained = change(inner[agent], agent in actions) if agent in inner else change(late, False) if late else 0.0
            expected[agent] = expected.get(agent, 0.0) + gained
        assert sums == pytest.approx(expected)
        told = returns


def test_what_is_declared_of_rewards_follows_them() -> None:
    inner = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-2.0, 2.0))
    facts = {
        name: wrap(marl_gem.make("game:KuhnPoker-v0")).metadata
        for name, wrap in {
            "penalty": WRAPPERS["penalty"],
            "scale": WRAPPERS["scale"],
            "clip": WRAPPERS["clip"],
            "other": RewardWrapper,
        }.items()
    }
    ranges = {"penalty": (-2.1, 2.0), "scale": (-0.6, 0.6), "clip": (-0.5, 1.5), "other": None}
    for name, found in facts.items():
        zero_sum = True if name == "scale" else None
        assert found == msgspec.structs.replace(inner, zero_sum=zero_sum, reward_range=ranges[name])
    assert RewardClip(one_agent(), -1, 0).metadata.reward_range == (-1.0, 0.0)
    assert RewardScale(one_agent(), 2).metadata == StepPenalty(one_agent(), 2).metadata == Metadata()


def test_rewards_of_some_agents_alone() -> None:
    env = RewardScale(StepPenalty(marl_gem.make("game:KuhnPoker-v0"), 0.5, agents="player_1"), 10.0, ["player_0"])
    env.reset(seed=0)
    say(env, "[check]", "[bet]", "[fold]")
    assert env.returns == {"player_0": -10.0, "player_1": 0.5}
    assert env.metadata.zero_sum is None and env.metadata.reward_range == (-25.0, 20.0)


class TestOffset:
    def test_it_comes_once_with_the_end_however_an_agent_ends(self) -> None:
        """One leaves, one is sent away while it waits, one is paid after its end, and one joins in the last step."""
        env = RewardScale(TimeLimit(Inn(), 5), 10.0, offset=1.0)
        env.reset(seed=0)
        assert say(env, "leave")[1] == {"ann": 1.0, "bob": 0.0, "cat": 0.0}
        assert say(env, "banish cat")[1] == {"bob": 0.0, "cat": 1.0}
        assert say(env, "tip ann")[1] == {"bob": 0.0}
        assert say(env, "3")[1] == {"bob": 30.0}
        _, rewards, _, truncations, _ = say(env, "invite dan")
        assert rewards == {"bob": 1.0} and truncations == {"bob": True}
        assert env.returns == {"ann": 21.0, "bob": 31.0, "cat": 1.0, "dan": 41.0}
        env.reset(seed=0)
        assert env.returns == {"ann": 0.0, "bob": 0.0, "cat": 0.0}

    def test_of_one_seat_named_in_text(self) -> None:
        env = marl_gem.make("game:KuhnPoker-v0", wrappers=["reward_scale=10,agents=player_1,offset=50"])
        env.reset(seed=0)
        say(env, "[check]", "[bet]", "[fold]")
        assert env.returns == {"player_0": -1.0, "player_1": 60.0}
        assert env.metadata.zero_sum is None and env.metadata.reward_range == (-20.0, 70.0)

    def test_a_copy_goes_on_by_itself(self) -> None:
        env = RewardScale(Inn(), 1.0, ["ann", "bob"], 5.0)
        env.reset(seed=0)
        say(env, "leave")
        for inn in (env.fork(), env):
            assert say(inn, "leave")[1] == {"bob": 5.0, "cat": 0.0} and say(inn, "leave")[1] == {"cat": 0.0}
            assert inn.returns == {"ann": 5.0, "bob": 5.0, "cat": 0.0}

    def test_a_wrapper_that_ends_episodes_stands_inside(self) -> None:
        assert TimeLimit(RewardScale(Inn(), 2.0), 3).max_steps == 3
        with pytest.raises(ConfigError, match=r"right order is RewardScale\(TimeLimit\(Inn\)\)"):
            TimeLimit(RewardScale(Inn(), 2.0, offset=1.0), 3)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: RewardScale(Inn(), 1, offset=math.nan), "offset is a finite number"),
        (lambda: RewardScale(Race(), 2, "rihgt"), "Race has no agent 'rihgt'; its agents are left, right"),
        (lambda: StepPenalty(Inn(), -0.1), "give 0.1 instead of -0.1"),
        (lambda: StepPenalty(Inn(), math.nan), "penalty is a finite number"),
        (lambda: RewardScale(Inn(), math.inf), "factor is a finite number"),
        (lambda: RewardScale(Inn(), cast(Any, "2")), "factor is a finite number, not '2'"),
        (lambda: RewardScale(Inn(), True), "factor is a finite number"),
        (lambda: RewardClip(Inn(), 1.0, -1.0), "0 must lie between"),
        (lambda: RewardClip(Inn(), 0.5, 1.0), "0 must lie between"),
        (lambda: RewardClip(Inn(), cast(Any, None), 1.0), "low is a finite number"),
    ],
)
def test_numbers_that_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make()


def test_numbers_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    assert TimeLimit(Inn(), numpy.int64(3)).max_steps == 3
    env = StepPenalty(Inn(), numpy.float32(0.5))
    env.reset(seed=0)
    (agent,) = env.acting
    _, rewards, *_ = env.step({agent: "0"})
    assert rewards[agent] == -0.5 and type(rewards[agent]) is float


def test_a_reward_that_no_float_can_hold_is_a_fault() -> None:
    env = RewardScale(RewardScale(Inn(), 1e200), 1e200)
    env.reset()
    say(env, "0")
    with pytest.raises(ScenarioFault, match=r"Inn: step 2 gave 'bob' the reward inf"):
        say(env, "3")
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "3")
    env.reset()
    say(env, "0")


def test_a_reward_of_one_s_own() -> None:
    class Halves(RewardWrapper):
        def reward(self, agent: str, reward: float, acted: bool) -> float:
            return reward / 2 if agent == "ann" else reward

    env = Halves(Inn())
    env.reset()
    say(env, "3", "3")
    assert env.returns == {"ann": 1.5, "bob": 3.0, "cat": 0.0}
    broken = RewardWrapper(Inn())
    broken.reset()
    with pytest.raises(ScenarioFault, match=r"RewardWrapper\.reward raised NotImplementedError.*must define reward"):
        say(broken, "3")
