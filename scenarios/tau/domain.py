"""A domain: its data, its policy, its tools and its tasks. A folder, and a module of tools.

    data/*.json       one table per file: {"id": {...}, ...}
    policy.md         the assistant's instructions
    tasks_*.json      one split per file: [{"user_id", "instruction", "actions": [{"name", "kwargs"}], "outputs"}, ...];
                      a task may have "data", {"table": {"id": {...}}}: records that are added when its episodes begin
    user.md           optional: the customer's instructions with {instruction} and {stop}
    user_official.md  optional: those of the official user simulator, used with the option official=true
    tools.json        optional: the tool schemas and their order; otherwise those of the module

The module has `TOOLS`, the assistant's tools, and may have `TERMINATING`, the names of tools that end an episode,
`TABLES`, the tables that must not be missing or empty, and `USER_TOOLS`, tools of the customer, for instance on its
telephone. In a user's domain the module is the folder's tools.py; see `folder.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from marl_gem.errors import RecordError
from marl_gem.scenarios.tau.database import Database, Record, Session, copy_json
from marl_gem.scenarios.tau.tool import Outcome, Tool, call
from marl_gem.types import ToolCall, ToolSpec, read_json

OFFICIAL_USER_PROMPT = "user_official.md"
"""The file with the official user simulator's prompt, written by an import."""

USER_ROLE = """\
You are a customer who writes to a company's support desk. What you want, and all you know:

{instruction}

- Write one short message at a time, as a customer would, in your own words.
- Tell only what the conversation needs next; do not give everything away at once.
- Say nothing that is not in the text above. If you are asked for something that is not, say that you do not know it.
- Stay with what you want until it is settled. When it is, or cannot be, answer with {stop} and nothing else.
"""

CORRECTIONS = {
    "retail": (
        "Cancelling an order refunds what was paid less what was refunded before, by payment method, not every entry.",
        "Differences in price are rounded to cents.",
        "Changing, exchanging or returning no items at all is refused.",
    ),
    "airline": (
        "Looking up a reservation that does not exist says so, not that a user is missing.",
        "Changing the cabin is written down.",
        "Connections over midnight are found on the right day, with the second day's seats and prices.",
        "A cancelled reservation cannot be cancelled or changed again.",
        "Certificates and new reservations never run out of ids.",
    ),
}
"""What a `corrected` domain changes in the tools, by official domain; everything else stays official."""


class Task(msgspec.Struct, frozen=True):
    """One task: the customer's instruction, and what the assistant must do and say."""

    # The customer's id in the data.
    user_id: str

    # What the customer wants and knows; a part of its system prompt.
    instruction: str

    # The reference calls: the data after them is the goal.
    actions: tuple[ToolCall, ...] = ()

    # Texts that the assistant must say to the customer.
    outputs: tuple[str, ...] = ()

    # A label of the kind of task, for reports.
    grade: str = ""

    # Records by table and key that are added to the domain's, or replace them, when an episode of this task begins.
    data: dict[str, dict[str, Record]] = {}


class Verdict(NamedTuple):
    """The official reward, 0 or 1, with the records (table, key) that differ and the outputs that were not said."""

    reward: float
    differences: list[tuple[str, str]]
    missing: list[str]


@dataclass(eq=False)
class Domain:
    """What all episodes of a domain share; never changed."""

    name: str

    # The official domain whose error texts the tools use.
    official: str

    # The assistant's instructions.
    policy: str

    # The assistant's tools by name.
    tools: Mapping[str, Tool]

    # The names of tools that end an episode.
    terminating: frozenset[str]

    database: Database

    # The tasks by split.
    splits: Mapping[str, Sequence[Task]]

    # Whether the tools do what `CORRECTIONS` lists instead of the official behaviour.
    corrected: bool = False

    # The customer's tools by name.
    user_tools: Mapping[str, Tool] = field(default_factory=dict)

    # The customer's instructions, with {instruction} and {stop}.
    user_role: str = USER_ROLE

    # The official user simulator's prompt, with {instruction} and {stop}; empty if it is not known.
    official_user_role: str = ""

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The schemas of the assistant's tools."""
        return tuple(tool.spec for tool in self.tools.values())

    @cached_property
    def user_specs(self) -> tuple[ToolSpec, ...]:
        """The schemas of the customer's tools."""
        return tuple(tool.spec for tool in self.user_tools.values())

    def __deepcopy__(self, memo: dict[int, Any]) -> Domain:
        return self  # it never changes, so forked envs share it

    def session(self, task: Task | None = None) -> Session:
        """Fresh data for one episode, with the task's own records."""
        session = self.database.session(self.corrected)
        for table, records in task.data.items() if task else ():
            for key, record in records.items():
                session[table].add(key, copy_json(record))
        return session

    def call(self, session: Session, name: str, arguments: Mapping[str, Any], *, by_user: bool = False) -> Outcome:
        """Call one of the assistant's tools, or with `by_user` one of the customer's. Never raises."""
        return call(self.user_tools if by_user else self.tools, session, name, arguments, self.official)

    def hands_over(self, task: Task) -> bool:
        """Whether a task's reference calls end the episode with a transfer to a human."""
        return any(action.name in self.terminating for action in task.actions)

    def goal(self, split: str, index: int) -> Session:
        """The data after a task's reference calls, without those that end an episode; cached, so do not change it."""
        return self._goals(split, index)  # type: ignore[no-any-return]

    @cached_property
    def _goals(self) -> Any:
        def goal(split: str, index: int) -> Session:
            task = self.splits[split][index]
            session = self.session(task)
            for action in task.actions:
                if action.name not in self.terminating:
                    self.call(session, action.name, action.arguments, by_user=action.name not in self.tools)
            return session

        return lru_cache(None)(goal)

    def judge(self, split: str, index: int, session: Session, messages: Sequence[str]) -> Verdict:
        """The official reward: 1 if the data equals the goal and every output was said, else 0.

        Args:
            split, index: the task.
            session: the episode's data at its end.
            messages: the assistant's messages to the customer. An output was said if one of them contains it; case
                and commas of the message are ignored.
        """
        differences = session.differences(self.goal(split, index))
        heard = [message.lower().replace(",", "") for message in messages]
        outputs = self.splits[split][index].outputs
        missing = [output for output in outputs if not any(output.lower() in message for message in heard)]
        return Verdict(0.0 if differences or missing else 1.0, differences, missing)

    def trivial_baselines(self, split: str, *, strict: bool = False) -> dict[str, tuple[float, ...]]:
        """The rewards of trivial policies by task; see `MultiAgentEnv.trivial_baselines`.

        "noop" makes no calls and says all outputs. "transfer" transfers to a human at once. "gold-without-words" makes
        the reference calls and says no outputs. "gold" makes the reference calls and says all outputs: no trivial
        baseline but the best possible reward, 1 if the task can be solved. No limit on actions applies.

        Args:
            split: the split.
            strict: the option transfer="strict" of `TauEnv`.
        """
        return dict(self._baselines(split, strict))

    @cached_property
    def _baselines(self) -> Any:
        return lru_cache(None)(self._play_baselines)

    def _play_baselines(self, split: str, strict: bool) -> dict[str, tuple[float, ...]]:
        rewards: dict[str, list[float]] = {"noop": [], "transfer": [], "gold-without-words": [], "gold": []}
        for index, task in enumerate(self.splits[split]):
            fresh, goal = self.session(task), self.goal(split, index)
            may_hand_over = self.hands_over(task) or not strict
            rewards["noop"].append(self.judge(split, index, fresh, task.outputs).reward)
            rewards["transfer"].append(self.judge(split, index, fresh, ()).reward if may_hand_over else 0.0)
            rewards["gold-without-words"].append(self.judge(split, index, goal, ()).reward)
            rewards["gold"].append(self.judge(split, index, goal, task.outputs).reward)
        return {name: tuple(values) for name, values in rewards.items()}


def load_domain(folder: Path, tools: ModuleType, *, name: str, official: str) -> Domain:
    """Read a domain's folder.

    Args:
        folder: in the layout at the top of this file.
        tools: the module with `TOOLS`.
        name: the domain's name.
        official: the official domain whose error texts the tools use.

    Raises:
        RecordError: a file is missing or has the wrong content; the message names it.
    """
    tables = {file.stem: _read_table(file) for file in sorted((folder / "data").glob("*.json"))}
    splits = {file.stem.removeprefix("tasks_"): _read_tasks(file) for file in sorted(folder.glob("tasks_*.json"))}
    if not tables or not splits or not all(splits.values()):
        raise RecordError(f"{folder} is no domain: it needs data/*.json, and tasks_*.json with at least one task each")
    if lacking := [name for name in getattr(tools, "TABLES", ()) if not tables.get(name)]:
        raise RecordError(f"{folder} lacks records in {', '.join(f'data/{name}.json' for name in lacking)}")
    offered = {tool.name: tool for tool in tools.TOOLS}
    if (file := folder / "tools.json").exists():
        offered = {spec.name: _with_schema(offered, spec, file) for spec in _read_specs(file)}
    return Domain(
        name=name,
        official=official,
        policy=_text(folder / "policy.md"),
        tools=offered,
        terminating=frozenset(getattr(tools, "TERMINATING", ())),
        database=Database(tables),
        splits=splits,
        user_tools={tool.name: tool for tool in getattr(tools, "USER_TOOLS", ())},
        user_role=_read_user_role(folder / "user.md") or USER_ROLE,
        official_user_role=_read_user_role(folder / OFFICIAL_USER_PROMPT),
    )


def _with_schema(tools: Mapping[str, Tool], spec: ToolSpec, file: Path) -> Tool:
    if spec.name not in tools:
        raise RecordError(f"{file} offers {spec.name!r}, which is no tool of this domain")
    return Tool(spec, tools[spec.name].function, tools[spec.name].parameters)


def _read_specs(file: Path) -> list[ToolSpec]:
    listed = _read(file)
    if not isinstance(listed, list) or not listed:
        raise RecordError(f"{file} does not hold tools: it is no list of them")
    try:
        return [
            ToolSpec(schema["name"], schema["description"], schema["parameters"])
            for schema in (entry.get("function", entry) for entry in listed)
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file} does not hold tools: {error!r}") from error


def _read_table(file: Path) -> dict[str, Record]:
    table = _read(file)
    if not isinstance(table, dict) or not all(isinstance(record, dict) for record in table.values()):
        raise RecordError(f'{file} holds no table; write it as {{"id": {{...}}, ...}}')
    return table


def _read_tasks(file: Path) -> tuple[Task, ...]:
    listed, tasks = _read(file), []
    if not isinstance(listed, list):
        raise RecordError(f"{file} does not hold tasks: it is no list")
    for number, written in enumerate(listed):
        try:
            tasks.append(_task(written))
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise RecordError(f"{file} does not hold tasks: {error!r} in task {number}") from error
    return tuple(tasks)


def _task(written: Any) -> Task:
    """A task from its JSON; raises where a field is missing or has the wrong type."""
    task = {
        "user_id": written["user_id"],
        "instruction": written["instruction"],
        "actions": [{"name": action["name"], "arguments": action["kwargs"]} for action in written["actions"]],
        "outputs": written["outputs"],
        "grade": written.get("grade", ""),
        "data": written.get("data", {}),
    }
    return msgspec.convert(task, Task)


def _read_user_role(file: Path) -> str:
    """The customer's instructions; empty if there is no such file."""
    if not file.exists():
        return ""
    text = _text(file)
    for placeholder in ("{instruction}", "{stop}"):
        if placeholder not in text:
            raise RecordError(f"{file} lacks {placeholder}: without it the customer knows nothing of it")
    return text


def _read(file: Path) -> Any:
    try:
        return read_json(_text(file))
    except ValueError as error:
        raise RecordError(f"{file} is not JSON: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{file} cannot be read: {error}") from error
