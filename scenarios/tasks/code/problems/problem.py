"""A problem of our own: a statement, a reference solution, inputs, and wrong solutions that the tests must find."""

from __future__ import annotations

import inspect
import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from marl_gem.scenarios.tasks.question import Item

INPUTS = 10
"""How many tests a problem has."""


@dataclass(frozen=True)
class Problem:
    """A problem. Expected outputs come from the reference solution.

    Args:
        grade: "easy", "medium" or "hard".
        statement: what is to be done.
        solution: the reference; it imports what it needs itself. It is called by tests, or, for a problem with input
            and output, takes the input's text and gives the output's.
        draw: draws an input: the arguments of the function, or a text.
        mutants: wrong solutions: texts of the reference, and what stands there in a wrong one.
        extra: inputs that are always tested.
        style: "function" or "stdin".
    """

    grade: Literal["easy", "medium", "hard"]
    statement: str
    solution: Callable[..., Any]
    draw: Callable[[random.Random], Any]
    mutants: tuple[tuple[str, str], ...]
    extra: tuple[Any, ...] = ()
    style: Literal["function", "stdin"] = "function"

    @property
    def name(self) -> str:
        return self.solution.__name__

    @property
    def source(self) -> str:
        """The text of the reference solution."""
        return textwrap.dedent(inspect.getsource(self.solution))

    def program(self, source: str) -> str:
        """A program that reads and writes, or has the function, from the text of a solution."""
        if self.style == "function":
            return source
        return f"{source}\n\nimport sys\n\nprint({self.name}(sys.stdin.read()))\n"

    def inputs(self) -> list[Any]:
        """The inputs of all tests, always the same."""
        rng = random.Random(self.name)
        return [*self.extra, *(self.draw(rng) for _ in range(INPUTS - len(self.extra)))]

    def item(self) -> Item:
        """The problem as an item."""
        inputs = self.inputs()
        if self.style == "stdin":
            tests: list[Any] = [{"input": text, "output": self.solution(text)} for text in inputs]
            example = f"Input:\n{inputs[0]}\nOutput:\n{tests[0]['output']}"
            ask = "Write a Python program that reads standard input and prints the answer."
        else:
            outputs = [self.solution(*arguments) for arguments in inputs]
            calls = zip(inputs, outputs, strict=True)
            tests = [{"call": self.name, "arguments": list(given), "output": output} for given, output in calls]
            signature = str(inspect.signature(self.solution)).replace("'", "")
            shown = ", ".join(map(repr, inputs[0]))
            example = f"{self.name}({shown}) == {outputs[0]!r}"
            ask = f"Write a Python function `{self.name}{signature}`."
        prompt = f"{ask}\n\n{textwrap.dedent(self.statement).strip()}\n\nExample:\n{example}"
        answer = self.program(self.source).strip()
        return Item(self.name.replace("_", "-"), prompt, answer, self.grade, fields={"tests": tests})
