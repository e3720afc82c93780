"""Scripted policies for both seats: an oracle that solves each task, and trivial baselines.

    oracle              makes the task's reference calls, then says its outputs
    gold-without-words  makes the task's reference calls and says no outputs
    noop                makes no calls, says all outputs
    transfer            transfers to a human at once

As the user, each says its instruction and stops after the answer. They read the task's number from `info["task"]`,
which language models do not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from marl_gem import registry
from marl_gem.errors import ConfigError
from marl_gem.policies import Info
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.env import USER, TauEnv
from marl_gem.tools.calls import write_call
from marl_gem.types import Observation, Response, Role

Script: TypeAlias = Callable[[Domain, Task], Iterator[str]]
"""The assistant's responses to a task, in order."""


def oracle(domain: Domain, task: Task) -> Iterator[str]:
    """The reference calls, the outputs, and at the end the reference calls that end the episode."""
    yield from _gold(domain, task)
    if task.outputs or not domain.hands_over(task):
        yield _say(task.outputs)
    yield from _gold(domain, task, terminating=True)


def gold_without_words(domain: Domain, task: Task) -> Iterator[str]:
    """The reference calls and no outputs."""
    yield from _gold(domain, task)
    yield "Done."


def noop(domain: Domain, task: Task) -> Iterator[str]:
    """The outputs and no calls."""
    yield _say(task.outputs)


def transfer(domain: Domain, task: Task) -> Iterator[str]:
    """A transfer to a human, if the domain has a tool for it."""
    for name in sorted(domain.terminating & domain.tools.keys()):
        yield write_call(name, dict.fromkeys(domain.tools[name].parameters, ""))


SCRIPTS: dict[str, Script] = {
    "oracle": oracle,
    "gold-without-words": gold_without_words,
    "noop": noop,
    "transfer": transfer,
}


def policy(scenario: str, options: Mapping[str, Any], script: str) -> ScriptPolicy:
    """The policy behind `scripted:NAME`; see `marl_gem.registry.register_policy`.

    Raises:
        ConfigError: the scenario is not a TAU domain, so its tasks have no reference calls.
    """
    env = registry.make(scenario, **options)
    if not isinstance(env, TauEnv):
        raise ConfigError(f"{scenario} has no TAU tasks, which scripted:{script} needs")
    return ScriptPolicy(script, env.domain, env.domain.splits[env.split])


class ScriptPolicy:
    """A script in the assistant's seat, and a cooperative customer in the user's.

    Args:
        script: one of `SCRIPTS`, by name.
        domain: the domain.
        tasks: the domain's tasks; `info["task"]` is the index.
    """

    def __init__(self, script: str, domain: Domain, tasks: Sequence[Task]) -> None:
        self.name = f"scripted:{script}"
        self._script, self._domain, self._tasks = SCRIPTS[script], domain, tasks

    def agent(self, agent_id: str, role: Role, seed: int) -> ScriptAgent:
        return ScriptAgent(self._customer if agent_id == USER else self._assistant)

    def _assistant(self, number: int) -> Iterator[str]:
        yield from self._script(self._domain, self._tasks[number])
        while True:
            yield "That is all I can do."

    def _customer(self, number: int) -> Iterator[str]:
        task = self._tasks[number]
        yield from _gold(self._domain, task, by_user=True)
        yield task.instruction
        if task.outputs and self._domain.hands_over(task):
            yield "Please go on."
        while True:
            yield STOP


class ScriptAgent:
    """A script in one seat of one episode; the first `info` gives the task."""

    def __init__(self, lines: Callable[[int], Iterator[str]]) -> None:
        self._lines = lines
        self._begun: Iterator[str] | None = None

    async def act(self, observation: Observation, info: Info) -> Response:
        if self._begun is None:
            self._begun = self._lines(info["task"])
        return Response(next(self._begun))


def _gold(domain: Domain, task: Task, *, terminating: bool = False, by_user: bool = False) -> Iterator[str]:
    """The reference calls of the assistant, or with `by_user` of the customer.

    Only those that end the episode if `terminating`, else only those that do not.
    """
    for action in task.actions:
        if (action.name in domain.terminating) == terminating and (action.name not in domain.tools) == by_user:
            yield write_call(action.name, action.arguments)


def _say(outputs: Sequence[str]) -> str:
    return f"Here is what you asked for: {'; '.join(outputs)}" if outputs else "It is done."
