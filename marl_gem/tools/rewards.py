"""Rewards: functions of an episode, or of a turn, for one agent.

    @reward
    def brief(turn: Turn) -> float:
        return -len(turn.response.text) / 1000

    @reward
    async def helpful(episode: Episode, agent: str) -> float: ...

    @reward
    def similar(episodes: list[Episode], agents: list[str]) -> list[float]: ...

Called with an episode and an agent, each gives a number, or an awaitable that gives it: that is what
`marl_gem regrade --reward FILE.py:brief` takes. `wrappers.RewardEnv` pays them in any scenario.
"""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

from marl_gem.errors import ConfigError, MarlGemError
from marl_gem.faults import foreign_code, shown
from marl_gem.step_results import as_reward
from marl_gem.tools.context import Context
from marl_gem.tools.names import find_object, read_values
from marl_gem.types import Episode, Turn

Kind: TypeAlias = Literal["turn", "episode", "batch"]
Value: TypeAlias = float | Awaitable[float]
"""What a reward gives: a number, or an awaitable that gives it."""

_Batch: TypeAlias = list[tuple[Episode, str, "asyncio.Future[float]"]]
_BATCH_SECONDS = 0.02
"""For so long a batched reward waits for more episodes."""


class Reward:
    """A function that says what an agent gets. `reward` makes it.

    `kind` is "turn" where the function scores a turn, "episode" where it scores an episode, and "batch" where it scores
    many episodes at once.
    """

    def __init__(self, function: Callable[..., Any], name: str = "", max_batch: int = 64) -> None:
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._function, self._max_batch = function, max_batch
        self.kind, self._context = _read_signature(function, self.name)
        self._waiting: dict[Any, _Batch] = {}  # by event loop
        self._tasks: set[asyncio.Task[None]] = set()
        self.__doc__ = function.__doc__

    def __call__(self, episode: Episode, agent: str, env: Any = None) -> Value:
        """What the agent gets for an episode. Of a reward of turns it is the sum over the agent's turns.

        Raises:
            ScenarioFault: the function gave something else than a finite number.
        """
        context = Context(agent, episode.seed, env)
        if self.kind == "batch":
            return self._in_batch(episode, agent)
        if self.kind == "turn":
            return _sum([self._value(agent, context, turn) for turn in episode.turns_of(agent)])
        return self._value(agent, context, episode, agent)

    def of_turn(self, turn: Turn, seed: int, env: Any = None) -> Value:
        """What an agent gets for a turn; of a reward of kind "turn"."""
        return self._value(turn.agent, Context(turn.agent, seed, env), turn)

    def _value(self, agent: str, context: Context, *given: Any) -> Value:
        named = {self._context: context} if self._context else {}
        return self._checked(self._function(*given, **named), agent)

    def _checked(self, value: Any, agent: str) -> Value:
        return self._awaited(value, agent) if inspect.isawaitable(value) else self._number(value, agent)

    async def _awaited(self, value: Awaitable[Any], agent: str) -> float:
        return self._number(await value, agent)

    def _number(self, value: Any, agent: str) -> float:
        return as_reward(value, agent, f"the reward {self.name}")

    async def _in_batch(self, episode: Episode, agent: str) -> float:
        """Wait a moment for others, and score them together."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[float] = loop.create_future()
        batch = self._waiting.setdefault(loop, [])
        batch.append((episode, agent, future))
        if len(batch) >= self._max_batch:
            del self._waiting[loop]
            await self._score(batch)
        elif len(batch) == 1:
            task = loop.create_task(self._score_later(loop, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _score_later(self, loop: Any, batch: _Batch) -> None:
        await asyncio.sleep(_BATCH_SECONDS)
        if self._waiting.get(loop) is batch:  # it has not become full
            del self._waiting[loop]
            await self._score(batch)

    async def _score(self, batch: _Batch) -> None:
        try:
            values = self._function([episode for episode, _, _ in batch], [agent for _, agent, _ in batch])
            values = await values if inspect.isawaitable(values) else values
            if not isinstance(values, Sequence) or len(values) != len(batch):
                raise ConfigError(f"the reward {self.name} gave {shown(values)}, not a number for each of {len(batch)}")
            for value, (_, agent, future) in zip(values, batch, strict=True):
                if not future.done():
                    future.set_result(self._number(value, agent))
        except BaseException as error:
            for *_, future in batch:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                    future.exception()  # each who waits gets it
            if not isinstance(error, Exception):
                raise

    def __deepcopy__(self, memo: object) -> Reward:
        return self

    def __repr__(self) -> str:
        return f"<Reward {self.name}>"


@overload
def reward(function: Callable[..., Any]) -> Reward: ...
@overload
def reward(*, name: str = "", max_batch: int = 64) -> Callable[[Callable[..., Any]], Reward]: ...


def reward(
    function: Callable[..., Any] | None = None, *, name: str = "", max_batch: int = 64
) -> Reward | Callable[[Callable[..., Any]], Reward]:
    """Make a reward of a function; as a decorator, with or without arguments.

    Args:
        function: takes a `Turn`, an `Episode` and an agent's id, or lists of both, as its annotations say, and perhaps
            a `Context`; gives a finite number, or a list of them. It may be asynchronous; where it waits, it should be.
        name: by default the function's.
        max_batch: the most episodes that a function of lists gets at once.

    Raises:
        TypeError: the annotations are others.
    """
    if function is None:
        return lambda decorated: Reward(decorated, name, max_batch)
    return Reward(function, name, max_batch)


def load_reward(source: str | Reward | Callable[..., Any]) -> Reward:
    """A reward that is named: `path/to/file.py:name`, `module:name`, or a rubric such as `matches:pattern=yes|no`.

    Raises:
        ConfigError: there is none, or it cannot be made.
    """
    if isinstance(source, Reward):
        return source
    found: Any = source
    if isinstance(source, str):
        name, _, rest = source.partition(":")
        if name in RUBRICS:
            found = find_object(RUBRICS[name], name, source)
            with foreign_code(f"the reward {source!r} cannot be made", ConfigError, but=(MarlGemError,)):
                return of_last_response(found, name, **read_values(rest, source))
        if not rest or "=" in rest:
            rubrics = ", ".join(RUBRICS)
            raise ConfigError(
                f"there is no reward {source!r}; there are {rubrics}, and path/to/file.py:name for others"
            )
        found = find_object(name, rest, source)
    try:
        return found if isinstance(found, Reward) else Reward(found)
    except TypeError as error:
        raise ConfigError(str(error)) from error


RUBRICS = {
    **dict.fromkeys(("exact_match", "f1", "matches", "fits_schema"), "marl_gem.tools.rubrics"),
    "unit_tests": "marl_gem.tools.unit_tests",
}
"""Functions that a text can name, with their modules; they score an agent's last response."""


def of_last_response(rubric: Callable[..., Value], name: str = "", **values: Any) -> Reward:
    """A reward that scores the text of an agent's last response; 0 if it has none.

    Args:
        rubric: takes the text, and these values by name; it may be asynchronous.
        name: of the reward; by default the rubric's.

    Raises:
        TypeError: the rubric does not take such values.
    """
    inspect.signature(rubric).bind("", **values)

    def score(episode: Episode, agent: str) -> Value:
        turns = episode.turns_of(agent)
        return rubric(turns[-1].response.text, **values) if turns else 0.0

    return Reward(score, name or rubric.__name__)


def _read_signature(function: Callable[..., Any], name: str) -> tuple[Kind, str]:
    """What a function takes: a turn, an episode and an agent, or many of both; and the parameter of the context."""
    code: Any = function if inspect.isroutine(function) else type(function).__call__
    hints = {key: hint for key, hint in typing.get_type_hints(code).items() if key != "return"}
    contexts = [key for key, hint in hints.items() if hint is Context]
    kinds: dict[tuple[Any, ...], Kind] = {
        (Turn,): "turn",
        (Episode, str): "episode",
        (list[Episode], list[str]): "batch",
    }
    given = tuple(hint for key, hint in hints.items() if key not in contexts)
    if given not in kinds or len(contexts) > 1 or (contexts and kinds[given] == "batch"):
        raise TypeError(
            f"the reward {name} takes a Turn, an Episode and a str, or a list[Episode] and a list[str], by its "
            "annotations, and perhaps a Context"
        )
    return kinds[given], contexts[0] if contexts else ""


def _sum(values: list[Value]) -> Value:
    if not any(inspect.isawaitable(value) for value in values):
        return float(sum(values))  # type: ignore[arg-type]

    async def wait() -> float:
        return sum([await value if inspect.isawaitable(value) else value for value in values])

    return wait()
