"""Envs converted to another library and back play the same episodes."""

from __future__ import annotations

import random

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")


from marl_gem.convert import from_gymnasium, from_pettingzoo, to_aec, to_gymnasium, to_parallel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import HERE, ONE_AGENT, QUICK_SEEDS, REGISTERED, choose, make, same_episode  # noqa: E402

MIXED = ("Debate", "game:Werewolf-v0")
"""Where agents act together in some steps and alone in others, PettingZoo's agents act one after the other in all."""


@pytest.mark.parametrize("name", [name for name in [*HERE, *REGISTERED] if name not in MIXED])
def test_to_pettingzoo_and_back_is_the_same_episode(name: str) -> None:
    env = make(name)
    parallel = env.metadata.turn_order == "parallel"
    back = from_pettingzoo(lambda: (to_parallel if parallel else to_aec)(make(name)))
    assert same_episode(env, back, seed=QUICK_SEEDS.get(name, 3), steps=15)


@pytest.mark.parametrize("name", ["RockPaperScissors", "Debate"])
def test_to_aec_and_back_gives_the_same_returns_where_agents_act_together(name: str) -> None:
    env, back, dice = make(name), from_pettingzoo(lambda: to_aec(make(name))), random.Random(2)
    env.reset(seed=1)
    back.reset(seed=1)
    while not env.done:
        actions = {agent: choose(env, agent, dice) for agent in env.acting}
        for agent, action in actions.items():
            assert back.acting == (agent,) and back.observe(agent) == env.observe(agent)
            back.step({agent: action})
        env.step(actions)
    late = 10.0 if name == "Debate" else 0.0  # a reward after the end, which PettingZoo has no place for
    assert back.done and sum(back.returns.values()) + late == sum(env.returns.values())


@pytest.mark.parametrize("name", ONE_AGENT)
def test_to_gymnasium_and_back_is_the_same_episode(name: str) -> None:
    env = make(name)
    back = from_gymnasium(lambda: to_gymnasium(make(name)))
    ours = dict.fromkeys(env.possible_agents, "player_0")
    assert same_episode(env, back, seed=QUICK_SEEDS.get(name, 3), steps=15, names=ours)
