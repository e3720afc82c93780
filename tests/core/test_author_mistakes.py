"""Mistakes of scenario authors and callers: what is refused, and what the error says to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import marl_gem
from marl_gem import AgentSelector, MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.errors import EpisodeOver, InvalidAction, InvalidOption, PromiseBroken, ScenarioFault, SelectorError
from marl_gem.testing import check_env
from tests.toys import RockPaperScissors, Village, full_state, one_agent

# Methods that return something


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


# Arguments of reset


def test_a_seed_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    env = marl_gem.make("game:KuhnPoker-v0")
    expected = env.reset(seed=7)
    assert env.reset(seed=numpy.int64(7)) == expected
    assert env.seed == 7 and type(env.seed) is int


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True, [1]], ids=str)
def test_a_bad_seed_is_refused_and_the_episode_goes_on(seed: Any) -> None:
    env = Village()
    env.reset(seed=0)
    before = full_state(env)
    with pytest.raises(InvalidOption, match="a seed is an integer"):
        env.reset(seed=seed)
    assert full_state(env) == before
    env.step({"ann": "hello"})


def test_reset_options() -> None:
    env = Village()
    env.reset(options={"village": "Thorpe"})
    assert env.role("ann").instructions == "You are ann of Thorpe."
    with pytest.raises(InvalidOption, match=r"Village takes no reset options, but got \['weather'\]"):
        env.reset(options={"weather": "rain"})
    with pytest.raises(EpisodeOver):
        env.step({"ann": "hello"})


# Scenarios and selectors that raise


def fail(*_: Any) -> Any:
    raise KeyError("oops")


@pytest.mark.parametrize("method", ["_reset", "observe", "legal_actions"])
def test_a_scenario_that_raises_in_reset(method: str) -> None:
    env = one_agent(**{method: fail})
    with pytest.raises(ScenarioFault, match=f"Tiny: {method} raised KeyError at step 0 .* seed 3: 'oops'") as caught:
        env.reset(seed=3)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(EpisodeOver):
        env.step({"a": ""})


@pytest.mark.parametrize("ends", [False, True])
def test_a_scenario_that_raises_in_a_step(ends: bool) -> None:
    faults = []
    for method in ("_process_actions", "observe"):
        env = one_agent(_process_actions=lambda self, actions: self.terminations.update(a=ends))
        env.reset()
        setattr(env, method, fail)
        with pytest.raises(ScenarioFault, match=f"{method} raised KeyError at step 1"):
            env.step({"a": ""})
        with pytest.raises(EpisodeOver, match="not reset after a failure"):
            env.step({"a": ""})
        delattr(env, method)
        env.reset()
        faults.append(env.step({"a": ""})[2])
    assert faults == [{"a": ends}] * 2


class Naming(AgentSelector):
    """Names `first` to begin with, and `then` ever after."""

    def __init__(self, first: Any, then: Any) -> None:
        self.first, self.then = first, then

    def reset(self, agents: Any) -> None:
        super().reset(agents)
        self.acting = self.first

    def advance(self) -> None:
        self.acting = self.then


@pytest.mark.parametrize("names", [(), ("stranger",), ("a", "a"), ("a", "stranger")], ids=str)
def test_a_selector_that_names_nobody_a_stranger_or_somebody_twice(names: tuple[str, ...]) -> None:
    with pytest.raises(SelectorError, match=r"Naming names .* after step 0.*\['a'\]"):
        one_agent(selector=Naming(names, ("a",))).reset()
    env = one_agent(selector=Naming(("a",), names))
    env.reset()
    with pytest.raises(SelectorError, match="after step 1"):
        env.step({"a": ""})
    with pytest.raises(EpisodeOver):
        env.step({"a": ""})


@pytest.mark.parametrize("names", [None, "a", 7, [["a"]]], ids=str)
def test_a_selector_that_names_in_no_tuple(names: Any) -> None:
    env = one_agent(selector=Naming(("a",), names))
    env.reset()
    with pytest.raises(SelectorError, match=r"Naming names .* after step 1"):
        env.step({"a": ""})


def test_a_selector_may_name_in_a_list_of_its_own() -> None:
    names = ["a"]
    env = one_agent(selector=Naming(("a",), names))
    env.reset()
    env.step({"a": ""})
    names.append("b")
    assert env.acting == ("a",)


def test_a_selector_that_raises_at_the_first_turn() -> None:
    class Raising(SequentialSelector):
        def advance(self) -> None:
            raise KeyError("oops")

    with pytest.raises(ScenarioFault, match=r"selector\.advance raised KeyError at step 0"):
        one_agent(selector=Raising()).reset()


def test_a_selector_that_raises_and_one_that_is_missing() -> None:
    selector = SequentialSelector()
    env = one_agent(selector=selector)
    env.reset()
    env.selector.advance = fail  # type: ignore[method-assign]
    with pytest.raises(ScenarioFault, match=r"selector\.advance raised KeyError"):
        env.step({"a": ""})
    with pytest.raises(SelectorError, match="set one"):
        one_agent(selector=None).reset()


def test_close_may_be_called_twice() -> None:
    env = RockPaperScissors()
    env.close()
    env.close()


# What an author may get wrong


@pytest.mark.parametrize("agents", [("a", "a"), "ab", (1, 2), pytest.param({"a", "b"}, id="a set"), None], ids=str)
def test_agents_that_are_not_names_each_once(agents: Any) -> None:
    with pytest.raises(ScenarioFault, match="possible_agents are names, each once"):
        one_agent(possible_agents=agents).reset()


@pytest.mark.parametrize("how", ["terminations", "truncations"])
def test_nobody_leaves_before_the_first_turn(how: str) -> None:
    def reset(self: MultiAgentEnv, options: Mapping[str, Any]) -> None:
        getattr(self, how)["a"] = True

    with pytest.raises(ScenarioFault, match="nobody leaves before the first turn"):
        one_agent(_reset=reset).reset()


def test_who_joins_has_a_name() -> None:
    env = one_agent(_process_actions=lambda self, actions: self.add_agent(5))
    env.reset()
    with pytest.raises(ScenarioFault, match="an agent's name is text, not 5"):
        env.step({"a": ""})


def test_nobody_joins_and_leaves_in_one_step() -> None:
    def process(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.add_agent("b")
        self.terminations["b"] = True

    env = one_agent(_process_actions=process)
    env.reset()
    with pytest.raises(ScenarioFault, match="joined in this very step"):
        env.step({"a": ""})


def test_actions_can_be_checked_beforehand() -> None:
    env = RockPaperScissors()
    env.reset(seed=1)
    before = full_state(env)
    env.check_actions({"a": "rock", "b": "paper"})
    for wrong in ({"a": "rock"}, {"a": "rock", "b": "paper", "c": ""}, {"a": "rock", "b": 3}, "rock"):
        with pytest.raises(InvalidAction):
            env.check_actions(wrong)  # type: ignore[arg-type]
    assert full_state(env) == before


@pytest.mark.parametrize(("name", "value"), [("infos", None), ("terminations", "yes"), ("truncations", 2)])
def test_what_a_scenario_reports_has_its_type(name: str, value: Any) -> None:
    env = one_agent(_process_actions=lambda self, actions: setattr(self, name, {"a": value}))
    env.reset()
    with pytest.raises(ScenarioFault, match=f"{name} must hold a .* for each agent, not {value!r}"):
        env.step({"a": ""})
    env = one_agent(_process_actions=lambda self, actions: getattr(self, name).update({"a": value}))
    env.reset()
    with pytest.raises(ScenarioFault, match=f"{name} must hold a .* for each agent, not {value!r}"):
        env.step({"a": ""})


@pytest.mark.parametrize("ended", [0, 1])
def test_a_flag_may_be_a_number(ended: int) -> None:
    def instead(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.terminations = {"a": ended}  # type: ignore[dict-item]

    def in_place(self: MultiAgentEnv, actions: dict[str, str]) -> None:
        self.terminations["a"] = ended  # type: ignore[assignment]

    for process in (instead, in_place):
        env = one_agent(_process_actions=process)
        env.reset()
        _, _, terminations, _, _ = env.step({"a": ""})
        assert terminations == {"a": bool(ended)} and isinstance(terminations["a"], bool)
        assert env.done == bool(ended)
