"""skyrl-gym makes and steps a scenario by its registry."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("skyrl_gym")

import skyrl_gym
from skyrl_gym.envs.registration import registry

from marl_gem.errors import ConfigError, EpisodeOver
from marl_gem.integrations import SeatRunner, Start
from marl_gem.integrations.skyrl_gym import environment
from tests.toys import NumberGame, always


def test_a_registered_scenario_is_played() -> None:
    runner = SeatRunner(NumberGame, others={"b": always("7")})
    skyrl_gym.register("numbers", entry_point=environment(runner))
    try:
        env = skyrl_gym.make("numbers", env_config={}, extras={"start": Start(5).to_text()})
        messages, _ = env.init([])
        assert messages == [{"role": "system", "content": "You are a."}, {"role": "user", "content": "step 0"}]
        output = env.step("1")
        assert output["observations"] == [{"role": "user", "content": "step 2"}]
        assert (output["reward"], output["done"]) == (0.0, False)
        output = env.step("2")
        assert (output["reward"], output["done"]) == (3.0, True)
        with pytest.raises(EpisodeOver, match="call init first"):
            env.step("3")
        env.close()
    finally:
        registry.pop("numbers")
    assert not [thread for thread in threading.enumerate() if thread.name == "marl_gem-integrations"]


def test_several_seats_are_refused() -> None:
    with pytest.raises(ConfigError, match="one agent, not a, b"):
        environment(SeatRunner(NumberGame))()
