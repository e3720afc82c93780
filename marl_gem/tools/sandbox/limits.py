"""What a program in a sandbox may use, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

MIB = 1024 * 1024

Ended = Literal["exit", "timeout", "memory", "killed", "output"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sandbox. All of them hold at once; what exceeds one is ended, and the sandbox goes on.

    Raises:
        ValueError: a limit is not a positive number.
    """

    # Seconds by the clock, for a run, a snippet or a command.
    wall: float = 10.0
    # Seconds of CPU time, for each process.
    cpu: float = 10.0
    # Bytes of memory: the address space of each process, and what all processes have in use together.
    memory: int = 512 * MIB
    # How many processes and threads there may be at a time.
    processes: int = 32
    # Bytes that fit into the writable folder /tmp, which is also the bound of each file.
    disk: int = 64 * MIB
    # How many files may lie in the writable folder.
    files: int = 10_000
    # Bytes of standard output and standard error together, for a run, a snippet or a command.
    output: int = MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise ValueError(f"the limit {field.name} must be a positive number, not {value!r}")


class Completed(NamedTuple):
    """What became of a run, a snippet or a command.

    `stdout` and `stderr` hold what was written up to the limit, with bytes that are no UTF-8 replaced. `exit_code` is
    that of the process, or minus the number of the signal that ended it; of a snippet 0, or 1 after an exception.
    `ended` says why it is over:

    - "exit": by itself, well or not: see `exit_code`.
    - "timeout": more than `wall` seconds, or more than `cpu` seconds in a process.
    - "memory": more than `memory`, or a MemoryError that nobody caught; also too many files.
    - "output": more than `output`.
    - "killed": by a signal that is not the sandbox's.

    `state_lost` says that a session had to be started anew, so that variables and processes are gone.
    """

    stdout: str
    stderr: str
    exit_code: int
    ended: Ended
    state_lost: bool = False
