"""Gymnasium's envs as ours."""

from __future__ import annotations

import json
import random

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402

from marl_gem.convert import from_gymnasium  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import TAXI, as_action  # noqa: E402


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("id", ["FrozenLake-v1", "CartPole-v1", "Blackjack-v1", TAXI, "MountainCarContinuous-v0"])
def test_a_gymnasium_env_plays_the_same_episode_in_text(id: str, seed: int) -> None:
    env, native, dice = from_gymnasium(lambda: gymnasium.make(id)), gymnasium.make(id), random.Random(seed)
    assert env.scenario == id and env.possible_agents == ("player_0",)
    env.reset(seed=seed)
    native.reset(seed=seed)
    total, ended = 0.0, (False, False)
    while not env.done:
        text = dice.choice(env.legal_actions("player_0") or [json.dumps([dice.uniform(-1, 1)])])
        _, rewards, terminations, truncations, _ = env.step({"player_0": text})
        _, reward, *ended, _ = native.step(
            as_action(text) if "." not in text else np.array(json.loads(text), np.float32)
        )
        assert rewards["player_0"] == reward
        total += float(reward)
    assert env.returns["player_0"] == total
    assert (terminations["player_0"], truncations["player_0"]) == tuple(ended)


def test_taxi_tells_which_moves_have_an_effect() -> None:
    env = from_gymnasium(lambda: gymnasium.make(TAXI), actions=["south", "north", "east", "west", "get", "drop"])
    observations, infos = env.reset(seed=0)
    legal = infos["player_0"]["legal_actions"]
    assert set(legal) < {"[south]", "[north]", "[east]", "[west]", "[get]", "[drop]"}
    assert observations["player_0"].endswith(f"Legal actions: {' '.join(legal)}")
