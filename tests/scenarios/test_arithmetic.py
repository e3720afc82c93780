"""Arithmetic by heart or by the calculator: its rules, its novice, its analysis."""

from __future__ import annotations

from typing import Any

import pytest

import marl_gem
from marl_gem import registry
from marl_gem.analysis import Decision
from marl_gem.errors import InvalidOption
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.games.arithmetic import problem, ways_to_call
from marl_gem.specs import ScenarioSpec, load_policy
from marl_gem.types import Episode

ARITHMETIC = "game:Arithmetic-v0"
WITH_TOOL = ScenarioSpec.parse(ARITHMETIC, {"solvers": 2}, ("tools=calculator,format=tags,call_reward=-0.2",))


def answered(*actions: str, task: int = 1, **options: Any) -> Any:
    env = marl_gem.make(ARITHMETIC, **options)
    env.reset(seed=0, options={"task": task})
    for action in actions:
        env.step({env.acting[0]: action})
    return env


@pytest.mark.parametrize("solvers", [1, 2, 4])
@pytest.mark.parametrize("task", [0, 1])
def test_each_solver_goes_on_from_the_number_before(solvers: int, task: int) -> None:
    given, value = problem("train", task, solvers), 0
    actions: list[str] = []
    for index in range(solvers):
        env = answered(*actions, task=task, solvers=solvers)
        expected = f"{given.question(index, value)} = ?"
        assert (env.acting, env.observe(env.acting[0])) == ((f"solver_{index}",), expected)
        value = given.answer(index, value)
        actions.append(f"It is {value}.")
    env = answered(*actions, task=task, solvers=solvers)
    assert env.done and set(env.returns.values()) == {1.0}
    assert all(env.infos[agent]["success"] for agent in env.possible_agents)


def test_a_wrong_number_is_passed_on() -> None:
    env = answered("7", solvers=2)
    assert env.observe("solver_1").startswith("7 * ")
    env.step({"solver_1": "no idea"})
    assert env.returns == {"solver_0": 0.0, "solver_1": 0.0}
    assert "no number" in env.infos["solver_1"]["illegal"] and env.infos["solver_0"]["failure"] == "no number"
    assert answered("99").infos["solver_0"]["failure"] == "wrong number"


def test_the_split_for_tests_has_other_products_and_the_same_sums() -> None:
    train, test = ({problem(split, task, 1) for task in range(400)} for split in ("train", "test"))  # type: ignore[arg-type]
    assert {p for p in train & test if p.grade == "hard"} == set()
    assert {p for p in train if p.grade == "easy"} == {p for p in test if p.grade == "easy"}
    env = marl_gem.make(ARITHMETIC, split="test")
    assert env.tasks == 64 and list(env.grades) == ["easy", "hard"] * 32


@pytest.mark.parametrize(
    ("options", "message"),
    [({"solvers": 0}, "1 to 4 solvers"), ({"solvers": True}, "1 to 4 solvers"), ({"split": "dev"}, "the splits train")],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        marl_gem.make(ARITHMETIC, **options)
    for task in (-1, 4000, "1", True):
        with pytest.raises(InvalidOption, match="tasks 0 to 3999"):
            marl_gem.make(ARITHMETIC).reset(options={"task": task})


def test_novices_call_and_guess_and_seldom_succeed() -> None:
    novice = load_policy("scripted:novice", WITH_TOOL, agents=WITH_TOOL.inspect().agents)
    episodes = collect(WITH_TOOL.make, [Job(seed, novice) for seed in range(100)])
    calls = [call for turns in map(_calls, episodes) for call in turns]
    assert calls and not any(call["error"] for call in calls)
    assert {turn.agent for episode in episodes for turn in episode.turns if "tool_calls" in turn.info} == {
        "solver_0",
        "solver_1",
    }
    solved = sum(episode.final_infos["solver_0"]["success"] for episode in episodes)
    assert solved < 30


def _calls(episode: Episode) -> list[dict[str, str]]:
    return [call for turn in episode.turns for call in turn.info.get("tool_calls", [])]


def test_the_analysis_says_who_calls_when() -> None:
    def strategy(decision: Decision) -> dict[str, float]:
        question = str(decision.history[-1].observation).removesuffix(" = ?")
        if "*" in question:
            native, tags = ways_to_call(question)
            return {native: 0.25, tags: 0.5} if decision.agent == "solver_0" else {}
        return {decision.actions[-1]: 0.5}

    found = registry.analyse(WITH_TOOL.make(), strategy)
    assert {name: value for name, value in found.items() if value} == {
        "by_heart/easy": 0.5,
        "by_heart/easy/solver_0": 0.5,
        "by_heart/easy/solver_1": 0.5,
        "calls/hard": 0.375,
        "calls/hard/solver_0": 0.75,
    }
