"""TimeLimit and EpisodeStatistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import marl_gem
from marl_gem import MultiAgentEnv
from marl_gem.errors import ConfigError, EpisodeOver
from marl_gem.types import from_json, to_json
from marl_gem.wrappers import (
    EpisodeStatistics,
    RewardScale,
    Statistics,
    TimeLimit,
)
from tests.wrappers.wrapped import (
    Inn,
    Race,
    every_env,
    play,
    say,
)

# TimeLimit


@every_env
def test_a_time_limit_is_what_max_steps_is(make: Callable[[], MultiAgentEnv]) -> None:
    for limit in (1, 2, 3, 5):
        for seed in range(6):
            limited = make()
            limited.max_steps = limit
            assert play(TimeLimit(make(), limit), seed) == play(limited, seed)


def test_a_time_limit_truncates_whoever_is_left() -> None:
    env = TimeLimit(Inn(), 2)
    env.reset(seed=0)
    observations, rewards, terminations, truncations, infos = say(env, "banish cat", "invite dan")
    assert observations == {} and env.done and env.acting == env.agents == ()
    assert rewards.keys() == {"ann", "bob"} and env.returns == {"ann": 0.0, "bob": 0.0, "cat": 0.0, "dan": 4.0}
    assert truncations == {"ann": True, "bob": True} and not any(terminations.values())
    assert infos["ann"]["final_observation"] == env.observe("ann") != ""
    with pytest.raises(EpisodeOver, match="the episode is over"):
        env.step({"ann": "hello"})
    env.reset(seed=0)
    assert env.agents == ("ann", "bob", "cat")


def test_an_end_at_the_limit_is_no_truncation() -> None:
    env = TimeLimit(Race(), 3)
    env.reset()
    _, _, terminations, truncations, _ = say(env, "fast", "fast", "fast")
    assert all(terminations.values()) and not any(truncations.values())


def test_the_smaller_limit_holds_and_can_be_set() -> None:
    env = TimeLimit(TimeLimit(Inn(), 5), 8)
    assert (env.max_steps, env.env.max_steps, env.unwrapped.max_steps) == (5, 5, 20)
    env.max_steps = 3
    assert (env.max_steps, env.unwrapped.max_steps) == (3, 20)
    env.reset()
    say(env, "0", "0", "0")
    assert env.done
    env.max_steps = None
    assert env.max_steps == 5


def test_zero_sum_is_not_declared_under_a_limit() -> None:
    env = marl_gem.make("game:KuhnPoker-v0")
    assert env.metadata.zero_sum and TimeLimit(env, 1).metadata == msgspec.structs.replace(env.metadata, zero_sum=None)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", True, None], ids=str)
def test_a_limit_is_a_number_of_steps(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="TimeLimit: max_steps is a whole number"):
        TimeLimit(Inn(), wrong)


# EpisodeStatistics


def test_every_agent_is_told_at_its_end() -> None:
    env = EpisodeStatistics(TimeLimit(Inn(), 5))
    env.reset(seed=0)
    *_, infos = say(env, "3", "leave")
    assert infos["bob"]["episode"] == {"return": 0.0, "steps": 2, "turns": 1}
    assert "episode" not in infos["ann"]
    *_, infos = say(env, "tip bob", "4", "2")
    assert infos["ann"]["episode"] == {"return": 7.0, "steps": 5, "turns": 2}
    assert infos["cat"]["episode"] == {"return": 2.0, "steps": 5, "turns": 2}
    found = env.statistics
    assert found.returns == {"ann": 7.0, "bob": 2.0, "cat": 2.0}, "what came after the end counts"
    assert (found.episodes, found.steps, found.turns) == (1, 5.0, {"ann": 2.0, "bob": 1.0, "cat": 2.0})


def test_averages_over_the_newest_episodes() -> None:
    env = EpisodeStatistics(TimeLimit(Inn(), 3), window=2)
    assert env.statistics == Statistics()
    for first in ("9", "1", "invite dan"):
        env.reset()
        say(env, first, "0", "2")
    env.reset()
    say(env, "9")
    env.reset()
    found = env.statistics
    assert (found.episodes, found.steps) == (3, 3.0), "an episode that was broken off does not count"
    assert found.returns == {"ann": 0.5, "bob": 0.0, "cat": 2.0, "dan": 4.0}
    assert found.turns == {"ann": 1.0, "bob": 1.0, "cat": 1.0, "dan": 0.0}
    assert 0 < found.seconds < 1
    assert from_json(to_json(found), Statistics) == found


def test_statistics_see_rewards_where_they_stand() -> None:
    inside, outside = EpisodeStatistics(TimeLimit(Inn(), 1)), EpisodeStatistics
    env = outside(RewardScale(inside, 2.0))
    env.reset()
    *_, infos = say(env, "3")
    assert infos["ann"]["episode"]["return"] == env.statistics.returns["ann"] == 6.0
    assert inside.statistics.returns["ann"] == 3.0


@pytest.mark.parametrize("wrong", [0, -1, 1.5, None], ids=str)
def test_a_window_is_a_number_of_episodes(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="window is a number of episodes"):
        EpisodeStatistics(Inn(), wrong)
