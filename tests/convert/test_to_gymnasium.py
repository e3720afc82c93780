"""Our envs as Gymnasium's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")


from marl_gem.convert import to_gymnasium  # noqa: E402
from marl_gem.errors import ConversionError, EpisodeOver  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import Quiz, RockPaperScissors, Village, make  # noqa: E402


def test_one_agent_as_a_gymnasium_env() -> None:
    env = to_gymnasium(Quiz())
    observation, info = env.reset(seed=4)
    assert isinstance(env, gymnasium.Env) and info == {}
    total, ended = 0.0, False
    while not ended:
        observation, reward, ended, truncated, info = env.step(str(2 * int(observation)))  # type: ignore[arg-type]
        total += float(reward)
        assert info["right"] and not truncated
    assert total == 3.0 and observation == info["final_observation"]
    with pytest.raises(EpisodeOver, match="reset"):
        env.step("7")


def test_the_others_play_until_the_seat_is_to_act_again() -> None:
    asked = []

    def second(observation: Any, info: Mapping[str, Any]) -> str:
        asked.append((observation, info["legal_actions"]))
        return "[fold]" if "bet" in observation else "[check]"

    env = to_gymnasium(make("game:KuhnPoker-v0"), seat="player_0", others={"player_1": second})
    _, info = env.reset(seed=0)
    assert info["legal_actions"] == ["[check]", "[bet]"]
    _, reward, terminated, _, _ = env.step("[bet]")
    assert (reward, terminated) == (1.0, True) and "bet" in asked[0][0] and asked[0][1] == ["[fold]", "[call]"]
    env = to_gymnasium(make("game:KuhnPoker-v0"), seat="player_1", others={"player_0": lambda o, i: "[bet]"})
    observation, info = env.reset(seed=0)
    assert "bet" in observation and info["legal_actions"] == ["[fold]", "[call]"]
    assert env.step("[fold]")[1:3] == (-1.0, True)


def test_rewards_before_the_first_turn_and_after_the_end_belong_to_the_seat() -> None:
    others = dict.fromkeys(("ann", "cat"), lambda observation, info: "thank bob")
    env: Any = to_gymnasium(Village(), seat="bob", others=others)
    env.reset(seed=0)
    assert env.step("hello")[1] == 0.75  # ann thanked it before, cat and ann did since
    _, reward, terminated, truncated, _ = env.step("leave")
    assert terminated and not truncated and reward == 0.25 * 35 and env.marl_env.done
    assert reward + 0.75 == env.returns["bob"]


def test_a_seat_that_ends_before_its_first_turn_is_told_so_by_the_first_step() -> None:
    others = dict.fromkeys(("ann", "cat"), lambda observation, info: "banish bob")
    env = to_gymnasium(Village(), seat="bob", others=others)
    observation, info = env.reset(seed=0)
    assert observation == info["final_observation"]
    assert env.step("anything")[:4] == (observation, 0.0, False, True)
    with pytest.raises(EpisodeOver):
        env.step("anything")


def test_seats_and_others_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConversionError, match="seat="):
        to_gymnasium(RockPaperScissors())
    with pytest.raises(ConversionError, match=r"no agent 'c'.*'a_0'"):
        to_gymnasium(RockPaperScissors(), seat="c")
    with pytest.raises(ConversionError, match=r"nobody plays \['b_0'\]"):
        to_gymnasium(RockPaperScissors(), seat="a_0")
    env = to_gymnasium(Village(), "ann", dict.fromkeys(("bob", "cat"), lambda o, i: "invite dan"))
    env.reset(seed=0)
    with pytest.raises(ConversionError, match=r"nobody plays \['dan'\]"):
        env.step("hello")
    with pytest.raises(EpisodeOver):
        env.step("hello")


def test_many_at_once_in_gymnasium_s_vector_env() -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(Quiz())] * 3)
    observations, _ = envs.reset(seed=3)
    _, rewards, *_ = envs.step([str(2 * int(observation)) for observation in observations])
    assert list(rewards) == [1.0, 1.0, 1.0] and len(set(observations)) > 1
