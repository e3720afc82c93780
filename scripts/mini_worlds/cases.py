"""Draws tasks: a template writes a customer's instruction and makes the calls that solve the task.

A template is a function of a `Case`. It picks a customer, adds sentences to the instruction and makes the reference
calls. If a call fails, or no customer fits the template, the attempt ends and another one begins.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from types import ModuleType
from typing import Any, Generic, TypeVar

from marl_gem.scenarios.tau.database import Database
from marl_gem.scenarios.tau.domain import Domain
from scripts.mini_worlds.people import Record

ATTEMPTS = 1000
CHANGES = {
    "lookup": range(1),
    "one change": range(1, 2),
    "several changes": range(2, 9),
    "conditional": range(9),
    "refusal": range(1),
    "transfer": range(1),
}
"""The number of calls that change the data in a task, by grade."""

MANNERS = (
    "You write in short sentences.",
    "You are friendly, and a little scattered.",
    "You have little time.",
    "You answer what you are asked and no more.",
    "You like things to be exact.",
    "You apologize a lot.",
    "You write everything in small letters.",
    "You are calm and polite.",
    "You doubt that this will work, but you cooperate.",
    "",
)

Element = TypeVar("Element")


class Unfit(Exception):
    """This attempt makes no task; another one may."""


class Case:
    """One attempt at a task.

    Args:
        domain: the data and the tools.
        rng: the generator of all random choices.
        taken: the records of other cases, which this one does not pick.
    """

    def __init__(self, domain: Domain, rng: random.Random, taken: set[str]) -> None:
        self.domain, self.rng = domain, rng
        self.user: Record = {}
        self.user_id = ""
        self.chosen: set[str] = set()
        self.called: dict[str, str] = {}
        self.sentences: list[str] = []
        self.actions: list[dict[str, Any]] = []
        self.outputs: list[str] = []
        self.changes = 0
        self._seen: dict[str, Any] = {}
        self._taken = taken
        self._session = domain.session()

    def pick(self, table: str, test: Callable[[Record], bool] = lambda record: True) -> Record:
        """A random record of a table that passes the test and that no case has yet.

        Raises:
            Unfit: there is none.
        """
        fitting = [
            key
            for key, record in self.domain.database.tables[table].items()
            if key not in self._taken | self.chosen and test(record)
        ]
        key = self.choose(fitting)
        self.chosen.add(key)
        return self.domain.database.tables[table][key]

    def customer(self) -> Record:
        """A customer that no other case has."""
        picked = self.pick("users")
        return self.meet(next(key for key, user in self.domain.database.tables["users"].items() if user is picked))

    def meet(self, user_id: str) -> Record:
        """Say who the customer is, and make the calls that identify it."""
        raise NotImplementedError

    def choose(self, options: Iterable[Element]) -> Element:
        """One of these.

        Raises:
            Unfit: there is none.
        """
        if not (listed := list(options)):
            raise Unfit
        return self.rng.choice(listed)

    def say(self, *wordings: str) -> None:
        """Add one of these wordings to the instruction."""
        self.sentences.append(self.rng.choice(wordings))

    def tell(self, amount: float) -> None:
        """Add an amount to the outputs, without zeros at the end: "12.5" is a part of "12.50" too.

        Raises:
            Unfit: it has fewer than three digits, so a message could contain it by chance.
        """
        text = f"{amount:.2f}".rstrip("0").rstrip(".")
        if sum(map(str.isdigit, text)) < 3:
            raise Unfit
        self.outputs.append(text)

    def look(self, name: str, **arguments: Any) -> Any:
        """The result of a call that only reads; the first one is recorded."""
        question = json.dumps([name, arguments])
        if question not in self._seen:
            self._seen[question] = self.call(name, **arguments)
        return self._seen[question]

    def call(self, name: str, **arguments: Any) -> Any:
        """Make a reference call and record it; its result, parsed if it is JSON.

        Raises:
            Unfit: the tool refuses.
        """
        before = self._session.digest()
        text = self.domain.call(self._session, name, arguments).text
        if text.startswith("Error"):
            raise Unfit(f"{name}: {text}")
        self.changes += self._session.digest() != before
        self.actions.append({"name": name, "kwargs": arguments})
        try:
            return json.loads(text)
        except ValueError:
            return text

    def task(self, grade: str, kind: str) -> Record:
        """The case as a task, in the form of `tasks_*.json`; `kind` names its template."""
        return {
            "user_id": self.user_id,
            "instruction": " ".join(filter(None, [*self.sentences, self.rng.choice(MANNERS)])),
            "actions": self.actions,
            "outputs": self.outputs,
            "grade": grade,
            "kind": kind,
        }


AnyCase = TypeVar("AnyCase", bound=Case)
Template = Callable[[AnyCase], None]


class Drawing(Generic[AnyCase]):
    """Draws the tasks of a domain, none of them twice.

    Args:
        kind: the class of the templates' cases.
        templates: by grade; they take turns.
    """

    def __init__(
        self,
        kind: type[AnyCase],
        tools: ModuleType,
        official: str,
        tables: Mapping[str, Mapping[str, Record]],
        templates: Mapping[str, Sequence[Template[AnyCase]]],
        rng: random.Random,
    ) -> None:
        self._domain = Domain(
            name=official,
            official=official,
            policy="",
            tools={tool.name: tool for tool in tools.TOOLS},
            terminating=tools.TERMINATING,
            database=Database(tables),
            splits={},
        )
        self._kind, self._templates, self._rng = kind, templates, rng
        self._turns = {grade: cycle(members) for grade, members in templates.items()}
        self._taken: set[str] = set()

    def tasks(self, counts: Mapping[str, int]) -> list[Record]:
        """This many tasks of each grade."""
        return [
            self._draw(template, grade)
            for grade, count in counts.items()
            for template in islice(self._turns[grade], count)
        ]

    def _draw(self, template: Template[AnyCase], grade: str) -> Record:
        for _ in range(ATTEMPTS):
            case = self._kind(self._domain, self._rng, self._taken)
            try:
                template(case)
            except Unfit:
                continue
            if case.changes not in CHANGES[grade]:
                raise AssertionError(f"{template.__name__} is no {grade!r}: it changes the data {case.changes} times")
            self._taken |= case.chosen
            return case.task(grade, template.__name__.replace("_", " "))
        raise AssertionError(f"{template.__name__} fits nobody")


def lines(records: Mapping[str, Record] | Sequence[Record]) -> str:
    """A table or a list of tasks as JSON, with one record a line."""
    if isinstance(records, Mapping):
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(r)}" for key, r in records.items()) + "\n}\n"
    return "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n"
