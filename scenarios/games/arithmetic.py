"""Sums that can be known by heart, and products that cannot: a task in which a calculator pays only now and then.

Half of the questions are sums of two digits from 1 to 4, of which there are 16. The others are the rest of a product of
two numbers from 11 to 40 by 20, such as 37 * 23 % 20: 900, of which a fifth are only in the split "test".
The scenario has no tools itself; give it the tool `calculator`, with a cost for each call.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

from marl_gem.analysis import Node, Strategy
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.seeding import derive_seed
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.tools.calls import write_call
from marl_gem.types import Metadata, Role

Split = Literal["train", "test"]
TASKS = {"train": 4000, "test": 64}
GRADES = ("easy", "hard")
SMALL, LARGE, MODULUS = range(1, 5), range(11, 41), 20
_EASY = [(a, b) for a in SMALL for b in SMALL]
_NUMBER = re.compile(r"\d{1,6}")


class Problem(NamedTuple):
    """What all solvers are asked: the first combines the first two numbers, each other what it hears and its number."""

    grade: str
    numbers: tuple[int, ...]

    def question(self, index: int, before: int) -> str:
        """The expression that the solver at this index is asked for; `before` is what it hears."""
        left = before if index else self.numbers[0]
        right = self.numbers[index + 1]
        return f"{left} + {right}" if self.grade == "easy" else f"{left} * {right} % {MODULUS}"

    def answer(self, index: int, before: int) -> int:
        """The value of that expression."""
        left = before if index else self.numbers[0]
        right = self.numbers[index + 1]
        return left + right if self.grade == "easy" else left * right % MODULUS


def problem(split: Split, task: int, solvers: int) -> Problem:
    """The problem with this number; those with even numbers are easy."""
    rng = random.Random(derive_seed("arithmetic", split, task))
    if task % 2 == 0:
        first = _EASY[task // 2 % len(_EASY)]
        return Problem("easy", (*first, *rng.choices(SMALL, k=solvers - 1)))
    while True:
        a, b = rng.choices(LARGE, k=2)
        if ((a + b) % 5 == 0) == (split == "test"):
            return Problem("hard", (a, b, *rng.choices(LARGE, k=solvers - 1)))


class Arithmetic(MultiAgentEnv):
    """One question for each solver, in order; each but the first starts from the number that the one before says.

    An answer is the first number in a text. Every solver is rewarded with 1 if the last one's number is right, else
    with 0. A text without a number ends the episode, and its info has `illegal`.

    Args:
        solvers: how many agents there are, from 1 to 4.
        split: the questions: "train", or "test" with hard ones that are not in the other.
    """

    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", reward_range=(0.0, 1.0))
    possible_actions = tuple(map(str, range(21)))  # four solvers may reach 20

    def __init__(self, solvers: int = 1, split: Split = "train") -> None:
        if type(solvers) is not int or not 1 <= solvers <= 4:
            raise InvalidOption(f"Arithmetic takes 1 to 4 solvers, not {solvers!r}")
        if split not in get_args(Split):
            raise InvalidOption(f"Arithmetic has the splits {', '.join(get_args(Split))}, not {split!r}")
        self.possible_agents = tuple(f"solver_{index}" for index in range(solvers))
        self.split, self.tasks = split, TASKS[split]
        self.grades = GRADES * (self.tasks // 2)

    def _reset(self, options: Mapping[str, Any]) -> None:
        task = options.get("task")
        super()._reset({name: value for name, value in options.items() if name != "task"})
        if task is None:
            task = self.rng.randrange(TASKS[self.split])
        if type(task) is not int or not 0 <= task < TASKS[self.split]:
            raise InvalidOption(f"Arithmetic has the tasks 0 to {TASKS[self.split] - 1}, not {task!r}")
        self.problem = problem(self.split, task, len(self.possible_agents))
        self.numbers: tuple[int, ...] = ()  # the answers so far
        for agent in self.agents:
            self.infos[agent]["task"] = task

    def role(self, agent: str) -> Role:
        return Role("Answer with a number.")

    def observe(self, agent: str) -> str:
        index = self.possible_agents.index(agent)
        if not self.terminations[agent]:
            return self.question(index)
        right = "right" if self.right else "wrong"
        return f"The last number is {right}."

    def question(self, index: int) -> str:
        """What the solver at this index is asked, once those before it have answered."""
        if index > len(self.numbers):
            return "Wait."
        return f"{self.problem.question(index, self.numbers[index - 1] if index else 0)} = ?"

    @property
    def right(self) -> bool:
        """Whether all have answered, and the last number is right."""
        value = 0
        for index in range(len(self.possible_agents)):
            value = self.problem.answer(index, value)
        return len(self.numbers) == len(self.possible_agents) and self.numbers[-1] == value

    def render(self) -> str:
        answered = [f"{self.question(index)} {number}" for index, number in enumerate(self.numbers)]
        if self.acting:
            return "\n".join([*answered, f"{self.question(len(self.numbers))} {self.acting[0]} is next"])
        return "\n".join([*answered, "right" if self.right else "wrong"])

    def legal_actions(self, agent: str) -> tuple[str, ...]:
        return self.possible_actions

    def _process_action(self, agent: str, action: str) -> None:
        number = _NUMBER.search(action)
        if number:
            self.numbers = (*self.numbers, int(number[0]))
        else:
            self.infos[agent]["illegal"] = f"{action[:80]!r} holds no number"
        if number and len(self.numbers) < len(self.possible_agents):
            return
        for other in self.agents:
            self.rewards[other], self.terminations[other] = float(self.right), True
            self.infos[other] |= {"success": self.right, "failure": "" if self.right else self._failure()}

    def _failure(self) -> str:
        return "wrong number" if len(self.numbers) == len(self.possible_agents) else "no number"


def ways_to_call(expression: str) -> tuple[str, ...]:
    """A call of the calculator, in the formats "tool_call" and "tags" of `wrappers.ToolEnv`."""
    return write_call("calculator", {"expression": expression}), f"<calculator>{expression}</calculator>"


def analyse(env: MultiAgentEnv, strategy: Strategy) -> dict[str, float]:
    """The registered analysis: when a policy calls the calculator, and what it knows without.

    Args:
        env: a fresh env, which is reset.
        strategy: the policies' probabilities.

    Returns:
        for each grade, as means over solvers and the first 64 tasks: `calls/GRADE`, the probability that the first
        response to a question calls the calculator with it; `by_heart/GRADE`, that it is the right number. With several
        solvers also those of each: `calls/GRADE/AGENT`.
    """
    found: dict[str, list[float]] = {}
    for task in range(TASKS["test"]):
        env.reset(seed=0, options={"task": task})
        node, value = Node(env), 0
        state = node.state
        assert isinstance(state, Arithmetic)
        for index, agent in enumerate(state.possible_agents):
            calls = ways_to_call(state.problem.question(index, value))
            value = state.problem.answer(index, value)
            chances = strategy(replace(node.decision(agent), actions=(*calls, str(value))))
            for name, actions in (("calls", calls), ("by_heart", (str(value),))):
                keys = [f"{name}/{state.problem.grade}"]
                if len(state.possible_agents) > 1:
                    keys.append(f"{keys[0]}/{agent}")
                for key in keys:
                    found.setdefault(key, []).append(sum(chances.get(action, 0.0) for action in actions))
            node = node.child({agent: str(value)})
    return {name: fmean(values) for name, values in sorted(found.items())}
