"""The tool `python`: code in a sandbox, with or without what earlier calls left."""

from __future__ import annotations

from functools import partial

from marl_gem.tools.functions import FunctionTool, tool
from marl_gem.tools.names import makes_tools
from marl_gem.tools.resources import ResourcePool
from marl_gem.tools.sandbox import Limits, PythonSession
from marl_gem.tools.sandbox.answer import answer
from marl_gem.tools.sandbox.connection import Backend
from marl_gem.tools.sandbox.limits import MIB


@makes_tools
def python(
    timeout: float = 10.0,
    memory: int = 512,
    fresh: bool = False,
    size: int = 64,
    packages: str = "",
    backend: Backend = "bubblewrap",
) -> FunctionTool:
    """Make the tool `python`, which runs code in a sandbox.

    Args:
        timeout: the seconds that a call may take.
        memory: the MiB of memory that the code may use.
        fresh: True starts each call from nothing; otherwise each agent keeps its variables to the end of the episode.
        size: the most sandboxes at the same time. An agent that needs another waits, up to a minute.
        packages: folders with packages that the code may import, with colons between them.
        backend: "bubblewrap", or "unsafe" to run code with this user's rights.

    Raises:
        SandboxUnavailable: this machine cannot confine programs.
        ValueError: a limit is not a positive number, or a folder is missing.
    """
    limits = Limits(wall=timeout, cpu=timeout, memory=int(memory * MIB), output=MIB // 4)
    make = partial(PythonSession, limits, backend, [path for path in packages.split(":") if path])
    make()  # so that a machine that cannot is refused now
    pool = ResourcePool(make, size, name="python")
    description = "Run Python code. What it prints, and the value of a last expression, is the answer."
    description += " Each call starts from nothing." if fresh else " Variables stay for later calls."

    @tool(
        name="python",
        description=description,
        timeout=None,  # the sandbox has its own
        resources={"session": pool},
        scope="call" if fresh else "agent",
    )
    async def run(code: str, session: PythonSession) -> str:
        """Run code.

        Args:
            code: Python code.
        """
        completed = await session.run(code)
        if completed.ended == "exit" and completed.exit_code == 1 and not completed.state_lost:
            completed = completed._replace(exit_code=0)  # an exception: the traceback says so
        return answer(completed, limits, "all variables")

    return run
