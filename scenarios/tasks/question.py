r"""The base of tasks for one agent: a question, an answer, a score.

    class Sums(QuestionEnv):
        async def score(self, item: Item, answer: str) -> Score:
            return Score.of(answer == item.answer)

    env = Sums(ListedItems([Item("1", "What is 1 + 1?", "2")]))

The agent is "solver", and its first response is the answer. With tools (`wrappers.ToolEnv`) it may call them before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args, overload

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.faults import shown
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.types import ContentPart, Metadata, Observation, Role
from marl_gem.wrappers.parse import boxed, tagged

SOLVER = "solver"

AnswerIn: TypeAlias = Literal["boxed", "tags", "text", "any"]
r"""Where a response has its answer: in the last `\boxed{...}`; in the last `<answer>...</answer>`; the response is the
answer; or the first of these that there is."""

_FIND: dict[str, Callable[[str], str | None]] = {"boxed": boxed().find, "tags": tagged("answer").find}
_ASK = {
    "boxed": r"Put your final answer within \boxed{}.",
    "tags": "Put your final answer between <answer> and </answer>.",
    "text": "Answer with the final answer alone.",
    "any": r"Put your final answer within \boxed{}.",
}


@dataclass(frozen=True)
class Item:
    """One question.

    Args:
        id: unique in its set.
        prompt: what the agent observes.
        answer: the answer, or a list of answers that count alike; None if no answer can be shown.
        grade: how hard it is, such as "easy"; empty where items have none.
        images: the URLs of images that are shown before the prompt; a data: URL contains its image.
        tools: the names of the tools that the item allows, where items differ in that.
        fields: what else a scorer needs, as plain data.
    """

    id: str
    prompt: str
    answer: str | list[str] | None = None
    grade: str = ""
    images: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answers(self) -> list[str]:
        """All answers that count; empty if none can be shown."""
        if self.answer is None:
            return []
        return [self.answer] if isinstance(self.answer, str) else list(self.answer)


class Score(NamedTuple):
    """What an answer is worth: its reward, whether it counts as solved, and why it does not, in a word or two."""

    reward: float
    passed: bool
    reason: str = ""

    @classmethod
    def of(cls, passed: bool, reason: str = "wrong answer") -> Score:
        """1 for an answer that is right, else 0 and the reason."""
        return cls(1.0, True) if passed else cls(0.0, False, reason)


class Items(Sequence[Item]):
    """A set of items, by number. All envs share it; a fork does too.

    `grades` holds the grade of each item, and is empty where they have none. `endless` says that there is an item for
    every number from 0 up: then `len` is of no use, and an episode is about the item with the number of its seed.
    """

    grades: Sequence[str] = ()
    endless: bool = False

    def number_of(self, id: str) -> int:
        """The number of the item with this id.

        Raises:
            KeyError: there is none.
        """
        for number, item in enumerate(self):
            if item.id == id:
                return number
        raise KeyError(id)

    @overload
    def __getitem__(self, number: int) -> Item: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Item]: ...
    def __getitem__(self, number: int | slice) -> Item | Sequence[Item]:
        if isinstance(number, slice):
            return [self.get(index) for index in range(*number.indices(len(self)))]
        if not (self.endless or number < len(self)) or number < 0:
            raise IndexError(number)
        return self.get(number)

    def get(self, number: int) -> Item:
        """The item with this number, from 0."""
        raise NotImplementedError

    def __deepcopy__(self, memo: object) -> Items:
        return self


class ListedItems(Items):
    """Items that are all there.

    Raises:
        ValueError: two have the same id.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = tuple(items)
        grades = [item.grade for item in self._items]
        self.grades = tuple(grades) if all(grades) else ()
        self._numbers = {item.id: number for number, item in enumerate(self._items)}
        if len(self._numbers) < len(self._items):
            ids = [item.id for item in self._items]
            raise ValueError(f"two items have the id {next(id for id in ids if ids.count(id) > 1)!r}")

    def __len__(self) -> int:
        return len(self._items)

    def get(self, number: int) -> Item:
        return self._items[number]

    def number_of(self, id: str) -> int:
        return self._numbers[id]


class QuestionEnv(MultiAgentEnv):
    """One agent, one item, one answer.

    A subclass defines `score`. Where that has to wait, it sets `awaits = True`; rollouts then let other episodes go on.

    The last info has `success`, `failure`, `answer` (what was found in the response, None if nothing was) and
    `expected` (the answer, where it can be shown). All infos have `item`, the item's id, and, where the items are
    finitely many, `task`, its number. Models see no infos.

    Args:
        items: what is asked.
        task: the number or the id of an item; every episode has it, and `tasks` is None. None: each episode draws its
            own. `reset(options={"task": 3})` sets it for one episode.
        answer_in: where a response has its answer.
        instructions: what the agent is told before the question; None: where it has to write the answer.
        unanswered_reward: the reward of a response without an answer in that form.

    Raises:
        InvalidOption: a value is not allowed, or there is no such task.
    """

    possible_agents = (SOLVER,)
    selector = SequentialSelector()
    answers_are_text: ClassVar[bool] = True
    """Whether the answer of an item, written in a response, is right; policies that show it need that."""

    def __init__(
        self,
        items: Items,
        task: int | str | None = None,
        answer_in: AnswerIn = "any",
        instructions: str | None = None,
        unanswered_reward: float = 0.0,
    ) -> None:
        if answer_in not in get_args(AnswerIn):
            raise InvalidOption(f"answer_in is one of {', '.join(get_args(AnswerIn))}, not {shown(answer_in)}")
        if not items.endless and not len(items):
            raise InvalidOption("there are no items")
        if type(unanswered_reward) not in (int, float) or not abs(unanswered_reward) < 1e300:
            raise InvalidOption(f"unanswered_reward is a finite number, not {shown(unanswered_reward)}")
        self.items, self.answer_in = items, answer_in
        self.unanswered_reward = float(unanswered_reward)
        self.instructions = _ASK[answer_in] if instructions is None else instructions
        self._fixed_task = None if task is None else self._number(task)
        if task is None and not items.endless:
            self.tasks, self.grades = len(items), items.grades
        self.metadata = Metadata(turn_order="sequential", reward_range=self.reward_range())

    @property
    def unwrapped(self) -> QuestionEnv:
        """This env, as wrappers give the env within them."""
        return self

    def reward_range(self) -> tuple[float, float] | None:
        """The least and the greatest reward; None where it is not known."""
        return (min(0.0, self.unanswered_reward), max(1.0, self.unanswered_reward))

    async def score(self, item: Item, answer: str) -> Score:
        """What an answer is worth. It must not raise on what an answer says.

        Raises:
            ResourceError, LLMError: the answer could not be scored, through no fault of the agent.
        """
        raise NotImplementedError(f"{type(self).__name__} must define score(item, answer)")

    def role(self, agent: str) -> Role:
        return Role(self.instructions)

    def observe(self, agent: str) -> Observation:
        if not self.item.images:
            return self.item.prompt
        parts: list[ContentPart] = [{"type": "image", "url": url} for url in self.item.images]
        return [*parts, {"type": "text", "text": self.item.prompt}]

    def written(self, answer: str) -> str:
        """A response that gives this answer."""
        if self.answer_in == "text":
            return answer
        return f"<answer>{answer}</answer>" if self.answer_in == "tags" else f"\\boxed{{{answer}}}"

    def found(self, response: str) -> str | None:
        """The answer in a response, None if there is none."""
        if self.answer_in in _FIND:
            return _FIND[self.answer_in](response)
        if self.answer_in == "any":
            for find in _FIND.values():
                if (answer := find(response)) is not None:
                    return answer
        return response.strip()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({name: value for name, value in options.items() if name != "task"})
        chosen = options.get("task")
        number = self._fixed_task if chosen is None else self._number(chosen)
        if number is None:
            number = self.seed if self.items.endless else self.rng.randrange(len(self.items))
        self.item, self._task = self.items[number], number
        self._name_item()

    def _name_item(self) -> None:
        info = self.infos.setdefault(SOLVER, {})
        info["item"] = self.item.id
        if not self.items.endless:
            info["task"] = self._task

    def _process_action(self, agent: str, action: str) -> None:
        self._name_item()
        self.terminations[agent] = True
        answer = self.found(action)
        info = self.infos[agent]
        info["answer"] = answer
        if self.item.answers:
            info["expected"] = self.item.answers[0]
        if answer is None:
            info |= {"success": False, "failure": "no answer", "illegal": f"no answer in {self.answer_in}"}
            self.rewards[agent] = self.unanswered_reward
            return
        scored = self._scored(info, answer)
        rewards: dict[str, Any] = self.rewards
        rewards[agent] = scored if self.awaits else _finished(scored)

    async def _scored(self, info: dict[str, Any], answer: str) -> float:
        score = await self.score(self.item, answer)
        info |= {"success": score.passed, "failure": "" if score.passed else score.reason or "wrong answer"}
        return score.reward

    def _number(self, task: Any) -> int:
        """The number of a task that is given by number or id."""
        if isinstance(task, str) and not self.items.endless:
            try:
                return self.items.number_of(task)
            except KeyError:
                raise InvalidOption(f"{self.scenario} has no task with the id {task!r:.80}") from None
        if type(task) is not int or task < 0 or not (self.items.endless or task < len(self.items)):
            there = "from 0 up" if self.items.endless else f"from 0 to {len(self.items) - 1}, or by their ids"
            raise InvalidOption(f"{self.scenario} has tasks {there}, not {shown(task)}")
        return task


def _finished(scored: Any) -> float:
    """The result of a coroutine that waits for nothing."""
    try:
        scored.send(None)
    except StopIteration as end:
        return float(end.value)
    scored.close()
    raise RuntimeError("score() waits for something: set awaits = True")
