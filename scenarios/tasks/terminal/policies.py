"""Scripted policies for tasks in a terminal: the task's solution, and doing nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, FunctionAgent, Info, Policy
from marl_gem.scenarios.tasks.policies import env_to_look_at
from marl_gem.scenarios.tasks.terminal.env import TerminalEnv
from marl_gem.scenarios.tasks.terminal.formats import finished, written
from marl_gem.types import Observation, Role


class TerminalPolicy:
    """Runs what an env of the same scenario knows to be the solution, or nothing, and finishes.

    Args:
        env: an env of the scenario; it is looked at and never played.
        script: "solution" or "noop".
    """

    def __init__(self, env: TerminalEnv, script: Literal["solution", "noop"]) -> None:
        self.name = f"scripted:{script}"
        self._env, self._script = env, script

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        turns = 0

        def answer(observation: Observation, info: Info) -> str:
            nonlocal turns
            turns += 1
            if self._script == "noop" or turns > 1:
                return finished(self._env.actions)
            task = self._env.task_of(info["task"])
            if task.solution is None:
                raise AgentError(f"{self._env.scenario}: the task {task.id!r} has no solution/solve.sh")
            return written(solution_command(task.solution), self._env.actions)

        return FunctionAgent(answer)


def solution_command(script: str) -> str:
    """A command that runs a script as a file would run."""
    return f"bash <(cat <<'END_OF_SOLUTION'\n{script.rstrip()}\nEND_OF_SOLUTION\n)"


def policy(id: str, options: Mapping[str, Any], script: Literal["solution", "noop"]) -> Policy:
    """A policy for a scenario of terminal tasks, as `register_policy` wants it."""
    return TerminalPolicy(env_to_look_at(id, options, TerminalEnv), script)
