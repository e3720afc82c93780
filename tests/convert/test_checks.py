"""PettingZoo's and Gymnasium's checks of our envs, and our checks of theirs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

from gymnasium.utils.env_checker import check_env as gymnasium_check_env  # noqa: E402
from pettingzoo.test import api_test, parallel_api_test, seed_test  # noqa: E402

from marl_gem import MultiAgentEnv  # noqa: E402
from marl_gem.convert import from_gymnasium, from_pettingzoo, to_aec, to_gymnasium, to_parallel  # noqa: E402
from marl_gem.errors import ConversionError  # noqa: E402
from marl_gem.testing import check_env  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import NATIVE, ONE_AGENT, aec_episode, every_scenario, make, parallel_episode  # noqa: E402


@every_scenario
def test_pettingzoo_s_checks_of_an_aec_env(name: str) -> None:
    api_test(to_aec(make(name)), num_cycles=5)
    seed_test(lambda: to_aec(make(name)), num_cycles=5)


@every_scenario
def test_pettingzoo_s_checks_of_a_parallel_env_or_a_way_out(name: str) -> None:
    env = make(name)
    if env.metadata.turn_order == "parallel" or len(env.possible_agents) == 1:
        parallel_api_test(to_parallel(env), num_cycles=10)
        first, second = (parallel_episode(to_parallel(make(name)), seed=11) for _ in range(2))
        assert first == second
    else:
        with pytest.raises(ConversionError, match="to_aec"):
            to_parallel(env).reset(seed=0)


@pytest.mark.parametrize("name", ["RockPaperScissors", "game:KuhnPoker-v0", "Village"])
def test_another_seed_is_another_episode(name: str) -> None:
    assert len({repr(aec_episode(to_aec(make(name)), seed=seed)) for seed in range(5)}) > 2


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name.startswith("ta:RushHour") else ()) for name in ONE_AGENT],
)
def test_gymnasium_s_checks(name: str) -> None:
    gymnasium_check_env(to_gymnasium(make(name)))


@pytest.mark.parametrize("name", ["RockPaperScissors", "game:KuhnPoker-v0", "Debate"])
def test_gymnasium_s_checks_with_others_in_their_seats(name: str) -> None:
    env = make(name)
    seat, *rest = env.possible_agents
    others = dict.fromkeys(rest, lambda observation, info: info.get("legal_actions", ["hm"])[0])
    gymnasium_check_env(to_gymnasium(env, seat=seat, others=others))


@pytest.mark.parametrize("name", ["connect four", "rps, parallel", "leduc", "FrozenLake-v1", "Blackjack-v1"])
def test_a_foreign_env_keeps_our_promises(name: str) -> None:
    if name in NATIVE:
        make: Callable[[], MultiAgentEnv] = functools.partial(from_pettingzoo, NATIVE[name])
    else:
        make = functools.partial(from_gymnasium, functools.partial(gymnasium.make, name))
    check_env(make).raise_if_failed()
