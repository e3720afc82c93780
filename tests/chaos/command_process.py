"""A command line in a process of its own, under limits."""

from __future__ import annotations

import contextlib
import ctypes
import io
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from tests.chaos.command_grammar import CommandLine

LIMIT = 8.0
"""Seconds after which a command is interrupted, as by Ctrl-C; then every two seconds again."""
PATIENCE = 5
"""So often it is interrupted before it is killed."""
MEMORY = 2 << 30
"""Bytes that a command may add to its address space."""
FILE_SIZE = 64 << 20
"""Bytes of the longest file that a command may write."""
NOBODY = 65534
CANARY = "sk-canary-4711"
"""The key in the environment of every command."""
STARTED = "started"

_PROCESSES = multiprocessing.get_context("forkserver")
_IMPORTED = ["marl_gem.cli", "marl_gem.rollout", "matplotlib.font_manager"]
_PROCESSES.set_forkserver_preload(_IMPORTED)


def import_training() -> None:
    """Import what training needs once, for all commands; call it before the first of many."""
    _PROCESSES.set_forkserver_preload([*_IMPORTED, "marl_gem.trainers.run"])


class Ended(NamedTuple):
    """How a command ended.

    `code` is negative after a signal. `interrupts` counts the Ctrl-C that it took, `orphans` says whether processes
    that it started were left, `seconds` is its wall time.
    """

    code: int
    out: str
    err: str
    interrupts: int
    orphans: bool
    seconds: float


def run(line: CommandLine, folder: Path, limit: float = LIMIT) -> Ended:
    """Carry out a command line in a folder; after `limit` seconds it is interrupted, and killed if it does not end."""
    with tempfile.TemporaryDirectory(prefix="marl_gem_output_") as streams:
        for name in ("out", "err"):
            (Path(streams) / name).touch()
        (Path(streams) / "in").write_text(line.input or "")
        begun = time.monotonic()
        process = _PROCESSES.Process(target=_work, args=(line, str(folder), streams))
        process.start()
        assert process.pid is not None
        process.join(limit)
        interrupts = 0
        while process.is_alive() and interrupts < PATIENCE:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            interrupts += 1
            process.join(2)
        if process.is_alive():
            process.kill()
        process.join()
        orphans = _end_group(process.pid)
        out, err = ((Path(streams) / name).read_bytes().decode("utf-8", "backslashreplace") for name in ("out", "err"))
        code = process.exitcode
        process.close()
        return Ended(code or 0, out, err, interrupts, orphans, time.monotonic() - begun)


def _end_group(group: int) -> bool:
    """End what a command left running; whether there was something."""
    for _ in range(20):  # daemons of the process end with it, a moment later
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    return True


def _work(line: CommandLine, folder: str, streams: str) -> None:
    """Run one command in this process."""
    os.setpgid(0, 0)
    _direct(line, streams)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(_environment(folder))
    _limit()
    sys.path.insert(0, folder)
    sys.argv = ["marl-gem", *line.words]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from marl_gem.cli import main

    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.exit(_flushed(code if isinstance(code, int) else int(code is not None)))


def _environment(folder: str) -> dict[str, str]:
    home = Path(folder).parent / "home"
    kept = ("PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(home),
        "COLUMNS": "120",
        "OPENAI_API_KEY": CANARY,
        "TMPDIR": str(Path(folder).parent / "tmp"),
    }


def _flushed(code: int) -> int:
    """The exit code after Python has flushed the streams, as at the end of every process."""
    threading._shutdown()  # type: ignore[attr-defined]  # wait for threads as Python does; what hangs there is seen
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            sys.stdout = sys.stderr = None  # type: ignore[assignment]
            return 120
    return code


def _direct(line: CommandLine, streams: str) -> None:
    """Put the standard streams where the command line has them."""
    encoding = "ascii" if line.ascii else "utf-8"
    if line.input is None:
        os.close(0)
        sys.stdin = None  # type: ignore[assignment]
    else:
        os.dup2(os.open(f"{streams}/in", os.O_RDONLY), 0)
        reader = io.BufferedReader(io.FileIO(0, closefd=False))
        sys.stdin = io.TextIOWrapper(reader, encoding, "surrogateescape")
    for number, name, target in ((1, "out", line.out), (2, "err", line.err)):
        errors = "strict" if name == "out" else "backslashreplace"
        stream: io.TextIOBase | None = None
        if target == "closed":
            os.close(number)
        else:
            os.dup2(_opened(target, f"{streams}/{name}"), number)
            raw = io.FileIO(number, "w", closefd=False)
            stream = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors)
        setattr(sys, f"std{name}", stream)


def _opened(target: str, path: str) -> int:
    if target == "full":
        return os.open("/dev/full", os.O_WRONLY)
    if target == "broken pipe":
        read, write = os.pipe()
        os.close(read)
        return write
    return os.open(path, os.O_WRONLY | os.O_APPEND)


def _limit() -> None:
    """Limits of the resources, and under root those of another user who may read everything."""
    used = 0
    with contextlib.suppress(OSError):
        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    if os.geteuid() == 0:
        _become_nobody()


def _become_nobody() -> None:
    """Another user, with the right to read alone, also in processes that it starts: Python may lie where only root can
    read."""
    keep_capabilities, ambient, give, version, read_search = 8, 47, 2, 0x20080522, 1 << 2
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(keep_capabilities, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(version, 0)
    sets = (ctypes.c_uint32 * 6)(read_search, read_search, read_search, 0, 0, 0)  # effective, permitted, inheritable
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
    libc.prctl(ambient, give, read_search.bit_length() - 1, 0, 0)
