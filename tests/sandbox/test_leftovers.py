"""Nothing of a sandbox is left behind, however its parent ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from marl_gem.errors import SandboxError
from marl_gem.tools.sandbox import Limits, PythonSession, Sandbox
from marl_gem.tools.sandbox.confinement import View
from marl_gem.tools.sandbox.connection import Connection
from tests.sandbox.machine import confined
from tests.sandbox.processes import descendants, descendants_of_this, is_alive, wait_until

PARENT = """
import signal
from marl_gem.tools.sandbox import Limits, Sandbox
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
program = "import os, time\\nos.fork()\\nos.fork()\\ntime.sleep(500)"
Sandbox(Limits(wall=400)).run(program)
"""

pytestmark = confined


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_parent_that_ends_takes_the_sandbox_along(number: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(descendants(parent.pid)) >= 6)  # bubblewrap, the guard and four programs
        started = descendants(parent.pid)
        parent.send_signal(number)
        parent.wait(60)
        wait_until(lambda: not any(map(is_alive, started)))
    finally:
        parent.kill()
        parent.wait()


def test_a_run_leaves_no_process_and_no_file() -> None:
    before, files = descendants_of_this(), open_files()
    for _ in range(3):
        Sandbox().run("import os\nos.fork()\nos.fork()")
    assert descendants_of_this() == before
    assert open_files() == files


def test_a_session_outlives_the_thread_that_started_it() -> None:
    """bubblewrap dies with the thread that started it, so another thread than the caller's must."""
    connections = []
    thread = threading.Thread(target=lambda: connections.append(Connection(Limits(), "bubblewrap", View())))
    thread.start()
    thread.join()
    try:
        request = {"kind": "python", "code": "1 + 1", "stdin": b"", "wall": 10.0}
        assert connections[0].ask(request).stdout == "2\n"
        assert connections[0].ask(request).stdout == "2\n"
    finally:
        connections[0].close()
        connections[0].close()


def test_a_cancelled_call_ends_the_sandbox() -> None:
    async def cancel() -> None:
        others = descendants_of_this()
        session = PythonSession(Limits(wall=300))
        await session.start()
        call = asyncio.create_task(session.run("import time; time.sleep(200)"))
        started = descendants_of_this() - others
        assert started
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not await session.healthy()
        wait_until(lambda: not any(map(is_alive, started)))
        assert (await session.run("3")).stdout == "3\n"
        await session.stop()

    asyncio.run(cancel())


def test_a_sandbox_that_dies_is_an_error_and_the_next_call_works() -> None:
    async def die() -> None:
        others = descendants_of_this()
        async with PythonSession() as session:
            await session.run("x = 1")
            for pid in descendants_of_this() - others:
                subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
            with pytest.raises(SandboxError, match="the sandbox ended by itself"):
                await session.run("x")
            assert not await session.healthy()
            assert "NameError" in (await session.run("x")).stderr

    asyncio.run(die())


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
