"""What became of a snippet or a command, as a model reads it."""

from __future__ import annotations

from marl_gem.tools.sandbox.limits import MIB, Completed, Limits


def answer(completed: Completed, limits: Limits, lost: str) -> str:
    """Standard output, then standard error, then in brackets what is not in them.

    Args:
        completed: what became of it.
        limits: those that held.
        lost: what is gone when a session had to start anew, such as "all variables".
    """
    notes = {
        "exit": f"exit code {completed.exit_code}" if completed.exit_code else "",
        "timeout": f"stopped: it took longer than {limits.wall:g} s",
        "memory": f"stopped: it used more than {limits.memory / MIB:g} MiB of memory",
        "output": f"stopped: it wrote more than {limits.output:,} bytes",
        "killed": f"ended by signal {-completed.exit_code}",
    }
    note = notes[completed.ended]
    if completed.state_lost:
        note = f"{note}; {lost} are lost" if note else f"{lost} are lost"
    parts = [completed.stdout, completed.stderr, f"[{note}]" if note else ""]
    return "\n".join(part.rstrip("\n") for part in parts if part) or "[no output]"
