"""A data set as a scenario: rows become questions.

    register_dataset("my:Sums-v0", "sums.jsonl", columns={"prompt": "question"})
    env = marl_gem.make("my:Sums-v0", split="test", task="sum-17")

The file is read once in a process, when the first env is made, and all envs share what was read.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from marl_gem.env import Infos, MultiAgentEnv, Observations
from marl_gem.errors import ConfigError, InvalidOption, RecordError
from marl_gem.faults import shown
from marl_gem.registry import register
from marl_gem.scenarios.tasks.images import image_urls
from marl_gem.scenarios.tasks.question import AnswerIn, Item, ListedItems, QuestionEnv, Score
from marl_gem.scenarios.tasks.registration import register_question_policies
from marl_gem.scenarios.tasks.rows import Row, Source, answer_of, splits_of, text_in, value_in
from marl_gem.tools import rubrics
from marl_gem.tools.names import ToolSource, find_object, load_tools
from marl_gem.tools.rewards import RUBRICS, Reward, load_reward
from marl_gem.wrappers.reward_env import RewardEnv
from marl_gem.wrappers.tool_env import ToolEnv

Scorer: TypeAlias = Callable[[str, Item], "Score | float | bool | Awaitable[Score | float | bool]"]
"""A function of an answer and its item. A number is the reward, and at 1 the item is solved."""

COLUMNS = ("prompt", "answer", "id", "grade", "images", "tools")
"""What a row may have, by the names of our columns; every column else is in `Item.fields`."""


class Dataset:
    """The items of a data set by split, which are read at the first use; see `register_dataset`."""

    def __init__(
        self, source: Source, columns: Mapping[str, str], form: Callable[[Row], Row] | None, needs_answer: bool
    ) -> None:
        self._source, self._form, self._needs_answer = source, form, needs_answer
        self._columns, self._named = {name: columns.get(name, name) for name in COLUMNS}, frozenset(columns)
        self._split_column = columns.get("split", "split")
        self._folder = Path(source).parent if isinstance(source, (str, Path)) else Path()
        self._lock = threading.Lock()
        self._items: dict[str, ListedItems] | None = None

    @property
    def splits(self) -> dict[str, ListedItems]:
        """The items of each split.

        Raises:
            RecordError: the source cannot be read; the message gives file, line and column.
            MissingPackage: parquet is to be read, and pyarrow is not installed.
        """
        with self._lock:
            if self._items is None:
                rows = splits_of(self._source, self._split_column)
                self._items = {split: self._listed(located) for split, located in rows.items()}
            return self._items

    def items(self, split: str | None) -> ListedItems:
        """The items of a split; None is "train" where there is such a split, else the first.

        Raises:
            InvalidOption: there is no such split.
        """
        splits = self.splits
        if not splits:
            raise RecordError(f"{shown(self._source)}: there are no rows")
        split = ("train" if "train" in splits else next(iter(splits))) if split is None else split
        if split not in splits:
            raise InvalidOption(f"split is one of {', '.join(splits)}, not {shown(split)}")
        return splits[split]

    def _listed(self, rows: Sequence[tuple[str, Row]]) -> ListedItems:
        lines: dict[str, str] = {}
        items = []
        for number, (where, row) in enumerate(rows):
            item = self._item(where, row, number)
            if item.id in lines:
                raise RecordError(f"{where}: the id {item.id!r:.80} is that of {lines[item.id]} already")
            lines[item.id] = where
            items.append(item)
        graded = [bool(item.grade) for item in items]
        if any(graded) and not all(graded):
            raise RecordError(f"{rows[graded.index(False)][0]}: there is no grade, and other rows have one")
        return ListedItems(items)

    def _item(self, where: str, row: Row, number: int) -> Item:
        row = row if self._form is None else self._formed(where, row)
        for name in COLUMNS:
            if name in self._named or name == "prompt" or (name == "answer" and self._needs_answer):
                value_in(row, self._columns[name], where)

        def optional(name: str, default: Any) -> Any:
            value = row.get(self._columns[name])
            return default if value is None else value

        def check(name: str, holds: bool, what: str) -> None:
            if not holds:
                column = self._columns[name]
                raise RecordError(f"{where}: {column} is {what}, not {shown(row[column])}")

        id, grade, tools = optional("id", number), optional("grade", ""), optional("tools", ())
        check("id", type(id) in (str, int) and id != "", "a text or a whole number")
        check("grade", type(grade) in (str, int), "a text or a whole number")
        is_list = isinstance(tools, Sequence) and not isinstance(tools, str)
        check("tools", is_list and all(isinstance(tool, str) for tool in tools), "a list of names of tools")
        answer = optional("answer", None)
        if answer is not None or self._needs_answer:
            answer = answer_of(answer, where, self._columns["answer"])
        return Item(
            id=str(id),
            prompt=text_in(row, self._columns["prompt"], where),
            answer=answer,
            grade=str(grade),
            images=image_urls(optional("images", None), self._folder, f"{where}: {self._columns['images']}"),
            tools=tuple(tools),
            fields={name: value for name, value in row.items() if name not in self._columns.values()},
        )

    def _formed(self, where: str, row: Row) -> Row:
        assert self._form is not None
        try:
            return self._form(row)
        except KeyError as error:
            raise RecordError(f"{where}: there is no column {error}; there are {', '.join(row)}") from error
        except (ValueError, TypeError, IndexError) as error:
            raise RecordError(f"{where}: {error}") from error

    def __deepcopy__(self, memo: object) -> Dataset:
        return self


class DatasetEnv(QuestionEnv):
    """Items of a data set, scored by a function of the answer and the item.

    Args:
        data: the data set.
        scorer: the function; None scores by exact match where the item has an answer.
        split: the split that items are drawn from; None: "train" where there is one, else the first.
        waits: whether the function may give an awaitable.
        task, answer_in, instructions, unanswered_reward: as of `QuestionEnv`.
    """

    def __init__(
        self, data: Dataset, scorer: Scorer | None, split: str | None = None, waits: bool = False, **options: Any
    ) -> None:
        self._scorer, self.awaits = scorer, waits
        super().__init__(data.items(split), **options)

    def reward_range(self) -> tuple[float, float] | None:
        return super().reward_range() if self._scorer in _KNOWN or self._scorer is None else None

    async def score(self, item: Item, answer: str) -> Score:
        if self._scorer is None:
            return by_exact_match(answer, item) if item.answers else Score(0.0, False, "not scored")
        value = self._scorer(answer, item)
        value = await value if inspect.isawaitable(value) else value
        if isinstance(value, Score):
            return value
        if isinstance(value, bool):
            return Score.of(value)
        return Score(value, value == 1.0)


def by_exact_match(answer: str, item: Item) -> Score:
    """1 if the answer is one of the item's after normalization, see `tools.rubrics.exact_match`."""
    return Score.of(rubrics.exact_match(answer, item.answers) == 1.0)


def by_f1(answer: str, item: Item) -> Score:
    """The F1 of words, see `tools.rubrics.f1`; the item is solved if the answer matches exactly."""
    passed = rubrics.exact_match(answer, item.answers) == 1.0
    return Score(rubrics.f1(answer, item.answers), passed, "" if passed else "wrong answer")


def by_pattern(answer: str, item: Item) -> Score:
    """1 if one of the item's answers, a regular expression, is found in the answer."""
    return Score.of(any(rubrics.matches(answer, pattern) for pattern in item.answers))


def by_schema(answer: str, item: Item) -> Score:
    """1 if the answer is JSON that fits the item's answer, a JSON schema."""
    return Score.of(any(rubrics.fits_schema(answer, schema) for schema in item.answers))


_BY_NAME: dict[str, Scorer] = {
    "exact_match": by_exact_match,
    "f1": by_f1,
    "matches": by_pattern,
    "fits_schema": by_schema,
}
_KNOWN = frozenset(_BY_NAME.values())


class ToolsOfItems(ToolEnv):
    """Gives the agent those of the tools that its item names; all of them where it names none."""

    def __init__(self, env: MultiAgentEnv, tools: ToolSource | Iterable[ToolSource], **options: Any) -> None:
        super().__init__(env, tools, **options)
        self._all_tools, self._all_specs = self._tools, self._specs

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Observations, Infos]:
        begun = super().reset(seed=seed, options=options)
        named = self.env.item.tools  # type: ignore[attr-defined]
        if unknown := sorted(set(named) - self._all_tools.keys()):
            raise ConfigError(
                f"{self.scenario}: the item {self.env.item.id!r} names the tool {unknown[0]!r}; "  # type: ignore[attr-defined]
                f"there are {', '.join(self._all_tools)}"
            )
        names = [name for name in self._all_tools if name in named or not named]
        self._tools = {name: self._all_tools[name] for name in names}
        self._specs = {name: self._all_specs[name] for name in names}
        return begun


def register_dataset(
    id: str,
    source: Source,
    *,
    reward: str | Reward | Scorer = "exact_match",
    columns: Mapping[str, str] | None = None,
    form: Callable[[Row], Row] | None = None,
    tools: ToolSource | Iterable[ToolSource] = (),
    description: str = "",
    **options: Any,
) -> None:
    r"""Register a data set as a scenario, with the scripted policies of `policies.py`.

        register_dataset("my:Sums-v0", "sums.jsonl")
        register_dataset("my:Trivia-v0", {"train": "a.parquet", "test": "b.parquet"}, reward="f1", tools=["calculator"])

    Rows have the columns `prompt` and `answer` (a text, a number or a list of answers that count alike), and may have
    `id` (else it is the number), `grade`, `split`, `images` (URLs, files or bytes) and `tools` (the names of those that
    this row allows). Every other column is in `Item.fields`.

    Args:
        id: `family:Name-vN`.
        source: a .jsonl, .json or .parquet file, a `datasets` object, rows as dicts, or a function that gives one of
            these; or a dict of these by split.
        reward: how answers are scored: "exact_match", "f1", "matches" (the answer is a pattern), "fits_schema" (it is
            a JSON schema), "math" (math-verify finds them equal); a `@reward` or the name of one,
            `path/to/file.py:name`, which finds the row at `context.env.unwrapped.item`; or a function of the answer
            and the `Item`, which may be asynchronous.
        columns: other names of columns, by ours: {"prompt": "question"}.
        form: turns a row into one with our columns.
        tools: what agents may call, as of `wrappers.ToolEnv`.
        description: one line for `marl-gem list`.
        options: other defaults for options of `DatasetEnv`, such as `answer_in`; `make` may override them.

    Raises:
        RegistryError: the id is taken, or has no family.
        ConfigError: there is no such column, reward or tool.

    `make` raises RecordError where the source cannot be read, with file, line and column.
    """
    columns = dict(columns or {})
    if unknown := columns.keys() - {*COLUMNS, "split"}:
        raise ConfigError(f"{id}: there is no column {min(unknown)!r} to name; there are {', '.join(COLUMNS)}, split")
    scorer, paid = _as_scorer(reward)
    data = Dataset(source, columns, form, needs_answer=isinstance(reward, str) and scorer is not None)
    factory = functools.partial(make_env, data, scorer, paid, tuple(load_tools(tools)) if tools else ())
    what = description or "Questions from a data set."
    register(id, factory, description=what, agents=1, turn_order="sequential", **options)
    register_question_policies(id)


def make_env(
    data: Dataset,
    scorer: Scorer | None,
    paid: Reward | None,
    tools: Sequence[ToolSource],
    split: str | None = None,
    task: int | str | None = None,
    answer_in: AnswerIn = "any",
    instructions: str | None = None,
    unanswered_reward: float = 0.0,
) -> MultiAgentEnv:
    """An env of a data set, within the wrappers for its tools and its reward; see `DatasetEnv` for the options."""
    env: MultiAgentEnv = DatasetEnv(
        data,
        scorer,
        split=split,
        waits=scorer is not None and scorer not in _KNOWN,
        task=task,
        answer_in=answer_in,
        instructions=instructions,
        unanswered_reward=unanswered_reward,
    )
    if tools:
        env = ToolsOfItems(env, tools)
    return env if paid is None else RewardEnv(env, paid, replace=True)


def _as_scorer(reward: Any) -> tuple[Scorer | None, Reward | None]:
    """A scorer of answers; or a reward of episodes, which is paid in the stead of the score."""
    if isinstance(reward, str):
        if reward in _BY_NAME:
            return _BY_NAME[reward], None
        if reward == "math":
            return find_object("marl_gem.scenarios.tasks.mathematics", "by_math_verify", reward), None
        module, colon, name = reward.rpartition(":")
        if not colon:
            raise ConfigError(f"there is no reward {reward!r}; there are {', '.join(_BY_NAME)}, math, and file.py:name")
        reward = load_reward(reward) if module in RUBRICS else find_object(module, name, reward)
    if isinstance(reward, Reward):
        return None, reward
    if not callable(reward):
        raise ConfigError(f"a reward is a name, a @reward or a function of answer and item, not {shown(reward)}")
    return reward, None
