"""Vectors that step their envs in threads, and the end of a vector."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from marl_gem.errors import EnvError, InvalidAction
from marl_gem.vector import Make, VectorEnv
from tests.core.vector_envs import (
    PLAY,
    Fixed,
    Gated,
    each,
    gate,
    sync_and_async,
    threads,
    until,
)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.parametrize(
    ("make", "workers", "most"), [(Fixed, None, 0), (Gated, 0, 0), (Gated, None, 6), (Fixed, 2, 2), (Gated, 2, 2)]
)
def test_how_many_threads_there_are(make: Make, workers: int | None, most: int) -> None:
    with VectorEnv(make, 6, workers=workers) as envs:
        envs.reset()
        envs.step([PLAY] * 6)
        assert len(threads()) == most
    assert threads() == []


def test_threads_are_made_when_they_are_needed_and_used_again() -> None:
    with VectorEnv(Gated, 50) as envs:
        for index in range(50):
            envs.reset(only=[index])
        assert len(threads()) == 1
        envs.send({index: each("wait") for index in range(3)})
        envs.step({7: PLAY})
        assert len(threads()) == 4
        for index in range(3):
            gate(envs, index).set()
        envs.recv(3)


def test_blocking_envs_step_side_by_side() -> None:
    meeting = threading.Barrier(8)

    class Meeting(Fixed):
        blocking = True

        def _process_actions(self, actions: dict[str, str]) -> None:
            meeting.wait(5)  # breaks unless all eight are here at the same time
            super()._process_actions(actions)

    with VectorEnv(Meeting, 8) as envs:
        envs.reset()
        assert [result.error for result in envs.step([PLAY] * 8)] == [None] * 8


def test_a_slow_env_holds_up_nobody() -> None:
    with VectorEnv(Gated, 3) as envs:
        envs.reset()
        envs.send([each("wait"), PLAY, PLAY])
        assert [result.index for result in envs.recv(at_least=2)] == [1, 2]
        for _ in range(5):
            envs.send({1: PLAY})
            assert [result.index for result in envs.recv()] == [1]
        assert envs.outstanding == [0]
        gate(envs, 0).set()
        assert envs.recv()[0].rewards == each(7.0)


def test_actions_may_be_changed_once_they_were_sent() -> None:
    with VectorEnv(Gated, 2, workers=1) as envs:
        envs.reset()
        actions = each("1")
        envs.send([each("wait"), actions])
        actions["b"] = "100"
        gate(envs, 0).set()
        assert envs.recv(2)[1].rewards == each(1.0)


@pytest.mark.parametrize("timeout", [0, 0.05, -1, math.nan])
def test_a_timeout(timeout: float) -> None:
    with VectorEnv(Gated, 2) as envs:
        envs.reset()
        envs.send([each("wait"), PLAY])
        found: list[int] = []

        def received() -> bool:
            found.extend(result.index for result in envs.recv(at_least=2, timeout=timeout))
            return bool(found)

        until(received)
        assert found == [1]
        started = time.monotonic()
        assert envs.recv(timeout=timeout) == []
        assert (timeout if timeout > 0 else 0) <= time.monotonic() - started < 1
        gate(envs, 0).set()
        assert [result.index for result in envs.recv(timeout=math.inf)] == [0]


# The end


@sync_and_async
def test_a_closed_vector(workers: int) -> None:
    envs = VectorEnv(Fixed, 2, workers=workers)
    made = [*envs]
    envs.reset()
    envs.send({0: PLAY})
    envs.close()
    envs.close()
    assert [env.closed for env in made if isinstance(env, Fixed)] == [1, 1]
    for use in (envs.reset, envs.recv, lambda: envs.step([PLAY, PLAY]), lambda: envs.send({}), lambda: envs[0]):
        with pytest.raises(EnvError, match="closed"):
            use()


def test_close_waits_for_steps_that_run_and_begins_no_other() -> None:
    envs = VectorEnv(Gated, 3, workers=1)
    made = [env for env in envs if isinstance(env, Gated)]
    envs.reset()
    envs.send([each("wait"), PLAY, PLAY])
    assert made[0].entered.wait(5)
    closing = threading.Thread(target=envs.close)
    closing.start()
    time.sleep(0.05)
    assert closing.is_alive() and made[0].closed == 0
    made[0].gate.set()
    closing.join(5)
    assert threads() == [] and [env.closed for env in made] == [1, 1, 1]
    assert [env.steps for env in made] == [1, 0, 0] and made[0].returns["a"] == 7.0


def test_recv_raises_when_the_vector_is_closed_meanwhile() -> None:
    envs = VectorEnv(Gated, 2, workers=1)
    made = [env for env in envs if isinstance(env, Gated)]
    envs.reset()
    envs.send([each("wait"), PLAY])
    assert made[0].entered.wait(5)

    def close_soon() -> None:
        time.sleep(0.02)
        threading.Timer(0.05, made[0].gate.set).start()
        envs.close()

    closing = threading.Thread(target=close_soon)
    closing.start()
    with pytest.raises(EnvError, match="closed"):
        envs.recv(at_least=2)
    closing.join(5)


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Breaks in a little later, as a person at the terminal would."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
    yield lambda: threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("move", ["recv", "step", "close"])
def test_ctrl_c_leaves_nothing_hanging(move: str, ctrl_c: Callable[[], None]) -> None:
    with VectorEnv(Gated, 2, seed=0) as envs:
        made = [env for env in envs if isinstance(env, Gated)]
        envs.reset()
        envs.send({0: each("wait")})
        assert made[0].entered.wait(5)
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            calls: dict[str, Any] = {
                "recv": envs.recv,
                "close": envs.close,
                "step": lambda: envs.step({1: each("wait")}),
            }
            calls[move]()
        assert made[0].rewards == each(0.0)
        for env in made:
            env.gate.set()
        if move != "close":
            waited_for = envs.outstanding
            assert [result.index for result in envs.recv(len(waited_for))] == waited_for
            assert waited_for == ([0, 1] if move == "step" else [0])
            assert [result.episode for result in envs.reset()] == [1, 1]
    assert threads() == [] and [env.closed for env in made] == [1, 1]


def test_a_vector_that_nobody_closed_is_a_warning() -> None:
    envs = VectorEnv(Gated, 2)
    made = [env for env in envs if isinstance(env, Gated)]
    envs.reset()
    envs.send({0: each("wait")})
    assert made[0].entered.wait(5)
    with pytest.warns(ResourceWarning, match="VectorEnv of 2 envs was never closed"):
        del envs
        gc.collect()
    assert [env.closed for env in made] == [0, 1]
    made[0].gate.set()
    until(lambda: made[0].closed == 1 and not threads())


def test_a_closed_vector_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with VectorEnv(Fixed) as envs:
            envs.reset()
        del envs
        gc.collect()


def test_a_step_that_never_ends_does_not_keep_the_interpreter_from_its_exit() -> None:
    code = """
import time
from marl_gem import MultiAgentEnv, ParallelSelector
from marl_gem.vector import VectorEnv

class Endless(MultiAgentEnv):
    possible_agents = ("a",)
    selector = ParallelSelector()
    blocking = True

    def observe(self, agent):
        return ""

    def _process_actions(self, actions):
        time.sleep(1000)

    def close(self):
        print("closed", flush=True)

envs = VectorEnv(Endless, 3)
envs.reset()
envs.send({1: {"a": ""}})
print(envs.recv(timeout=0.2), flush=True)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.split("\n") == ["[]", "closed", "closed", ""]


def test_ten_thousand_envs() -> None:
    with VectorEnv(Fixed, 10_000, seed=0) as envs:
        assert len({result.seed for result in envs.reset()}) == 10_000
        for _ in range(2):
            results = envs.step([PLAY] * 10_000)
        assert [result.index for result in results] == [*range(10_000)]
        assert all(result.done for result in results)
    assert threads() == []


def test_wrapped_envs() -> None:
    wrappers = pytest.importorskip("marl_gem.wrappers")
    with VectorEnv(lambda: wrappers.TimeLimit(Fixed(), 1), 2, seed=0) as envs:
        envs.reset()
        with pytest.raises(InvalidAction, match="env 1"):
            envs.step([PLAY, {"a": "1"}])
        results = envs.step([PLAY, PLAY])
        assert [result.truncations for result in results] == [each(True)] * 2
        assert [result.returns for result in results] == [each(1.0)] * 2 and results[1].done
        assert [result.episode for result in envs.step([{}, {}])] == [1, 1]
