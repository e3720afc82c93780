"""Scripted policies for tasks with a database: the task's solution, and doing nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from marl_gem.policies.base import Agent, FunctionAgent, Info, Policy
from marl_gem.scenarios.tasks.database.env import DatabaseEnv
from marl_gem.scenarios.tasks.database.shop import solved
from marl_gem.scenarios.tasks.policies import env_to_look_at
from marl_gem.tools.calls import write_call
from marl_gem.types import Observation, Role


class DatabasePolicy:
    """Runs the queries of a task's solution, all in one response, and gives the answer; or does nothing.

    Args:
        env: an env of the scenario; it is looked at and never played.
        script: "solution" or "noop".
    """

    def __init__(self, env: DatabaseEnv, script: Literal["solution", "noop"]) -> None:
        self.name = f"scripted:{script}"
        self._env, self._script = env, script

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        turns = 0

        def answer(observation: Observation, info: Info) -> str:
            nonlocal turns
            turns += 1
            task = self._env.task_of(info["task"])
            if self._script == "noop":
                return "Done."
            if turns == 1:
                return "".join(write_call("query", {"sql": query}) for query in task.solution)
            return f"\\boxed{{{solved(task)[1]}}}" if task.asks else "Done."

        return FunctionAgent(answer)


def policy(id: str, options: Mapping[str, Any], script: Literal["solution", "noop"]) -> Policy:
    """A policy for a scenario of database tasks, as `register_policy` wants it."""
    return DatabasePolicy(env_to_look_at(id, options, DatabaseEnv), script)
