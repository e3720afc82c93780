"""The tool `shell`: commands in a sandbox, in a bash that keeps its folder, files and variables."""

from __future__ import annotations

from functools import partial

from marl_gem.tools.functions import FunctionTool, tool
from marl_gem.tools.names import makes_tools
from marl_gem.tools.resources import ResourcePool
from marl_gem.tools.sandbox import Limits, ShellSession
from marl_gem.tools.sandbox.answer import answer
from marl_gem.tools.sandbox.connection import Backend
from marl_gem.tools.sandbox.limits import MIB


@makes_tools
def shell(
    timeout: float = 10.0,
    memory: int = 512,
    fresh: bool = False,
    size: int = 64,
    backend: Backend = "bubblewrap",
) -> FunctionTool:
    """Make the tool `shell`, which runs commands of bash in a sandbox.

    Args:
        timeout: the seconds that a command may take.
        memory: the MiB of memory that its processes may use together.
        fresh: True starts each call from nothing; otherwise each agent keeps its shell to the end of the episode.
        size: the most sandboxes at the same time. An agent that needs another waits, up to a minute.
        backend: "bubblewrap", or "unsafe" to run commands with this user's rights.

    Raises:
        SandboxUnavailable: this machine cannot confine programs.
        ValueError: a limit is not a positive number.
    """
    limits = Limits(wall=timeout, cpu=timeout, memory=int(memory * MIB), output=MIB // 4)
    make = partial(ShellSession, limits, backend)
    make()  # so that a machine that cannot is refused now
    pool = ResourcePool(make, size, name="shell")
    description = "Run a command of bash. What it prints is the answer."
    description += " Each call starts from nothing." if fresh else " Folder, files and variables stay for later calls."

    @tool(
        name="shell",
        description=description,
        timeout=None,  # the sandbox has its own
        resources={"session": pool},
        scope="call" if fresh else "agent",
    )
    async def run(command: str, session: ShellSession) -> str:
        """Run a command.

        Args:
            command: One or several lines of bash.
        """
        return answer(await session.run(command), limits, "the folder, variables and processes of the shell")

    return run
