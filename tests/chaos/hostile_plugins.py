"""Scenarios and policies that do what they must not: raise, exit, return nonsense, put what is no data into records.

`Game` is healthy. `HOSTILE` names variants of it that misbehave in every third task, `POLICIES` such policies.
"""

from __future__ import annotations

import asyncio
import datetime
import enum
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from marl_gem import MultiAgentEnv, Response, Role, SequentialSelector, ToolSpec
from marl_gem.types import Metadata

TASKS = 9


def is_bad(task: int) -> bool:
    """Whether a hostile scenario misbehaves in this task."""
    return task % 3 == 1


class Game(MultiAgentEnv):
    """Two agents in turn, two actions each; the sum of their numbers decides."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()
    tasks = TASKS
    task = 0

    @property
    def bad(self) -> bool:
        return is_bad(self.task)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        self.task = (options or {}).get("task", 0)
        return super().reset(seed, options)

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.sum = self.rng.randrange(3)

    def observe(self, agent: str) -> Any:
        return f"task {self.task}, step {self.steps}, sum {self.sum}"

    def role(self, agent: str) -> Any:
        return Role(f"You are {agent}.", (ToolSpec("look", "Looks.", {"type": "object", "properties": {}}),))

    def legal_actions(self, agent: str) -> Any:
        return ["1", "2"]

    def _process_action(self, agent: str, action: str) -> None:
        self.sum += int(action)
        self.rewards[agent] = float(action)
        self.infos[agent]["sum"] = self.sum
        if self.steps == 4:
            self.terminations = dict.fromkeys(self.agents, True)
            for name in self.agents:
                self.infos[name]["success"] = self.sum % 2 == 0


# Values


class Loud:
    """Every method ends the program."""

    def _end(self, *_: Any) -> Any:
        raise SystemExit(0)

    __repr__ = __str__ = __eq__ = __iter__ = __len__ = __bool__ = __getitem__ = __call__ = __index__ = __float__ = _end
    __hash__ = object.__hash__


def _loud_base(base: type, *arguments: Any) -> Any:
    methods = {name: getattr(Loud, name) for name in ("__repr__", "__str__", "__iter__", "__len__", "__bool__")}
    return type(f"Loud{base.__name__.title()}", (base,), methods)(*arguments)


def _nested(levels: int) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = {"x": value}
    return value


def _cycle() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


def _wide() -> Any:
    value: Any = ["x" * 1000]
    for _ in range(40):
        value = [value] * 10
    return value


def _numpy(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import numpy

        return {"array": numpy.zeros((2, 2)), "scalar": numpy.int64(3), "float": numpy.float32(0.5)}[name]

    return make


class Colour(enum.StrEnum):
    RED = "red"


NOT_PLAIN: dict[str, Callable[[], Any]] = {
    "a cycle": _cycle,
    "depth 5,000": lambda: _nested(5000),
    "a tree of a hundred shared levels": _wide,
    "an object whose methods exit": Loud,
    "a NumPy array": _numpy("array"),
    "a NumPy integer": _numpy("scalar"),
    "a NumPy float": _numpy("float"),
    "an integer of 10,000 digits": lambda: 10**9999,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a set": lambda: {1, 2},
    "a tuple": lambda: (1, 2),
    "bytes": lambda: b"raw",
    "a generator": lambda: (x for x in "abc"),
    "keys that are numbers": lambda: {1: "x"},
    "keys that exit": lambda: {Loud(): "x"},
    "a date": lambda: datetime.date(2026, 1, 1),
    "a function": lambda: print,
    "a class": lambda: Loud,
    "a complex number": lambda: 1j,
}

PLAIN: dict[str, Callable[[], Any]] = {
    "lone surrogates": lambda: "\ud800 x \udc00",
    "a pair of surrogates": lambda: "\ud83d\ude00",
    "control characters": lambda: "\x00\x1b]52;c;AAAA\x07\u202e",
    "a text whose methods exit": lambda: _loud_base(str, "text"),
    "a dict whose methods exit": lambda: _loud_base(dict, {"x": 1}),
    "a list whose methods exit": lambda: _loud_base(list, [1]),
    "an integer whose methods exit": lambda: _loud_base(int, 3),
    "a counter": lambda: Counter("aab"),
    "an ordered dict": lambda: OrderedDict(x=1),
    "a member of an enumeration": lambda: Colour.RED,
    "a hundred thousand numbers": lambda: [0] * 100_000,
}

# Exceptions


class Mute(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        raise SystemExit(0)


class Base(BaseException):
    """Not an Exception."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "RuntimeError": lambda: RuntimeError("no"),
    "an error with 10 MB of text": lambda: RuntimeError("x" * 10**7),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "RecursionError": RecursionError,
    "MemoryError": MemoryError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit 0": lambda: SystemExit(0),
    "CancelledError": asyncio.CancelledError,
    "TimeoutError": TimeoutError,
    "a BaseException": Base,
    "an error without a text": Mute,
}

HOOKS = ("reset", "step", "_reset", "_process_action", "observe", "role", "legal_actions")
ATTRIBUTES = ("done", "metadata", "blocking")


def _raises_in_hook(hook: str, error: Callable[[], BaseException], blocks: bool = False) -> type[Game]:
    ordinary = getattr(Game, hook)

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        if hook == "reset":
            self.task = arguments[1].get("task", 0)
        if self.bad:
            raise error()
        return ordinary(self, *arguments, **named)

    return type("Raises", (Game,), {hook: method, "blocking": blocks})


def _raises_in_attribute(name: str, error: Callable[[], BaseException]) -> type[Game]:
    ordinary = {"done": Game.done.fget, "metadata": lambda self: Metadata(), "blocking": lambda self: False}[name]  # type: ignore[attr-defined]

    def read(self: Any) -> Any:
        if self.bad:
            raise error()
        return ordinary(self)

    return type("RaisesWhenRead", (Game,), {name: property(read)})


def _returns(hook: str, value: Callable[[], Any]) -> type[Game]:
    ordinary = getattr(Game, hook)

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        returned = ordinary(self, *arguments, **named)
        return value() if self.bad else returned

    return type("Returns", (Game,), {hook: method})


def _sets(name: str, value: Callable[[], Any]) -> type[Game]:
    class Sets(Game):
        def _process_action(self, agent: str, action: str) -> None:
            super()._process_action(agent, action)
            if self.bad and name == "info":
                self.infos[agent]["odd"] = {"deeper": [0, value()]}
            elif self.bad:
                getattr(self, name)[agent] = value()

    return Sets


class ClosesBadly(Game):
    """Its `close` exits, after an episode that failed."""

    def _process_action(self, agent: str, action: str) -> None:
        if self.bad:
            raise RuntimeError("so that it is closed")
        super()._process_action(agent, action)

    def close(self) -> None:
        raise SystemExit(0)


class CannotBeMadeAgain(ClosesBadly):
    """Its constructor works three times."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        if type(self).made > 3:
            raise ZeroDivisionError("no more")


class SameEnvTwice(Game):
    """Its class gives the same env every time."""

    only: Any = None

    def __new__(cls) -> Any:
        cls.only = cls.only or super().__new__(cls)
        return cls.only


class NobodyActs(Game):
    """Observations are for nobody, and the episode is not over."""

    def step(self, actions: Any) -> Any:
        _, *four = super().step(actions)
        return ({} if self.bad else _, *four)


class HugeSums(Game):
    """Finite rewards whose sum is not."""

    def _process_action(self, agent: str, action: str) -> None:
        super()._process_action(agent, action)
        if self.bad:
            self.rewards[agent] = 1.7e308


WRONG_RESULTS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a number": lambda: 7,
    "a tuple of four": lambda: ({},) * 4,
    "lists": lambda: ([],) * 5,
}


def _hostile() -> Iterator[tuple[str, Callable[[], type[Game]]]]:
    for name, error in ERRORS.items():
        yield f"_process_action raises {name}", partial(_raises_in_hook, "_process_action", error)
        yield f"step in a thread raises {name}", partial(_raises_in_hook, "step", error, blocks=True)
        yield f"a constructor or reset raises {name}", partial(_raises_in_hook, "reset", error)
    for hook, name in itertools.product(HOOKS, ("RuntimeError", "SystemExit 0", "KeyboardInterrupt")):
        yield f"{hook} raises {name}", partial(_raises_in_hook, hook, ERRORS[name])
    for attribute, name in itertools.product(ATTRIBUTES, ("RuntimeError", "SystemExit 0")):
        yield f"{attribute} raises {name}", partial(_raises_in_attribute, attribute, ERRORS[name])
    for name, value in NOT_PLAIN.items():
        yield f"{name} in an info", partial(_sets, "info", value)
        yield f"{name} for an observation", partial(_returns, "observe", value)
    for name in ("NaN", "an object whose methods exit", "a set", "a complex number", "an integer of 10,000 digits"):
        yield f"{name} for a reward", partial(_sets, "rewards", NOT_PLAIN[name])
        yield f"{name} for a termination", partial(_sets, "terminations", NOT_PLAIN[name])
    for text, returned in WRONG_RESULTS.items():
        yield f"step returns {text}", partial(_returns, "step", returned)
        yield f"reset returns {text}", partial(_returns, "reset", returned)
    yield "a number for a role", lambda: _returns("role", lambda: 7)
    yield "a number in a role", lambda: _returns("role", lambda: Role(7))  # type: ignore[arg-type]
    yield "a cycle in a role's tool", lambda: _returns("role", lambda: Role("", (ToolSpec("t", "", _cycle()),)))
    yield "a number in a part", lambda: _returns("observe", lambda: [{"type": "text", "text": 7}])
    yield "text in a list", lambda: _returns("observe", lambda: ["lines"])
    yield "legal actions that exit", lambda: _returns("legal_actions", Loud)
    yield "legal actions that are objects", lambda: _returns("legal_actions", lambda: [Loud()])
    yield "close exits", lambda: ClosesBadly
    yield "nobody acts", lambda: NobodyActs
    yield "finite rewards with an infinite sum", lambda: HugeSums


HOSTILE: dict[str, Callable[[], type[Game]]] = dict(_hostile())
"""By name, what makes a scenario that misbehaves in the tasks that are bad, and in no other."""

HARMLESS: dict[str, Callable[[], type[Game]]] = {
    f"{name} in an info": partial(_sets, "info", value) for name, value in PLAIN.items()
}
"""What looks odd and can be recorded."""

SOMETIMES: dict[str, Callable[[], type[Game]]] = {
    "a constructor that works three times": lambda: type("Once", (CannotBeMadeAgain,), {"made": 0}),
    "the same env twice": lambda: type("Same", (SameEnvTwice,), {"only": None}),
}
"""What fails in some tasks, not always the same."""


# Policies


class Player:
    """A healthy policy; `text` is what it answers."""

    def __init__(self, answer: Callable[[], Any] | None = None, name: Callable[[], Any] = lambda: "player") -> None:
        self._answer, self._name = answer, name

    @property
    def name(self) -> Any:
        return self._name()

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return self

    async def act(self, observation: Any, info: Any) -> Any:
        bad = is_bad(int(observation.split()[1].strip(",")))
        return self._answer() if bad and self._answer else Response("1")


def _raises(error: Callable[[], BaseException]) -> Player:
    def answer() -> Any:
        raise error()

    return Player(answer)


def _says(value: Callable[[], Any]) -> Player:
    return Player(lambda: Response(value()))


def _uses(value: Callable[[], Any]) -> Player:
    return Player(lambda: Response("1", usage={"tokens": value()}))


POLICIES: dict[str, Callable[[], Player]] = {
    **{f"act raises {name}": partial(_raises, error) for name, error in ERRORS.items()},
    **{f"{name} for an answer": partial(Player, value) for name, value in NOT_PLAIN.items()},
    **{f"{name} for the text of an answer": partial(_says, value) for name, value in NOT_PLAIN.items()},
    **{f"{name} in the usage of an answer": partial(_uses, value) for name, value in NOT_PLAIN.items()},
    "token ids that are texts": lambda: Player(lambda: Response("1", token_ids=("x",))),  # type: ignore[arg-type]
    "log-probabilities that are NaN": lambda: Player(lambda: Response("1", logprobs=(float("nan"),))),
    "a cost that is a text": lambda: Player(lambda: Response("1", cost="much")),  # type: ignore[arg-type]
    "a cost that is infinite": lambda: Player(lambda: Response("1", cost=float("inf"))),
    "reasoning that exits": lambda: Player(lambda: Response("1", reasoning=Loud())),  # type: ignore[arg-type]
}
"""By name, what makes a policy that misbehaves in the tasks that are bad, and in no other."""
