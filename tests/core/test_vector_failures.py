"""What an env of a vector fails at is in its result, and the others go on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from marl_gem.errors import EnvError, EpisodeOver
from marl_gem.seeding import derive_seed
from marl_gem.types import EpisodeError
from marl_gem.vector import Result, VectorEnv
from tests.core.vector_envs import (
    PLAY,
    Boom,
    Fixed,
    Table,
    each,
    faulty,
    sync_and_async,
)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@sync_and_async
def test_a_step_that_fails(workers: int) -> None:
    made: list[Fixed] = []

    def make() -> Fixed:
        made.append(Fixed())
        return made[-1]

    with VectorEnv(make, 3, seed=0, workers=workers) as envs:
        envs.reset()
        results = envs.step([PLAY, each("break"), PLAY])
        assert [result.done for result in results] == [False, True, False]
        error = results[1].error
        assert error and error.origin == "env" and error.type == "ScenarioFault"
        assert "RuntimeError" in error.message and "broken" in error.message
        assert results[1] == Result(1, 0, derive_seed(0, 1, 0), done=True, error=error)
        results = envs.step([PLAY, {}, PLAY])
        assert [result.returns["a"] for result in results] == [2.0, 0.0, 2.0]
        assert results[1].episode == 1 and results[1].error is None
        assert envs[1] is made[3] and [env.closed for env in made] == [0, 1, 0, 0]
    assert [env.closed for env in made] == [1, 1, 1, 1]


def test_a_step_that_fails_with_autoreset_in_the_same_step() -> None:
    makes = [faulty(Fixed, {("step", 0), ("reset", 1)}), Fixed]
    with VectorEnv(makes, autoreset="same_step", seed=0) as envs:
        envs.reset()
        failed, fine = envs.step([PLAY, PLAY])
        assert fine.returns == each(1.0)
        assert failed.error and "step 0" in failed.error.message and failed.done and failed.observations == {}
        assert failed.final and failed.final.error == failed.error
        assert (failed.final.episode, failed.episode) == (0, 1)
        begun, _ = envs.step([{}, PLAY])
        assert begun.episode == 2 and begun.observations and not begun.error and not begun.done


def test_a_step_that_fails_with_autoreset_off() -> None:
    with VectorEnv(Fixed, 2, autoreset="off") as envs:
        envs.reset()
        envs.step([each("break"), PLAY])
        with pytest.raises(EpisodeOver, match="env 0 is over"):
            envs.step([PLAY, PLAY])
        assert envs.reset(only=[0])[0].error is None
        assert [result.error for result in envs.step([PLAY, PLAY])] == [None, None]


def test_envs_that_cannot_be_made_at_first() -> None:
    with VectorEnv([Fixed, faulty(Fixed, {("make", 0), ("make", 1)})], seed=0) as envs:
        assert len(envs) == 2
        with pytest.raises(EnvError, match="no env 1"):
            envs[1].role("a")
        results = envs.reset()
        assert results[0].error is None
        assert results[1].error == EpisodeError("env", "Boom", "make 1")
        assert [result.observations.keys() for result in envs.step([PLAY, {}])] == [{"a", "b"}] * 2


def test_if_no_env_can_be_made_there_is_no_vector() -> None:
    with pytest.raises(Boom, match="make 0"):
        VectorEnv(faulty(Fixed, {("make", 0), ("make", 1)}), 2)


def test_an_env_made_anew_has_the_same_agents() -> None:
    kinds = iter([Fixed, Table, Fixed])
    with VectorEnv([Fixed, lambda: next(kinds)()]) as envs:
        envs.reset()
        envs.step([PLAY, each("break")])
        error = envs.step([PLAY, {}])[1].error
        assert error and error.type == "ConfigError" and "env 1 has the agents ['ann', 'bob']" in error.message
        assert envs.step([PLAY, {}])[1].error is None


@sync_and_async
def test_a_system_exit_in_a_step_is_the_error_of_that_env_alone(workers: int) -> None:
    with VectorEnv(Fixed, 4, seed=0, workers=workers) as envs:
        envs.reset()
        results = envs.step([PLAY, each("exit"), PLAY, PLAY])
        assert [bool(result.error) for result in results] == [False, True, False, False]
        error = results[1].error
        assert error and "_process_actions raised SystemExit" in error.message and error.message.endswith(": enough")
        assert [result.returns for result in results] == [each(1.0), {}, each(1.0), each(1.0)]
        assert results[1].done and envs.outstanding == []
        results = envs.step([PLAY, {}, PLAY, PLAY])
        assert [result.episode for result in results] == [0, 1, 0, 0]
        assert [result.error for result in results] == [None] * 4


@sync_and_async
def test_a_system_exit_reaches_recv_with_all_other_results(workers: int) -> None:
    with VectorEnv(Fixed, 4, seed=0, workers=workers) as envs:
        envs.reset()
        envs.send([PLAY, each("exit"), PLAY, PLAY])
        results = envs.recv(at_least=4)
        assert [result.index for result in results] == [0, 1, 2, 3]
        assert [result.error.type if result.error else "" for result in results] == ["", "ScenarioFault", "", ""]
        assert envs.outstanding == []


@sync_and_async
@pytest.mark.parametrize("boundary", ["make", "reset"])
def test_a_system_exit_in_a_reset_is_the_error_of_that_env_alone(workers: int, boundary: str) -> None:
    class Quits(Fixed):
        exits = boundary == "make"

        def __init__(self) -> None:
            if Quits.exits:
                sys.exit("enough")

        def _reset(self, options: Mapping[str, Any]) -> None:
            if Quits.exits:
                sys.exit("enough")

    with VectorEnv([Fixed, Quits], seed=0, workers=workers) as envs:
        Quits.exits = True
        results = envs.reset()
        assert results[0].error is None
        error = results[1].error
        assert error and error.origin == "env" and "SystemExit" in f"{error.type} {error.message}"
        Quits.exits = False
        assert [result.error for result in envs.step([PLAY, {}])] == [None, None]


@sync_and_async
@pytest.mark.parametrize("move", ["step", "recv"])
def test_an_interrupt_in_a_step_is_raised_and_no_other_result_is_lost(move: str, workers: int) -> None:
    actions = [PLAY, each("interrupt"), PLAY, PLAY]
    with VectorEnv(Fixed, 4, seed=0, workers=workers) as envs:
        envs.reset()
        with pytest.raises(KeyboardInterrupt):
            if move == "step":
                envs.step(actions)
            else:
                envs.send(actions)
                while envs.recv(timeout=5):
                    pass
        assert 1 not in envs.outstanding
        received = envs.recv(len(envs.outstanding)) if envs.outstanding else []
        assert all(result.returns == each(1.0) for result in received)
        begun = envs.step({1: {}})[0]
        assert begun.episode == 1 and begun.error is None
        # An env whose step had not begun is as it was; the others go on.
        assert [result.steps for result in envs] == ([1, 0, 0, 0] if workers == 0 else [1, 0, 1, 1])
        assert {result.index: result.error for result in envs.step([PLAY, PLAY, PLAY, PLAY])} == dict.fromkeys(range(4))


def test_an_env_that_cannot_be_closed_is_a_warning() -> None:
    made: list[Fixed] = []

    class Sticky(Fixed):
        def close(self) -> None:
            super().close()
            raise OSError("stuck")

    def make() -> Fixed:
        made.append(Sticky())
        return made[-1]

    envs = VectorEnv(make, 2)
    with pytest.warns(RuntimeWarning, match=r"Sticky: close\(\) raised OSError: stuck"):
        envs.close()
    assert [env.closed for env in made] == [1, 1]
