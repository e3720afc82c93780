"""Scripted policies for both seats: an oracle that does what each task asks for, and floors to compare with.

    oracle      makes the task's own calls, then says what must be said
    silent      makes the task's own calls and says nothing of use
    noop        calls nothing, but says what must be said
    transfer    hands over to a human at once

Seated as the user, each tells its instruction and stops once it is answered. They know the task from
`info["task"]`, which a language model is never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from marl_gem.agents import Info
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.env import STOP, USER
from marl_gem.tools.calls import write_call
from marl_gem.types import Observation, Response, Role

Script: TypeAlias = Callable[[Domain, Task], Iterator[str]]
"""What the assistant says and calls, one response after the other."""


def oracle(domain: Domain, task: Task) -> Iterator[str]:
    """The task's own calls, what must be said, and then, where the task hands over, that."""
    yield from _gold(domain, task)
    if task.outputs or not hands_over(domain, task):
        yield _say(task.outputs)
    yield from _handing_over(domain, task)


def silent(domain: Domain, task: Task) -> Iterator[str]:
    """The task's own calls, without what must be said."""
    yield from _gold(domain, task)
    yield "Done."


def noop(domain: Domain, task: Task) -> Iterator[str]:
    """What must be said, without a call."""
    yield _say(task.outputs)


def transfer(domain: Domain, task: Task) -> Iterator[str]:
    """Handing over at once."""
    for name in sorted(domain.terminating):
        yield write_call(name, {"summary": ""})


SCRIPTS: dict[str, Script] = {"oracle": oracle, "silent": silent, "noop": noop, "transfer": transfer}


class ScriptPolicy:
    """Plays a script in the assistant's seat and the cooperative customer in the user's.

    Args:
        script: one of `SCRIPTS`, by name.
        domain, tasks: what is played; `info["task"]` tells the number of the task.
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
        yield task.instruction
        if task.outputs and hands_over(self._domain, task):
            yield "Please go on."
        while True:
            yield STOP


class ScriptAgent:
    """A script in one seat of one episode; the first `info` tells which task it is."""

    def __init__(self, lines: Callable[[int], Iterator[str]]) -> None:
        self._lines = lines
        self._begun: Iterator[str] | None = None

    async def act(self, observation: Observation, info: Info) -> Response:
        if self._begun is None:
            self._begun = self._lines(info["task"])
        return Response(next(self._begun))


def hands_over(domain: Domain, task: Task) -> bool:
    """Whether the task's own calls end in handing over to a human."""
    return any(action.name in domain.terminating for action in task.actions)


def _gold(domain: Domain, task: Task) -> Iterator[str]:
    for action in task.actions:
        if action.name not in domain.terminating:
            yield write_call(action.name, action.arguments)


def _handing_over(domain: Domain, task: Task) -> Iterator[str]:
    for action in task.actions:
        if action.name in domain.terminating:
            yield write_call(action.name, action.arguments)


def _say(outputs: Sequence[str]) -> str:
    return f"Here is what you asked for: {'; '.join(outputs)}" if outputs else "It is done."
