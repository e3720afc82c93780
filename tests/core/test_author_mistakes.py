"""Mistakes of scenario authors: what is refused, and what the error says to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from marl_gem import AgentSelector, MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.errors import EpisodeOver, PromiseBroken, ScenarioFault
from marl_gem.testing import check_env


class Greeting(MultiAgentEnv):
    """Two agents in turn; a greeting earns 1 and ends the episode."""

    possible_agents = ("a", "b")
    selector: AgentSelector = SequentialSelector()
    max_steps = 4

    def observe(self, agent: str) -> str:
        return "Say hello."

    def _process_action(self, agent: str, action: str) -> None:
        if action == "hello":
            self.rewards[agent] = 1.0
            self.terminations = dict.fromkeys(self.agents, True)


class WrittenForGEM(Greeting):
    """Returns the five dicts, as GEM's MultiAgentEnv asks for, and sets nothing."""

    def _process_actions(self, actions: dict[str, str]) -> Any:
        observations = dict.fromkeys(self.agents, "Bye.")
        done = dict.fromkeys(self.agents, True)
        return observations, dict.fromkeys(self.agents, 1.0), done, dict.fromkeys(self.agents, False), {}


class ReturnsFromOneAction(Greeting):
    def _process_action(self, agent: str, action: str) -> Any:
        return 1.0


class ReturnsFromReset(Greeting):
    def _reset(self, options: Mapping[str, Any]) -> Any:
        return dict.fromkeys(self.agents, "Say hello."), {}


class ProcessesLater(Greeting):
    async def _process_action(self, agent: str, action: str) -> None:  # type: ignore[override]
        self.rewards[agent] = 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (WrittenForGEM, "WrittenForGEM: _process_actions returned a tuple, which is not used. Set self.rewards, "),
        (ReturnsFromOneAction, "ReturnsFromOneAction: _process_action returned a float, .*Set self.rewards, "),
        (ProcessesLater, "_process_action returned a coroutine, .* It must not be a coroutine function"),
    ],
)
def test_a_value_returned_from_a_step_is_a_fault(make: type[MultiAgentEnv], message: str) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(ScenarioFault, match=message):
        env.step({"a": "hello"})
    with pytest.raises(EpisodeOver, match="reset"):
        env.step({"a": "hello"})


def test_a_value_returned_from_reset_is_a_fault() -> None:
    with pytest.raises(ScenarioFault, match=r"_reset returned a tuple, which is not used\. Set state that observe"):
        ReturnsFromReset().reset(seed=0)


@pytest.mark.parametrize("make", [WrittenForGEM, ReturnsFromOneAction, ReturnsFromReset])
def test_the_checks_fail_a_scenario_that_returns_something(make: type[MultiAgentEnv]) -> None:
    report = check_env(make)
    assert "plays" in {outcome.check for outcome in report.failed}
    with pytest.raises(PromiseBroken, match="return nothing"):
        report.raise_if_failed()


def test_a_turn_based_scenario_defines_one_action_alone() -> None:
    env = Greeting()
    env.reset(seed=0)
    env.step({"a": "well"})
    _, rewards, terminations, *_ = env.step({"b": "hello"})
    assert rewards == {"a": 0.0, "b": 1.0} and terminations == {"a": True, "b": True}
    assert check_env(Greeting).ok


def test_of_agents_that_act_together_each_action_is_processed_in_the_order_of_acting() -> None:
    processed = []

    class Together(Greeting):
        selector = ParallelSelector()

        def _process_action(self, agent: str, action: str) -> None:
            processed.append((agent, action))

    env = Together()
    env.reset(seed=0)
    env.step({"b": "second", "a": "first"})
    assert processed == [("a", "first"), ("b", "second")]


def test_without_either_method_the_error_names_both() -> None:
    class Unfinished(MultiAgentEnv):
        possible_agents = ("a",)
        selector = SequentialSelector()

        def observe(self, agent: str) -> str:
            return ""

    env = Unfinished()
    env.reset()
    with pytest.raises(ScenarioFault, match=r"must define _process_action\(agent, action\) or _process_actions"):
        env.step({"a": ""})
