"""Scenarios and helpers of the tests of vectors."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from marl_gem import MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.vector import Autoreset, Make, VectorEnv

AUTORESETS: tuple[Autoreset, ...] = ("next_step", "same_step", "off")
every_autoreset = pytest.mark.parametrize("autoreset", AUTORESETS)
sync_and_async = pytest.mark.parametrize("workers", [0, 2, 64], ids=lambda workers: f"{workers} workers")


class Table(MultiAgentEnv):
    """Guests say numbers in turn and roll; at a five or six a guest leaves, at a one another may come."""

    possible_agents = ("ann", "bob")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.house = options.get("house", 0)
        super()._reset({name: value for name, value in options.items() if name != "house"})
        self.rolled = self.rng.randint(1, 6)

    def observe(self, agent: str) -> str:
        return f"{agent}: {self.rolled} after step {self.steps}"

    def legal_actions(self, agent: str) -> list[str]:
        return [str(self.rolled), "0"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        self.rolled = self.rng.randint(1, 6)
        self.rewards = {agent: (int(text) - self.house) / 3}
        self.infos = {agent: {"said": text}}
        self.terminations = {agent: self.rolled >= 5}
        if self.rolled == 1 and len(self.returns) < 4:
            self.add_agent(f"guest {len(self.returns)}")


class SlowTable(Table):
    """Takes its time: another one every time, which no seed decides."""

    blocking = True

    def _reset(self, options: Mapping[str, Any]) -> None:
        time.sleep(random.choice([0, 0, 0.001, 0.004]))
        super()._reset(options)

    def _process_actions(self, actions: dict[str, str]) -> None:
        time.sleep(random.choice([0, 0, 0.001, 0.004]))
        super()._process_actions(actions)


class Fixed(MultiAgentEnv):
    """An episode has two steps of both agents; a text that is a number is the reward of whoever says it."""

    possible_agents = ("a", "b")
    selector = ParallelSelector()
    closed = 0

    def observe(self, agent: str) -> str:
        return f"{agent} at {self.steps}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if text == "break":
                raise RuntimeError("broken")
            if text == "exit":
                sys.exit("enough")
            if text == "interrupt":
                raise KeyboardInterrupt
            self.rewards[agent] = float(text)
        self.terminations = dict.fromkeys(self.agents, self.steps == 2)

    def close(self) -> None:
        self.closed += 1


class Gated(Fixed):
    """A step of `a` that says `wait` lasts until the gate opens."""

    blocking = True

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()

    def _process_actions(self, actions: dict[str, str]) -> None:
        if actions["a"] == "wait":
            self.entered.set()
            assert self.gate.wait(10)
        super()._process_actions({agent: text.replace("wait", "7") for agent, text in actions.items()})


def each(value: Any) -> dict[str, Any]:
    return {"a": value, "b": value}


PLAY = each("1")


class Boom(Exception):
    pass


def faulty(make: Make, faults: set[tuple[str, int]]) -> Make:
    """Makes envs that fail at their n-th make, reset or step, counted over all envs made by it."""
    counts = {what: itertools.count() for what in ("make", "reset", "step")}

    def maybe_fail(what: str) -> None:
        number = next(counts[what])
        if (what, number) in faults:
            raise Boom(f"{what} {number}")

    def make_faulty() -> MultiAgentEnv:
        maybe_fail("make")
        env = make()
        reset, process = env._reset, env._process_actions

        def faulty_reset(options: Mapping[str, Any]) -> None:
            maybe_fail("reset")
            reset(options)

        def faulty_process(actions: dict[str, str]) -> None:
            maybe_fail("step")
            process(actions)

        env._reset, env._process_actions = faulty_reset, faulty_process  # type: ignore[method-assign]
        return env

    return make_faulty


def gate(envs: VectorEnv, index: int) -> threading.Event:
    env = envs[index]
    assert isinstance(env, Gated)
    return env.gate


def answer(observations: Mapping[str, Any], dice: random.Random) -> dict[str, str]:
    return {agent: str(dice.randint(0, 9)) for agent in observations}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("marl_gem-vector")]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "waited for 5 seconds in vain"
        time.sleep(0.002)
