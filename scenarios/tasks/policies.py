"""Scripted policies for questions: the answer of the item, and that of another item."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from marl_gem import registry
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import AgentError
from marl_gem.policies.base import Agent, FunctionAgent, Info, Policy
from marl_gem.scenarios.tasks.question import QuestionEnv
from marl_gem.types import Observation, Role
from marl_gem.wrappers.base import Wrapper

Known = TypeVar("Known", bound=MultiAgentEnv)


class QuestionPolicy:
    """Answers with what an env of the same scenario knows.

    Args:
        env: an env of the scenario; it is looked at and never played.
        script: "gold" gives the item's answer; "guess" that of another item, drawn at random.
    """

    def __init__(self, env: QuestionEnv, script: Literal["gold", "guess"]) -> None:
        self.name = f"scripted:{script}"
        self._env, self._script = env, script

    def agent(self, agent_id: str, role: Role, seed: int) -> Agent:
        rng = random.Random(seed)

        def answer(observation: Observation, info: Info) -> str:
            number = self._number(info) if self._script == "gold" else self._other(info, rng)
            item = self._env.items[number]
            if not item.answers:
                raise AgentError(f"{self._env.scenario}: the item {item.id!r} has no answer that can be shown")
            return self._env.written(item.answers[0])

        return FunctionAgent(answer)

    def _number(self, info: Info) -> int:
        return info["task"] if "task" in info else int(info["item"])

    def _other(self, info: Info, rng: random.Random) -> int:
        if self._env.items.endless:
            return rng.randrange(1 << 31)
        count, number = len(self._env.items), self._number(info)
        return (number + rng.randrange(1, count)) % count if count > 1 else number


def policy(id: str, options: Mapping[str, Any], script: Literal["gold", "guess"]) -> Policy:
    """A policy for a scenario of questions, as `register_policy` wants it."""
    return QuestionPolicy(env_to_look_at(id, options, QuestionEnv), script)


def env_to_look_at(id: str, options: Mapping[str, Any], kind: type[Known]) -> Known:
    """An env of a scenario of this kind, without wrappers, for a policy that shows what the env knows.

    Raises:
        AgentError: the scenario is of another kind.
    """
    made = registry.make(id, **options)
    env = made.unwrapped if isinstance(made, Wrapper) else made
    if not isinstance(env, kind):
        raise AgentError(f"{id} makes no {kind.__name__}, which this policy looks at")
    return env
