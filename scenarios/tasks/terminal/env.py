"""`TerminalEnv`: an agent works in a confined shell, and tests judge what it leaves."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption
from marl_gem.faults import shown
from marl_gem.scenarios.tasks.question import SOLVER
from marl_gem.scenarios.tasks.terminal.environment import Start, build, plan_of
from marl_gem.scenarios.tasks.terminal.formats import FINISH, INSTRUCTIONS, SHELL, Broken, Command, Format, read
from marl_gem.scenarios.tasks.terminal.judge import Judged, judge
from marl_gem.scenarios.tasks.terminal.task import TASKS, TerminalTask, load_tasks
from marl_gem.selectors.sequential import SequentialSelector
from marl_gem.tools.context import Context, Leases
from marl_gem.tools.resources import Resource, ResourcePool, submit
from marl_gem.tools.result import cut
from marl_gem.tools.sandbox import Completed, File, Limits, ShellSession
from marl_gem.tools.sandbox.answer import answer
from marl_gem.types import ContentPart, Metadata, Observation, Role

LEAST_SECONDS, MOST_SECONDS = 5.0, 600.0
"""The least and the most that an agent may ask for a command; with less, a busy machine would decide what it sees."""


class TerminalEnv(MultiAgentEnv):
    """One agent, one task, a shell that keeps its state; tests judge the files that are left.

    The tests run when the agent finishes, and when it has no commands left. The last info has `success`, `failure`, and
    `tests_output`, the end of what the tests printed. The shell is a sandbox of the episode's own: see `judge.py` for
    how the tests are kept apart from it.

    Args:
        folder: a task's folder in Harbor's form, or a folder of tasks; by default those of our own.
        task: the number or the id of a task; every episode has it. None: each episode draws its own.
        grade: only tasks of this grade.
        actions: the format of commands, see `formats.py`.
        max_commands: so many commands, then the tests run.
        max_failures: so many commands in a row that fail end the episode with 0, as in GEM (5); None: any number.
        timeout: the seconds of a command for which the agent names no other.
        max_output: so many characters of what a command prints are shown.
        size: the most shells at the same time in this process.

    Raises:
        InvalidOption: a value is not allowed, or a task needs a command that is not installed.
        RecordError: a task cannot be read, or needs an image of its own.
    """

    possible_agents = (SOLVER,)
    selector = SequentialSelector()
    blocking = True

    def __init__(
        self,
        folder: str | None = None,
        task: int | str | None = None,
        grade: str | None = None,
        actions: Format = "calls",
        max_commands: int = 30,
        max_failures: int | None = None,
        timeout: float = 10.0,
        max_output: int = 8000,
        size: int = 64,
    ) -> None:
        if actions not in get_args(Format):
            raise InvalidOption(f"actions is one of {', '.join(get_args(Format))}, not {shown(actions)}")
        numbers = {"max_commands": max_commands, "timeout": timeout, "max_output": max_output, "size": size}
        for name, value in {**numbers, "max_failures": 1 if max_failures is None else max_failures}.items():
            if isinstance(value, bool) or not 0 < value < 1e9:
                raise InvalidOption(f"{name} is a positive number, not {shown(value)}")
        loaded = load_tasks(TASKS if folder is None else Path(folder).resolve())
        self._tasks = tuple(each for each in loaded if grade in (None, each.grade))
        if not self._tasks:
            raise InvalidOption(f"there are no tasks of the grade {shown(grade)}")
        for each in self._tasks:
            plan_of(each)
        self.actions, self.max_commands, self.max_failures = actions, max_commands, max_failures
        self.timeout, self.max_output, self._size = timeout, max_output, size
        self._fixed_task = None if task is None else self._number(task)
        if task is None:
            self.tasks = len(self._tasks)
            grades = [each.grade for each in self._tasks]
            self.grades = tuple(grades) if all(grades) else ()
        self.metadata = Metadata(turn_order="sequential", reward_range=(0.0, 1.0) if folder is None else None)
        self._leases = Leases()

    @property
    def task(self) -> TerminalTask:
        """The task of this episode."""
        return self._tasks[self._task]

    def task_of(self, number: int) -> TerminalTask:
        """The task with this number."""
        return self._tasks[number]

    def role(self, agent: str) -> Role:
        return Role(INSTRUCTIONS[self.actions], (SHELL, FINISH) if self.actions == "calls" else ())

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
        if missing := self.task.missing:
            raise InvalidOption(f"the task {self.task.id!r} needs {missing[0]!r}, which is not installed here")
        self._leases.release()
        self._leases = Leases()
        self._commands = self._failures = 0
        self._ran = False
        self._seen: Observation = self.task.instruction
        self._name_task()

    def _name_task(self) -> None:
        self.infos.setdefault(SOLVER, {}).update(task=self._task, item=self.task.id)

    def _process_action(self, agent: str, action: str) -> None:
        self._name_task()
        steps, finished = read(action, self.actions)
        results: list[tuple[str, str]] = []
        for step in steps:
            if self._commands >= self.max_commands:
                results.append(("shell", "Error: not run, there are no commands left"))
                continue
            self._commands += 1
            results.append(self._run(step))
            self._failures = self._failures + 1 if results[-1][1].startswith("Error") or self._failed else 0
            if self.max_failures is not None and self._failures >= self.max_failures:
                self._see(results)
                self._end(0.0, f"{self._failures} commands failed in a row", "")
                return
        self._see(results)
        if finished or self._commands >= self.max_commands:
            judged = judge(self.task, self._start, self._files()) if self._ran else _judged_start(self.task)
            self._end(judged.reward, judged.reason, judged.output, cut_off=not finished)

    def _run(self, step: Command | Broken) -> tuple[str, str]:
        """Run a command; the name of the tool, and what the agent is shown."""
        self._failed = True
        if isinstance(step, Broken):
            self.infos[SOLVER]["illegal"] = step.reason
            return step.name, f"Error: {step.reason}"
        seconds = self.timeout if step.seconds is None else min(max(step.seconds, LEAST_SECONDS), MOST_SECONDS)
        self._ran = True
        use = functools.partial(_run_command, start=self._start, command=step.text, seconds=seconds)
        completed: Completed = self._use(use)
        self._failed = completed.ended != "exit" or completed.exit_code != 0
        limits = Limits(wall=seconds, memory=self.task.limits.memory, output=self.task.limits.output)
        text = answer(completed, limits, "the folder, variables and processes of the shell")
        return "shell", cut(text, self.max_output)

    def _see(self, results: list[tuple[str, str]]) -> None:
        left = self.max_commands - self._commands
        if results and left <= 3:
            name, text = results[-1]
            results[-1] = name, f"{text}\n[{left} commands left]"
        if self.actions == "calls":
            parts: list[ContentPart] = [{"type": "tool_result", "name": name, "text": text} for name, text in results]
            self._seen = parts or ""
        else:
            self._seen = "\n\n".join(text for _, text in results)

    def _end(self, reward: float, reason: str, output: str, cut_off: bool = False) -> None:
        self.rewards[SOLVER] = reward
        (self.truncations if cut_off else self.terminations)[SOLVER] = True
        self.infos[SOLVER] |= {"success": not reason, "failure": reason, "tests_output": output}
        self._leases.release()

    # The shell

    @property
    def _start(self) -> Start:
        return build(self.task)

    def _files(self) -> dict[str, File]:
        files: dict[str, File] = self._use(functools.partial(_read_files, start=self._start))
        return files

    def _use(self, use: Any) -> Any:
        """Do something with the shell of this episode, which is started when it is first needed."""
        pool = _pool(self.task.limits, self._start.folders, self._size)
        context = Context(SOLVER, self.seed, None, self._leases)
        return submit(self._leases.use(SOLVER, {"session": pool}, use, context)).result()

    def _number(self, task: Any) -> int:
        ids = [each.id for each in self._tasks]
        if isinstance(task, str) and task in ids:
            return ids.index(task)
        if type(task) is not int or not 0 <= task < len(ids):
            raise InvalidOption(f"there are tasks from 0 to {len(ids) - 1}, or {', '.join(ids)}, not {shown(task)}")
        return task


@functools.lru_cache(maxsize=256)
def _judged_start(task: TerminalTask) -> Judged:
    """What the tests of a task give when nothing was done."""
    start = build(task)
    return judge(task, start, start.files)


class TaskShell(ShellSession):
    """A shell that has been given the files of a task, or not yet."""

    prepared = False

    async def prepare(self, start: Start) -> None:
        """Write the files of a task, and go to its folder; once in an episode."""
        if not self.prepared:
            await self.write_files(start.files)
            await self.run(start.prelude)
            self.prepared = True

    async def stop(self) -> None:
        self.prepared = False
        await super().stop()


@functools.lru_cache(maxsize=64)
def _pool(limits: Limits, folders: tuple[str, ...], size: int) -> ResourcePool[TaskShell]:
    """The shells of tasks with these limits and folders."""
    return ResourcePool(functools.partial(TaskShell, limits, folders=folders), size, name="terminal")


async def _run_command(
    resources: Mapping[str, Resource], context: Context, start: Start, command: str, seconds: float
) -> Completed:
    session: Any = resources["session"]
    await session.prepare(start)
    completed: Completed = await session.run(command, seconds)
    if completed.state_lost:
        await session.run(start.prelude)
    return completed


async def _read_files(resources: Mapping[str, Resource], context: Context, start: Start) -> dict[str, File]:
    session: Any = resources["session"]
    await session.prepare(start)
    files: dict[str, File] = await session.read_files([*start.folders, "/tmp"])
    return files
