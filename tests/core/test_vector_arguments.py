"""Mistakes of the caller of a vector are raised, and nothing has changed."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from marl_gem.errors import ConfigError, EnvError, EpisodeOver, InvalidAction, InvalidOption
from marl_gem.vector import Autoreset, VectorEnv
from tests.core.vector_envs import (
    PLAY,
    Fixed,
    Gated,
    SlowTable,
    Table,
    answer,
    each,
    every_autoreset,
    gate,
    sync_and_async,
)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@sync_and_async
@pytest.mark.parametrize(
    ("wrong", "error", "complaint"),
    [
        ([PLAY, PLAY, {"a": "1"}], InvalidAction, r"env 2: .*missing \['b'\]"),
        ([PLAY, PLAY, {"a": "1", "b": "1", "c": "1"}], InvalidAction, r"env 2: .*\['c'\]"),
        ([PLAY, {"a": "1", "b": 1}, PLAY], InvalidAction, r"env 1: .*must be text"),
        ([PLAY, None, PLAY], InvalidAction, r"env 1: .*must be a dict"),
        ([PLAY, PLAY], InvalidAction, r"2 dicts of actions for 3 envs"),
        ({0: PLAY, 1: {}}, InvalidAction, r"env 1: .*missing"),
        ({0: PLAY, 3: PLAY}, EnvError, r"no env 3; they are numbered from 0 to 2"),
        ({0: PLAY, -1: PLAY}, EnvError, r"no env -1"),
        ({0: PLAY, 0.5: PLAY}, EnvError, r"no env 0.5"),
        (PLAY, EnvError, r"no env 'a'"),
    ],
)
def test_wrong_actions(wrong: Any, error: type[Exception], complaint: str, workers: int) -> None:
    with VectorEnv(Fixed, 3, workers=workers) as envs:
        envs.reset()
        for move in (envs.step, envs.send):
            with pytest.raises(error, match=complaint):
                move(wrong)
        assert envs.outstanding == [] and [env.steps for env in envs] == [0, 0, 0]
        assert [result.returns for result in envs.step([PLAY] * 3)] == [each(1.0)] * 3


def test_one_step_at_a_time() -> None:
    with VectorEnv(Gated, 3) as envs:
        envs.reset()
        envs.send({1: each("wait")})
        for move in (envs.step, envs.send):
            with pytest.raises(EnvError, match=r"last step of env 1 is outstanding; recv"):
                move([PLAY, PLAY, PLAY])
        assert [envs[0].steps, envs[2].steps] == [0, 0]
        assert [result.index for result in envs.step({0: PLAY, 2: PLAY})] == [0, 2]
        gate(envs, 1).set()
        assert [result.index for result in envs.recv()] == [1]
        with pytest.raises(EnvError, match=r"wait for 1 results while 0 steps are outstanding"):
            envs.recv()
        assert envs.recv(at_least=0) == []


@sync_and_async
def test_a_result_that_was_not_read_is_outstanding_still(workers: int) -> None:
    with VectorEnv(Fixed, 2, workers=workers) as envs:
        envs.reset()
        envs.send([PLAY, PLAY])
        time.sleep(0.02)
        with pytest.raises(EnvError, match="outstanding"):
            envs.send({0: PLAY})
        with pytest.raises(EnvError, match="3 results"):
            envs.recv(3)
        assert len(envs.recv(2)) == 2


@sync_and_async
def test_a_reset_drops_what_is_outstanding(workers: int) -> None:
    with VectorEnv(SlowTable, 3, seed=1, workers=workers) as envs:
        before = envs.reset()
        envs.send([answer(result.observations, random.Random(0)) for result in before])
        assert envs.reset(seed=1, only=[0, 2]) == [before[0], before[2]]
        assert envs.outstanding == [1]
        assert [result.index for result in envs.recv()] == [1]


@every_autoreset
def test_a_vector_is_reset_before_it_steps(autoreset: Autoreset) -> None:
    with VectorEnv(Fixed, 2, autoreset=autoreset) as envs:
        envs.reset(only=[0])
        with pytest.raises(EpisodeOver, match="env 1 was never reset"):
            envs.step([PLAY, PLAY])
        assert envs[0].steps == 0


@pytest.mark.parametrize(
    ("wrong", "error", "complaint"),
    [
        ({"seed": -1}, InvalidOption, "not -1"),
        ({"seed": True}, InvalidOption, "not True"),
        ({"seed": 1.5}, InvalidOption, r"not 1\.5"),
        ({"seed": {0: 3, 1: "x"}}, InvalidOption, "not 'x'"),
        ({"seed": {0: 3}, "only": [0]}, InvalidOption, "leave out `only`"),
        ({"seed": {0: 3, 2: 3}}, EnvError, "no env 2"),
        ({"seed": [3, 4, 5]}, InvalidOption, "3 seeds for 2 envs"),
        ({"seed": [3, -1]}, InvalidOption, "not -1"),
        ({"only": [0, 7]}, EnvError, "no env 7"),
        ({"only": ["a", 0]}, EnvError, "no env 'a'"),
    ],
)
def test_wrong_resets(wrong: dict[str, Any], error: type[Exception], complaint: str) -> None:
    with VectorEnv(Fixed, 2, seed=0) as envs:
        envs.reset()
        envs.step([PLAY, PLAY])
        with pytest.raises(error, match=complaint):
            envs.reset(**wrong)
        assert [result.returns["a"] for result in envs.step([PLAY, PLAY])] == [2.0, 2.0]


def test_options_stay_with_the_env_until_its_next_reset() -> None:
    given = {"house": 5}
    with VectorEnv(Table, 2, seed=0) as envs:
        envs.reset(options=given, only=[0])
        envs.reset(only=[1])
        given["house"] = 6
        results = envs.step([dict.fromkeys(env.acting, "0") for env in envs])
        while any(result.episode < 2 for result in results):
            results = envs.step([dict.fromkeys(result.observations, "0") for result in results])
        assert [env.house for env in envs if isinstance(env, Table)] == [5, 0]
        envs.reset()
        assert [env.house for env in envs if isinstance(env, Table)] == [0, 0]


@sync_and_async
def test_options_that_a_scenario_does_not_take_are_the_caller_s_mistake(workers: int) -> None:
    with VectorEnv([Fixed, Fixed], workers=workers) as envs:
        with pytest.raises(InvalidOption, match=r"env 0: Fixed takes no reset options.*size"):
            envs.reset(options={"size": 3})
        assert all(result.error is None for result in envs.reset())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([],), "no envs"),
        ((Fixed, 0), "no envs"),
        ((Fixed, -1), "no envs"),
        ((Fixed, 2.0), r"copies is a whole number from 1 up, not 2\.0"),
        (("game:KuhnPoker-v0", 2), r"env 0 is to be made by 'game:KuhnPoker-v0'"),
        ((64,), "env 0 is to be made by 64"),
        (((Fixed, 64),), "env 1 is to be made by 64"),
        ((["game:KuhnPoker-v0"],), r"env 0 is to be made by 'game:KuhnPoker-v0'.*marl_gem\.make"),
        (([Fixed, lambda: None],), "env 1 is no MultiAgentEnv"),
        (([Fixed, Gated, Table, Table],), r"env 2 has the agents \['ann', 'bob'\], those before it \['a', 'b'\]"),
    ],
)
def test_vectors_that_make_no_sense(arguments: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        VectorEnv(*arguments)


@pytest.mark.parametrize("settings", [{"autoreset": "never"}, {"workers": -1}, {"workers": 1.5}])
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=str(next(iter(settings.values())))):
        VectorEnv(Fixed, **settings)


def test_one_env_twice() -> None:
    env = Fixed()
    with pytest.raises(ConfigError, match="env 1 is the same object as env 0"):
        VectorEnv(lambda: env, 3)


def test_envs_are_closed_if_the_vector_cannot_be_made() -> None:
    made: list[Fixed] = []

    def make() -> Fixed:
        made.append(Fixed())
        return made[-1]

    with pytest.raises(ConfigError):
        VectorEnv([make, make, Table])
    assert [env.closed for env in made] == [1, 1]
