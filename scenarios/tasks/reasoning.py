r"""ReasoningGym's tasks (https://github.com/open-thought/reasoning-gym, version 0.1.25), as `rg:<name>`.

Items are generated, and answers scored, in worker processes: nine of its scorers evaluate the answer as Python.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Mapping, Sequence
from typing import Any

from marl_gem.errors import InvalidOption, MarlGemError
from marl_gem.faults import shown
from marl_gem.scenarios.tasks.question import AnswerIn, Item, Items, QuestionEnv, Score
from marl_gem.scenarios.tasks.reasoning_levels import highest_levels
from marl_gem.scenarios.tasks.workers import Reply, Workers
from marl_gem.tools.rubrics import normalized

SIZE = 500
"""The size that all data sets are made with: of acre the items depend on it, and four have no more items."""

GENERATION_SECONDS = 60.0
"""So much CPU time may an item take."""

FINITE = frozenset({"acre", "gsm_symbolic", "list_functions", "word_ladder"})
"""These have `SIZE` items; a greater number begins anew."""

BROKEN_LEVELS = {
    "caesar_cipher": (2, 3),
    "jugs": (2, 3),
    "knight_swap": (0, 1, 2, 3, 4),
    "modulo_grid": (1,),
    "rubiks_cube": (4,),
    "survo": (2, 3),
}
"""Levels at which ReasoningGym asserts that its own configuration is wrong, or finds no item."""

PAYS_NONSENSE = {
    "game_of_life_halting": "1 for any text, where the answer is True",
    "acre": "about 0.25 for any text, by its length",
}
"""Where a text that is no answer earns more than 0.2."""

SLOW = frozenset(
    ["futoshiki", "intermediate_integration", "knight_swap", "puzzle24", "sokoban", "sudoku", "zebra_puzzles"]
)
"""Items of these take more than 20 ms at the default level."""

WORKERS = Workers("rg", ["reasoning"], ["reasoning_gym"], "reasoning")


class ReasoningItems(Items):
    """The items of a name at a level."""

    def __init__(self, name: str, level: int | None, config: str, size: int | None) -> None:
        self.name, self._level, self._config, self._size = name, level, config, size
        self.endless = size is None

    def __len__(self) -> int:
        return self._size or 0

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the functions of the workers take first."""
        return (self.name, self._level, self._config, SIZE)

    def number_of(self, id: str) -> int:
        if not (id.isdecimal() and int(id) < len(self)):
            raise KeyError(id)
        return int(id)

    def get(self, number: int) -> Item:
        drawn = number % SIZE if self.name in FINITE else number % 2**31
        reply = WORKERS.call_and_wait("item", *self.arguments, drawn, seconds=GENERATION_SECONDS)
        if reply.problem:
            raise _cannot_generate(self.name, self._level, reply)
        found = reply.value
        grade = "" if self._level is None else f"level {self._level}"
        return Item(
            str(number),
            found["question"],
            found["answer"],
            grade,
            fields={"entry": found["entry"], "arguments": self.arguments},
        )


def _cannot_generate(name: str, level: int | None, reply: Reply) -> MarlGemError:
    at = "" if level is None else f" at level {level}"
    hint = "; take a lower level" if level else ""
    return InvalidOption(f"rg:{name}: ReasoningGym cannot generate item{at}: {reply.text}{hint}")


class Reasoning(QuestionEnv):
    r"""A task of ReasoningGym. The item has the number of the episode's seed, and is the same in any process.

    The reward is ReasoningGym's score, from 0 to 1, which for some names pays a part for a wrong answer; `success` is
    whether the answer is right.

    Args:
        name: ReasoningGym's name of the task.
        level: the level of its curriculum, from 0; None: the task's defaults.
        config: values of its configuration, such as {"min_n": 3}; on top of the level's.
        strict: pay 1 for a right answer, and 0 for all others.
        size: so many tasks, with the numbers from 0; None: as many as there are seeds.
        seconds: so much CPU time may scoring an answer take; then it is wrong.
        task, answer_in, instructions, unanswered_reward: as of `QuestionEnv`.

    Raises:
        InvalidOption: there is no such level or value.
        MissingPackage: reasoning-gym is not installed.
    """

    awaits = True

    def __init__(
        self,
        name: str,
        level: int | None = None,
        config: Mapping[str, Any] | None = None,
        strict: bool = False,
        size: int | None = None,
        seconds: float = 5.0,
        task: int | str | None = None,
        answer_in: AnswerIn = "any",
        instructions: str | None = None,
        unanswered_reward: float = 0.0,
    ) -> None:
        WORKERS.check()
        _check_level(name, level)
        if size is not None and (type(size) is not int or size < 1):
            raise InvalidOption(f"size is a number of tasks from 1 up, not {shown(size)}")
        _check_scoring(strict, seconds)
        try:
            text = json.dumps(dict(config or {}), sort_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"config holds plain values by name, not {shown(config)}") from error
        self.strict, self.seconds = strict, float(seconds)
        self.blocking = name in SLOW or bool(level)
        items = ReasoningItems(name, level, text, size)
        super().__init__(items, task, answer_in, instructions, unanswered_reward)
        if config:
            items.get(0)  # a value that is wrong is refused now

    async def score(self, item: Item, answer: str) -> Score:
        name, entry = item.fields["arguments"][0], item.fields["entry"]
        reply = await WORKERS.call("score", *item.fields["arguments"], entry, answer, seconds=self.seconds)
        if reply.problem:
            return Score(0.0, False, {"timeout": "time-out", "crash": "crash"}.get(reply.problem, "wrong form"))
        value = min(1.0, max(0.0, float(reply.value)))
        passed = value == 1.0
        if passed and name in PAYS_NONSENSE:
            passed = any(normalized(answer) == normalized(right) for right in item.answers)
        return Score(float(passed) if self.strict else value, passed, "" if passed else "wrong answer")


class SuiteItems(Items):
    """The first items of several names, each name in its turn; the grade is the name."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._parts = [ReasoningItems(name, None, "{}", size) for name in names]
        self._size = size
        self.grades = tuple(names) * size

    def __len__(self) -> int:
        return self._size * len(self._parts)

    def number_of(self, id: str) -> int:
        name, _, index = id.rpartition("-")
        names = [part.name for part in self._parts]
        if name not in names or not index.isdecimal() or int(index) >= self._size:
            raise KeyError(id)
        return int(index) * len(names) + names.index(name)

    def get(self, number: int) -> Item:
        index, position = divmod(number, len(self._parts))
        part = self._parts[position]
        return dataclasses.replace(part.get(index), id=f"{part.name}-{index}", grade=part.name)


class ReasoningSuite(Reasoning):
    """Several of ReasoningGym's tasks as one scenario, whose grades are their names, so that a report has each.

    Args:
        names: patterns of names with commas between them, such as "*" or "lcm,*_sorting".
        size: how many items of each.
        strict, seconds, task, answer_in, instructions, unanswered_reward: as of `Reasoning`.

    Raises:
        InvalidOption: no name fits, or a value is wrong.
        MissingPackage: reasoning-gym is not installed.
    """

    blocking = True

    def __init__(
        self,
        names: str = "*",
        size: int = 5,
        strict: bool = False,
        seconds: float = 5.0,
        task: int | str | None = None,
        answer_in: AnswerIn = "any",
        instructions: str | None = None,
        unanswered_reward: float = 0.0,
    ) -> None:
        WORKERS.check()
        patterns = [pattern.strip() for pattern in names.split(",")]
        found = [name for name in highest_levels() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        if not found:
            raise InvalidOption(f"no name of ReasoningGym fits {names!r:.80}; `marl-gem list rg` shows them")
        if type(size) is not int or not 1 <= size <= SIZE:
            raise InvalidOption(f"size is a number of items from 1 to {SIZE}, not {shown(size)}")
        _check_scoring(strict, seconds)
        self.strict, self.seconds = strict, float(seconds)
        QuestionEnv.__init__(self, SuiteItems(found, size), task, answer_in, instructions, unanswered_reward)


def _check_scoring(strict: bool, seconds: float) -> None:
    if type(seconds) not in (int, float) or not 0 < seconds < 1e6:
        raise InvalidOption(f"seconds is a positive number, not {shown(seconds)}")
    if type(strict) is not bool:
        raise InvalidOption(f"strict is true or false, not {shown(strict)}")


def _check_level(name: str, level: int | None) -> None:
    highest = highest_levels()
    if name not in highest:
        raise InvalidOption(f"ReasoningGym has no task {shown(name)}; `marl-gem list rg` shows those that there are")
    if level is None:
        return
    if type(level) is not int or not 0 <= level <= highest[name]:
        there = f"the levels 0 to {highest[name]}" if highest[name] >= 0 else "no levels"
        raise InvalidOption(f"rg:{name} has {there}, not {shown(level)}")
    if level in BROKEN_LEVELS.get(name, ()):
        fine = [other for other in range(highest[name] + 1) if other not in BROKEN_LEVELS[name]]
        instead = f"take one of {', '.join(map(str, fine))}, or none" if fine else "leave it out, and set config"
        raise InvalidOption(f"rg:{name}: ReasoningGym 0.1.25 cannot generate items of level {level}; {instead}")
