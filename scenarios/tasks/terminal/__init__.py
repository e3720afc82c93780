"""Tasks in a terminal, as `terminal:<Name>-v0`: commands in a persistent confined shell, judged by tests afterwards.

env.py          `TerminalEnv`
task.py         a task's folder, in Harbor's form
environment.py  what a task's shell begins with: COPY, WORKDIR, ENV and RUN of a Dockerfile, or setup.sh
judge.py        the tests, in a fresh sandbox
formats.py      commands in responses
policies.py     scripted policies: the solution, and doing nothing
tasks/          tasks of our own
"""

from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tasks.requirements import missing

register(
    "terminal:Tasks-v0",
    "marl_gem.scenarios.tasks.terminal.env:TerminalEnv",
    description="20 tasks in a shell of three grades: git, text, csv, make, sqlite, Python, permissions, archives; or "
    "those of a folder in Harbor's form, folder=...",
    unavailable=missing(),
    turn_order="sequential",
)
for _script, _what in {
    "solution": "Runs the task's solution, and finishes.",
    "noop": "Trivial baseline: finishes at once.",
}.items():
    register_policy(
        "terminal", _script, "marl_gem.scenarios.tasks.terminal.policies:policy", description=_what, script=_script
    )
