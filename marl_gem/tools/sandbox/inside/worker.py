"""A process that runs a program inside a sandbox: how it gives up its rights, and the loops of sessions.

See guard.py for where this runs.
"""

# ruff: noqa: PTH123

from __future__ import annotations

import os
import resource
import sys
from _signal import SIG_DFL, SIG_IGN, SIGINT, SIGPIPE, default_int_handler, signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMANDS, DONE, CHANNEL = 200, 201, 202
"""File descriptors in a worker: requests of a session, its answers, and the channel to another sandbox."""

SHELL = """
while IFS= read -r -d "" -u 200 command; do
    eval "$command" </dev/null 200<&- 201>&-
    printf "%d\\n" "$?" >&201
done
"""


def become_worker(files: dict[str, int], settings: dict[str, Any]) -> None:
    """Give up rights, limit this process, and keep no file but those it is to have.

    Args:
        files: by name, what is to be standard input, output and error, and the pipes of a session.
        settings: as `guard.main` has them.
    """
    channel, user, limits = settings["channel"], settings["user"], settings["limits"]
    os.setsid()
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2), ("commands", COMMANDS), ("done", DONE)):
        if name in files:
            os.dup2(files[name], number)
    kept = [number for number in (COMMANDS, DONE) if "done" in files]
    if channel is not None:
        os.dup2(channel, CHANNEL)
        kept.append(CHANNEL)
    first = 3
    for number in kept:
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, 4096)
    if settings["namespace"]:
        set_dumpable(1)  # or the files of /proc/self are root's
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    bounds = {"AS": "memory", "FSIZE": "disk", "NPROC": "tasks"}
    values = {name: limits[limit] for name, limit in bounds.items() if limits[limit]}
    for name, value in {**values, "NOFILE": 256, "CORE": 0, "MSGQUEUE": 0}.items():
        limit_to(getattr(resource, f"RLIMIT_{name}"), value)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if settings["namespace"]:
        if 0 in os.getresuid():
            os._exit(126)  # a root user's processes are not counted
        drop_rights()
        set_dumpable(1)  # a change of users takes it away
    os.umask(0o022)
    signal(SIGINT, default_int_handler)


def limit_to(kind: int, value: int) -> None:
    """Lower a limit of this process, or leave it where it is lower already."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def set_dumpable(value: int) -> None:
    """Say whether processes of the same user may look into this one."""
    call_library("prctl", 4, value, 0, 0, 0)  # PR_SET_DUMPABLE


def drop_rights() -> None:
    """Give up all capabilities, also those that a change of users leaves inheritable."""
    call_library("capset", (0x20080522).to_bytes(4, "little") + bytes(4), bytes(24))  # _LINUX_CAPABILITY_VERSION_3


def call_library(name: str, *arguments: Any) -> None:
    """Call a function of the C library, without the 3 ms that ctypes takes to import. Ends this process if it fails."""
    from _ctypes import call_function, dlopen, dlsym

    library = dlopen(None, 0)  # type: ignore[arg-type]
    if call_function(dlsym(library, name), arguments) != 0:
        os._exit(125)


def read_exactly(file: int, size: int) -> bytes:
    """Read so many bytes.

    Raises:
        EOFError: the other side is gone.
    """
    chunks = []
    while size:
        data = os.read(file, min(size, 1 << 20))
        if not data:
            raise EOFError
        chunks.append(data)
        size -= len(data)
    return b"".join(chunks)


def execute(argv: list[str]) -> None:
    """Become another program."""
    signal(SIGPIPE, SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]}: {error}\n".encode("utf-8", "replace"))
        os._exit(127)


def run_code(code: str, name: str) -> None:
    """Run a program's text as `python FILE` does."""
    sys.argv = [name]
    status: Any = 0
    try:
        exec(compile(code, name, "exec"), sys.modules["__main__"].__dict__)
    except SystemExit as error:
        status = error.code
    except BaseException as error:
        show(error)
        status = 1
    finish(status)


def report_errors(action: Any) -> None:
    """Do something and end this process, with 1 if it failed; standard error says why."""
    try:
        action()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}"[:2000].encode("utf-8", "replace"))
        os._exit(1)
    os._exit(0)


def finish(status: Any) -> None:
    """End this process as Python ends, but without taking the interpreter apart, which takes 4 ms."""
    if status is not None and not isinstance(status, int):
        sys.stderr.write(f"{status}\n")
        status = 1
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
    finally:
        flush()
        os._exit((status or 0) & 0xFF)


def flush() -> None:
    """Write out what was printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            continue


def run_snippets() -> None:
    """Run one snippet after the other, in the same namespace. The value of a last expression is shown, if not None."""
    sys.argv = ["<snippet>"]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    namespace = sys.modules["__main__"].__dict__
    while True:
        status = 1
        try:
            code = read_exactly(COMMANDS, int.from_bytes(read_exactly(COMMANDS, 8), "little"))
            signal(SIGINT, default_int_handler)
            status = run_snippet(code.decode("utf-8", "surrogatepass"), namespace)
            signal(SIGINT, SIG_IGN)
        except KeyboardInterrupt:
            signal(SIGINT, SIG_IGN)
        except EOFError:
            return
        os.write(DONE, b"%d\n" % status)


def run_snippet(code: str, namespace: dict[str, Any]) -> int:
    """Run a snippet. Returns 0, 1 after an exception, or what `sys.exit` was given."""
    status = 0
    try:
        tree: Any = compile(code, "<snippet>", "exec", 0x400)  # the syntax tree, without the module `ast`
        last = tree.body.pop() if tree.body and type(tree.body[-1]).__name__ == "Expr" else None
        exec(compile(tree, "<snippet>", "exec"), namespace)
        if last is not None:
            import _ast

            exec(compile(_ast.Interactive([last]), "<snippet>", "single"), namespace)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        status = 1
        show(error)
    flush()
    return status & 0xFF


def show(error: BaseException) -> None:
    """Print a traceback, without the frame of this file."""
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    sys.excepthook(type(error), error.with_traceback(trace), trace)
