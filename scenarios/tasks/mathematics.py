"""`math:`: generated problems with exact answers, and data sets whose answers math-verify compares."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Literal, TypeAlias, get_args

from marl_gem.errors import InvalidOption
from marl_gem.faults import shown
from marl_gem.scenarios.tasks.exact import read_number
from marl_gem.scenarios.tasks.pictures import PICTURED
from marl_gem.scenarios.tasks.problems import GENERATORS
from marl_gem.scenarios.tasks.question import AnswerIn, Item, Items, QuestionEnv, Score
from marl_gem.scenarios.tasks.workers import Workers

Split: TypeAlias = Literal["train", "test"]
GRADES = 5
WORKERS = Workers("math", ["mathematics"], ["math_verify"], "math")
"""Where math-verify runs: it has no time limit of its own outside the main thread."""

SECONDS = 3.0
"""So much CPU time may comparing an answer take."""


class ProblemItems(Items):
    """The problems of a subject: as many of each grade, in turn."""

    def __init__(self, subject: str, split: Split, size: int) -> None:
        self._subjects = (*GENERATORS, *PICTURED) if subject == "all" else (subject,)
        self._split, self._size = split, size
        self.grades = tuple(self._subject_and_grade(number)[1] for number in range(size))

    def __len__(self) -> int:
        return self._size

    def number_of(self, id: str) -> int:
        split, _, number = id.partition("-")
        if split != self._split or not number.isdecimal() or int(number) >= self._size:
            raise KeyError(id)
        return int(number)

    def get(self, number: int) -> Item:
        subject, grade = self._subject_and_grade(number)
        rng, level = Random(f"{subject} {self._split} {number}"), number % GRADES + 1
        if subject in PICTURED:
            prompt, answer, picture = PICTURED[subject](rng, level)
            images: tuple[str, ...] = (picture,)
        else:
            (prompt, answer), images = GENERATORS[subject](rng, level), ()
        return Item(f"{self._split}-{number}", prompt, str(answer), grade, images)

    def _subject_and_grade(self, number: int) -> tuple[str, str]:
        """What a problem is about, and its grade, which names the subject where there are several."""
        subject, level = self._subjects[number // GRADES % len(self._subjects)], str(number % GRADES + 1)
        return subject, level if len(self._subjects) == 1 else f"{subject} {level}"


class Problems(QuestionEnv):
    r"""Generated problems with exact answers, over the grades 1 to 5.

    An answer is right if it is the same number: "3/4", "0.75", "75%" and "\frac{3}{4}" are.

    Args:
        subject: one of `problems.GENERATORS` and `pictures.PICTURED`; or "all", whose grades name the subjects too.
        split: "train" or "test", which have other problems.
        size: how many there are.
        task, answer_in, instructions, unanswered_reward: as of `QuestionEnv`.

    Raises:
        InvalidOption: there is no such split or size.
    """

    def __init__(
        self,
        subject: str,
        split: Split = "train",
        size: int = 500,
        task: int | str | None = None,
        answer_in: AnswerIn = "any",
        instructions: str | None = None,
        unanswered_reward: float = 0.0,
    ) -> None:
        if split not in get_args(Split):
            raise InvalidOption(f"split is train or test, not {shown(split)}")
        if type(size) is not int or not 1 <= size <= 1_000_000:
            raise InvalidOption(f"size is a number of problems from 1 to 1,000,000, not {shown(size)}")
        super().__init__(ProblemItems(subject, split, size), task, answer_in, instructions, unanswered_reward)

    async def score(self, item: Item, answer: str) -> Score:
        number = read_number(answer)
        if number is None:
            return Score(0.0, False, "no number")
        return Score.of(number == Fraction(item.answers[0]))


async def by_math_verify(answer: str, item: Item) -> Score:
    """1 if math-verify finds the answer equal to one of the item's; what `register_dataset(reward="math")` scores by.

    Raises:
        MissingPackage: math-verify is not installed.
        ResourceError: no worker could be started.
    """
    WORKERS.check()
    reply = await WORKERS.call("same", item.answers, answer, seconds=SECONDS)
    if reply.problem:
        return Score(0.0, False, {"timeout": "time-out", "crash": "crash"}.get(reply.problem, "wrong form"))
    return Score.of(bool(reply.value))
