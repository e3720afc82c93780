"""The tests of a task: in a fresh sandbox, on the files that the agent has left, from a folder that is read-only there.

No process of the agent's is left then, and none of its variables; HOME is another folder, and Python reads nothing of
the user's or of the working folder, so that a file such as json.py or usercustomize.py does not run in the tests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple

from marl_gem.scenarios.tasks.terminal.environment import Start
from marl_gem.scenarios.tasks.terminal.task import TerminalTask
from marl_gem.tools.sandbox import Completed, File, Sandbox

LOGS = "/logs"
_SETTINGS = (
    f"export HOME={LOGS} PYTHONNOUSERSITE=1 PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 GIT_CONFIG_GLOBAL=/dev/null"
)


class Judged(NamedTuple):
    """What the tests gave: the reward, why it is not 1, and the end of what they printed."""

    reward: float
    reason: str
    output: str


def judge(task: TerminalTask, start: Start, files: Mapping[str, File]) -> Judged:
    """Run the tests of a task.

    Args:
        task: the task.
        start: what its shell began with.
        files: what its folders hold now.

    Raises:
        SandboxError: the tests could not be run; this says nothing about what the agent did.
    """
    sandbox = Sandbox(task.limits, folders=(*start.folders, LOGS), mounts={"/tests": task.folder / "tests"})
    with sandbox.start() as started:
        started.write_files({**files, f"{LOGS}/verifier": File(mode=0o755, kind="folder")})
        command = f"{start.prelude}\n{_SETTINGS}\nexec /bin/bash /tests/test.sh"
        completed = started.run(["/bin/bash", "-c", command], wall=task.seconds)
        logs = started.read_files([f"{LOGS}/verifier"])
    output = (completed.stdout + completed.stderr)[-2000:]
    reward, reason = _reward(task, completed, logs)
    return Judged(reward, reason, output)


def _reward(task: TerminalTask, completed: Completed, logs: Mapping[str, File]) -> tuple[float, str]:
    if completed.ended != "exit":
        return 0.0, f"tests: {completed.ended}"
    if task.exit_code and completed.exit_code != 0:
        return 0.0, "tests failed"
    for name in ("reward.txt", "reward.json"):
        file = logs.get(f"{LOGS}/verifier/{name}")
        if file is not None and file.kind == "file":
            reward = _number(file.data.decode("utf-8", "replace"))
            if reward is None:
                return 0.0, f"{name} has no number"
            return reward, "" if reward >= 1.0 else "tests failed"
    return 0.0, "tests gave no reward"


def _number(text: str) -> float | None:
    """The reward in a text: a number, or an object with "reward", or with a single number."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            value = value["reward"] if "reward" in value or len(value) != 1 else next(iter(value.values()))
        number = float(value)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return number if math.isfinite(number) else None
