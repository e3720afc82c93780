"""`DatabaseEnv`: an agent queries a database, and its state and the answer are judged."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.faults import shown
from marl_gem.scenarios.tasks.database.session import DatabaseSession
from marl_gem.scenarios.tasks.database.shop import TASKS, DatabaseTask, solved, start
from marl_gem.scenarios.tasks.question import SOLVER
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.tools.calls import BrokenCall, read_calls
from marl_gem.tools.context import Context, Leases
from marl_gem.tools.resources import Resource, ResourcePool, submit
from marl_gem.tools.rubrics import normalized
from marl_gem.tools.sandbox import Completed
from marl_gem.types import ContentPart, Metadata, Observation, Role, ToolCall, ToolSpec
from marl_gem.wrappers.parse import boxed, tagged

QUERY = ToolSpec(
    "query",
    "Run one statement of SQLite's SQL; changes stay.",
    {
        "type": "object",
        "properties": {"sql": {"type": "string"}},
        "required": ["sql"],
        "additionalProperties": False,
    },
)
INSTRUCTIONS = (
    "Do the task on the SQLite database, with the tool query. When it is done, answer without a call; where something "
    r"is asked, put the answer within \boxed{}."
)


class DatabaseEnv(MultiAgentEnv):
    """One agent, one task, a database that is restored for each episode.

    A response without a call ends the episode. The reward is 1 if all tables hold what they hold after the task's own
    solution, and the answer, where one is asked for, is right; else 0. `failure` is "wrong answer" or "wrong state".

    Args:
        task: the number or the id of a task; every episode has it. None: each episode draws its own.
        grade: only tasks of this grade: "easy", "medium" or "hard".
        max_queries: so many queries, then the episode is truncated and judged by the state alone.

    Raises:
        InvalidOption: a value is not allowed.
    """

    possible_agents = (SOLVER,)
    selector = SequentialSelector()
    blocking = True
    metadata = Metadata(turn_order="sequential", reward_range=(0.0, 1.0))

    def __init__(self, task: int | str | None = None, grade: str | None = None, max_queries: int = 30) -> None:
        self._tasks = tuple(each for each in TASKS if grade in (None, each.grade))
        if not self._tasks:
            raise InvalidOption(f"grade is easy, medium or hard, not {shown(grade)}")
        if isinstance(max_queries, bool) or max_queries < 1:
            raise InvalidOption(f"max_queries is a number from 1 up, not {shown(max_queries)}")
        self.max_queries = max_queries
        self._fixed_task = None if task is None else self._number(task)
        if task is None:
            self.tasks, self.grades = len(self._tasks), tuple(each.grade for each in self._tasks)
        self._leases = Leases()

    @property
    def task(self) -> DatabaseTask:
        """The task of this episode."""
        return self._tasks[self._task]

    def task_of(self, number: int) -> DatabaseTask:
        """The task with this number."""
        return self._tasks[number]

    def role(self, agent: str) -> Role:
        return Role(INSTRUCTIONS, (QUERY,))

    def observe(self, agent: str) -> Observation:
        return self._seen

    def release_resources(self) -> None:
        self._leases.release()

    def close(self) -> None:
        self._leases.release()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset({name: value for name, value in options.items() if name != "task"})
        chosen = options.get("task")
        number = self._fixed_task if chosen is None else self._number(chosen)
        self._task = self.rng.randrange(len(self._tasks)) if number is None else number
        self._leases.release()
        self._leases = Leases()
        self._queries = 0
        self._seen: Observation = self.task.instruction
        self._name_task()

    def _name_task(self) -> None:
        self.infos.setdefault(SOLVER, {}).update(task=self._task, item=self.task.id)

    def _process_action(self, agent: str, action: str) -> None:
        self._name_task()
        calls = read_calls(action).calls
        if not calls:
            self._judge(action)
            return
        parts: list[ContentPart] = []
        for call in calls:
            parts.append({"type": "tool_result", "name": "query", "text": self._answer(call)})
        self._seen = parts
        if self._queries >= self.max_queries:
            self._judge("", cut_off=True)

    def _answer(self, call: ToolCall | BrokenCall) -> str:
        if self._queries >= self.max_queries:
            return "Error: not run, there are no queries left"
        self._queries += 1
        text = call.arguments.get("sql") if isinstance(call, ToolCall) and call.name == "query" else None
        if not isinstance(text, str) or (isinstance(call, ToolCall) and len(call.arguments) != 1):
            self.infos[SOLVER]["illegal"] = "no call of query"
            return call.reason if isinstance(call, BrokenCall) else "Error: there is one tool, query, and it takes sql"
        completed: Completed = self._use(functools.partial(_query, text=text))
        if completed.ended != "exit":
            return f"Error: stopped ({completed.ended})" + ("; all changes are lost" if completed.state_lost else "")
        return completed.stdout.rstrip("\n") or f"Error: {completed.stderr[-300:]}"

    def _judge(self, response: str, cut_off: bool = False) -> None:
        state, answer = solved(self.task)
        tables = self._use(_tables) if self._queries else None
        same = (tables if tables is not None else solved(_NOTHING)[0]) == state
        right = not self.task.asks or normalized(_answer_in(response)) == normalized(answer)
        failure = "wrong state" if not same else "" if right else "wrong answer"
        self.rewards[SOLVER] = 0.0 if failure else 1.0
        (self.truncations if cut_off else self.terminations)[SOLVER] = True
        self.infos[SOLVER] |= {"success": not failure, "failure": failure}
        self._leases.release()

    def _use(self, use: Any) -> Any:
        context = Context(SOLVER, self.seed, None, self._leases)
        pool = ResourcePool.of(DatabaseSession)
        return submit(self._leases.use(SOLVER, {"session": pool}, use, context)).result()

    def _number(self, task: Any) -> int:
        ids = [each.id for each in self._tasks]
        if isinstance(task, str) and task in ids:
            return ids.index(task)
        if type(task) is not int or not 0 <= task < len(ids):
            raise InvalidOption(f"there are tasks from 0 to {len(ids) - 1}, or {', '.join(ids)}, not {shown(task)}")
        return task


_NOTHING = DatabaseTask("nothing", "", "", ())


def _answer_in(response: str) -> str:
    for parser in (boxed(), tagged("answer")):
        if (found := parser.find(response)) is not None:
            return found
    return response


async def _query(resources: Mapping[str, Resource], context: Context, text: str) -> Completed:
    session: Any = resources["session"]
    completed: Completed = await session.query(start(), text)
    return completed


async def _tables(resources: Mapping[str, Resource], context: Context) -> dict[str, Any]:
    session: Any = resources["session"]
    tables: dict[str, Any] = await session.tables(start())
    return tables
