"""How a command ends: the exit codes, and streams that are closed, full or cut off.

0     done
1     what was asked for makes sense, and could not be done, or not all of it
2     the command line, or a file or folder that it names, cannot be used as it stands
130   interrupted by Ctrl-C
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from marl_gem.cli.terminal import err, show_error
from marl_gem.errors import EnvError, LLMError, MarlGemError, TrainingError


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CommandFailed(MarlGemError):
    """What a command was asked for makes sense, and went wrong on the way."""


_FAILURES = (CommandFailed, EnvError, LLMError, TrainingError)
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors of the machine: no other command line would avoid them."""
LONGEST = 4000
"""So many characters of an error's message are shown."""


def run(command: Callable[[], object]) -> int:
    """Call a command, show the error that it ends with, and give its exit code.

    Only a bug gets through, as the exception that it is.
    """
    _open_closed_streams()
    code = _run(command)
    return code if all([_flush("stdout"), _flush("stderr")]) else code or ExitCode.FAILED


def _run(command: Callable[[], object]) -> int:
    try:
        command()
        return ExitCode.DONE
    except SystemExit as ended:
        if by := _foreign_exit(ended):
            return _show(f"{by} ended the program; nothing more was done", ExitCode.FAILED)
        return ended.code if isinstance(ended.code, int) else ExitCode.FAILED if ended.code else ExitCode.DONE
    except MarlGemError as error:
        failed = isinstance(error, _FAILURES) or getattr(error.__cause__, "errno", None) in _MACHINE
        return _show(str(error), ExitCode.FAILED if failed else ExitCode.USAGE)
    except OSError as error:
        reason = error.strerror or str(error)
        where = "cannot write the output" if error.filename is None and error.errno in _MACHINE else error.filename
        failed = error.filename is None or error.errno in _MACHINE
        return _show(f"{where}: {reason}" if where else reason, ExitCode.FAILED if failed else ExitCode.USAGE)
    except MemoryError:
        return _show("there is not enough memory; ask for less at once", ExitCode.FAILED)
    except KeyboardInterrupt:
        _quietly(lambda: err.print("stopped"))
        return ExitCode.INTERRUPTED


def _foreign_exit(ended: SystemExit) -> str:
    """Where a scenario's or a policy's code ended the program, which is never "done"; empty if a command did."""
    for frame, line in reversed([*traceback.walk_tb(ended.__traceback__)]):
        name = str(frame.f_globals.get("__name__", ""))
        if name != "_sitebuiltins":  # exit() and quit()
            by_command = name.startswith(("marl_gem.cli", "click", "typer", "rich.console"))  # rich: nobody reads on
            return "" if by_command else f"{frame.f_code.co_filename}, line {line},"
    return ""


def _show(message: str, code: int) -> int:
    cut = message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
    _quietly(lambda: show_error(cut))
    return code


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except OSError:  # nobody can read it
        _flush("stderr")


def _open_closed_streams() -> None:
    """What a closed stream is given is lost, and no file that is opened later takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the process ends


def _flush(name: str) -> bool:
    """Write out a stream; one that cannot be written is silenced, so that Python can end."""
    stream = getattr(sys, name)
    try:
        stream.flush()
        return True
    except (OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, {"stdout": 1, "stderr": 2}[name])
        os.close(null)
        return False
