"""Programming tasks: a statement, a program, tests that run outside of it."""

from __future__ import annotations

from typing import Any

from marl_gem.errors import InvalidOption
from marl_gem.faults import shown
from marl_gem.scenarios.tasks.question import SOLVER, Item, Items, QuestionEnv, Score
from marl_gem.tools.sandbox import Limits
from marl_gem.tools.sandbox.limits import MIB
from marl_gem.tools.unit_tests import failures, judge, last_program

ASK = "Write the program in Python, in a block of code between ```python and ```. The last block counts."


class CodeEnv(QuestionEnv):
    """One agent writes a program, which is judged by tests in the sandbox.

    An item's `fields` have `tests`, see `tools.unit_tests`; perhaps `prefix`, code that stands before the program;
    `time` (seconds) and `memory` (MiB) for each test. The last info has `tests`: how many of the tests that were run
    ended in which way. `failure` is "compile error", "run-time error", "wrong answer", "time limit", "memory limit",
    "output limit", "crash", or "no answer" for a response without a block of code.

    Args:
        items, task, unanswered_reward: as of `QuestionEnv`; GEM's reward without a block of code is -0.1.
        partial: True gives the share of tests that pass, and runs all of them. Otherwise the reward is 1 or 0.
        timeout: seconds for each test; None: what the item says, or 10.
        memory: MiB for each test; None: what the item says, or 512.
        max_tests: at most so many tests, those with the longest input, as GEM takes 12; None: all.
        packages: folders with packages that programs may import, with colons between them.
        instructions: what the agent is told before the task.

    Raises:
        InvalidOption: a value is not allowed.
    """

    awaits = True

    def __init__(
        self,
        items: Items,
        task: int | str | None = None,
        partial: bool = False,
        timeout: float | None = None,
        memory: int | None = None,
        max_tests: int | None = None,
        packages: str = "",
        instructions: str = ASK,
        unanswered_reward: float = 0.0,
    ) -> None:
        super().__init__(items, task, "text", instructions, unanswered_reward)
        for name, value in (("timeout", timeout), ("memory", memory), ("max_tests", max_tests)):
            if value is not None and (isinstance(value, bool) or not 0 < value < 1e9):
                raise InvalidOption(f"{name} is a positive number, not {shown(value)}")
        self.partial, self.timeout, self.memory, self.max_tests = partial, timeout, memory, max_tests
        self.packages = [path for path in packages.split(":") if path]

    def found(self, response: str) -> str | None:
        """The last block of code."""
        return last_program(response)

    def written(self, answer: str) -> str:
        return f"```python\n{answer}\n```"

    async def score(self, item: Item, answer: str) -> Score:
        tests = list(item.fields["tests"])
        if self.max_tests is not None and len(tests) > self.max_tests:
            tests = sorted(tests, key=_length, reverse=True)[: self.max_tests]
        program = f"{item.fields.get('prefix', '')}{answer}"
        judgement = await judge(program, tests, self._limits(item), every=self.partial, packages=self.packages)
        self.infos[SOLVER]["tests"] = failures(judgement)
        passed = judgement.passed == judgement.total
        return Score(judgement.share if self.partial else float(passed), passed, judgement.reason)

    def _limits(self, item: Item) -> Limits:
        seconds = float(self.timeout or item.fields.get("time") or 10.0)
        memory = int(self.memory or item.fields.get("memory") or 512)
        return Limits(wall=seconds, cpu=seconds, memory=memory * MIB)

    def _process_action(self, agent: str, action: str) -> None:
        super()._process_action(agent, action)
        if "illegal" in self.infos[agent]:
            self.infos[agent]["illegal"] = "no block of code"


def _length(test: dict[str, Any]) -> int:
    return len(str(test.get("input", test.get("arguments", test.get("code")))))
