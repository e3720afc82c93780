"""Tasks with a database: queries run in a sandbox, and the state and the answer are judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import InvalidOption
from marl_gem.policies import Agent
from marl_gem.scenarios.tasks.database.env import DatabaseEnv
from marl_gem.scenarios.tasks.database.policies import DatabasePolicy
from marl_gem.scenarios.tasks.database.shop import TASKS
from marl_gem.testing import Plan, check_env
from marl_gem.tools.calls import write_call
from marl_gem.types import Role
from tests.sandbox.machine import confined

pytestmark = confined


def ask(env: Any, sql: str) -> str:
    """What the agent is shown after a query."""
    observations, *_ = env.step({"solver": write_call("query", {"sql": sql})})
    return observations["solver"][-1]["text"]


def started(**options: Any) -> Any:
    env = DatabaseEnv(**options)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("task", [task.id for task in TASKS])
def test_the_solution_solves_a_task_and_doing_nothing_does_not(task: str) -> None:
    async def play(script: Any) -> float:
        env = DatabaseEnv(task=task)
        agent: Agent = DatabasePolicy(env, script).agent("solver", Role(), 0)
        observations, infos = env.reset(seed=0)
        while not env.done:
            response = await agent.act(observations["solver"], {**infos["solver"], "task": TASKS_BY_ID[task]})
            observations, *_, infos = env.step({"solver": response if isinstance(response, str) else response.text})
        return env.returns["solver"]

    assert asyncio.run(play("solution")) == 1.0
    assert asyncio.run(play("noop")) == 0.0


TASKS_BY_ID = {task.id: 0 for task in TASKS}
TASKS_BY_ID.update({task.id: number for number, task in enumerate(TASKS)})


def test_what_queries_cannot_do(tmp_path: Path) -> None:
    env = started(task="oslo")
    assert ask(env, "select name from customers where city = 'Rome'") == "name\nBo"
    assert "Error: not authorized" in ask(env, f"attach '{tmp_path}/x.db' as x")
    assert ask(env, f"vacuum into '{tmp_path}/x.db'").startswith("Error: ")
    assert list(tmp_path.iterdir()) == []
    endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select max(x) from n"
    assert ask(env, endless) == "Error: the query took too many steps"
    large = "with recursive n(x) as (select randomblob(50000000) union all select randomblob(50000000) from n) "
    assert ask(env, large + "select count(*) from (select * from n order by 1)").startswith("Error: ")
    assert ask(env, "select 1; drop table items").startswith("Error: ")
    assert ask(env, "select count(*) from customers") == "count(*)\n5"
    assert env.step({"solver": "It is \\boxed{2}."})[1]["solver"] == 1.0


def test_episodes_and_forks_have_databases_of_their_own() -> None:
    env = started(task="oslo")
    ask(env, "delete from customers where id < 3")
    fork = env.fork()
    ask(fork, "delete from customers")
    assert ask(env, "select count(*) from customers") == "count(*)\n3"
    env.reset(seed=0)
    assert ask(env, "select count(*) from customers") == "count(*)\n5"
    *_, infos = fork.step({"solver": "2"})
    assert infos["solver"]["failure"] == "wrong state"
    *_, infos = env.step({"solver": "3"})
    assert infos["solver"]["failure"] == "wrong answer"


def test_the_limit_of_queries_and_broken_calls() -> None:
    env = started(task="oslo", max_queries=2)
    observations, *_, infos = env.step({"solver": write_call("query", {"text": "select 1"})})
    assert observations["solver"][0]["text"].startswith("Error: there is one tool")
    assert infos["solver"]["illegal"]
    _, rewards, _, truncations, _ = env.step({"solver": write_call("query", {"sql": "select 1"})})
    assert (rewards["solver"], truncations["solver"], env.done) == (0.0, True, True)
    with pytest.raises(InvalidOption, match="grade is easy"):
        DatabaseEnv(grade="no")
    with pytest.raises(InvalidOption, match="there are tasks from 0 to 8"):
        DatabaseEnv(task=9)


def test_the_scenario_keeps_its_promises() -> None:
    checks = ("plays", "isolation", "forking", "reset", "hostile_actions")
    check_env(DatabaseEnv, Plan(seeds=(27,), steps=4, copies=3), only=checks).raise_if_failed()
