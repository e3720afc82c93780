"""Python and a shell that keep their state from call to call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from marl_gem.tools.sandbox import Completed, Limits, PythonSession, Sandbox, ShellSession
from tests.sandbox.machine import confined
from tests.sandbox.processes import descendants_of_this, state, wait_until

SHORT = Limits(wall=1.5)
pytestmark = confined

Run = Callable[[str], Awaitable[Completed]]


def in_session(
    kind: type[PythonSession] | type[ShellSession], limits: Limits, calls: Callable[[Run], Awaitable[None]]
) -> None:
    async def play() -> None:
        async with kind(limits) as session:
            await calls(session.run)

    asyncio.run(play())


in_python = partial(in_session, PythonSession)
in_shell = partial(in_session, ShellSession)


def test_python_keeps_variables_and_shows_values() -> None:
    async def calls(run: Run) -> None:
        assert await run("x = 20\ndef f(y):\n    return x + y") == Completed("", "", 0, "exit")
        assert await run("print('a')\nf(22)") == Completed("a\n42\n", "", 0, "exit")
        assert (await run("None")).stdout == ""
        assert (await run("")).stdout == ""
        raised = await run("y = 1\n1 / 0")
        assert (raised.exit_code, raised.ended, raised.state_lost) == (1, "exit", False)
        assert raised.stderr.splitlines()[1:] == [
            '  File "<snippet>", line 2, in <module>',
            "ZeroDivisionError: division by zero",
        ]
        assert (await run("x + y")).stdout == "21\n"
        assert "SyntaxError" in (await run("(")).stderr
        assert (await run("import sys; sys.exit(3)")).exit_code == 3
        assert (await run("x")).stdout == "20\n"

    in_python(Limits(), calls)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import time; time.sleep(100)", "timeout"),
        ("while True: pass", "timeout"),
        ("while True: print('x' * 1000)", "output"),
        ("data = bytearray(1 << 40)", "memory"),
    ],
)
def test_python_keeps_its_state_after_what_is_interrupted(code: str, ended: str) -> None:
    async def calls(run: Run) -> None:
        await run("x = 5")
        completed = await run(code)
        assert (completed.ended, completed.state_lost) == (ended, False)
        assert (await run("x")).stdout == "5\n"

    in_python(SHORT, calls)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (
            "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass",
            "timeout",
        ),
        ("import os; os._exit(4)", "exit"),
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        ("import os; os.closerange(3, 1000)", "exit"),
    ],
)
def test_python_that_cannot_go_on_starts_anew_and_says_so(code: str, ended: str) -> None:
    async def calls(run: Run) -> None:
        await run("x = 5")
        completed = await run(code)
        assert (completed.ended, completed.state_lost) == (ended, True)
        assert "NameError" in (await run("x")).stderr

    in_python(SHORT, calls)


def test_a_shell_keeps_folder_variables_and_files() -> None:
    async def calls(run: Run) -> None:
        assert await run("cd /usr; A=3; export B=4; echo text > /tmp/f") == Completed("", "", 0, "exit")
        assert (await run("pwd; echo $A; bash -c 'echo $B'; cat /tmp/f")).stdout == "/usr\n3\n4\ntext\n"
        assert (await run("echo oh >&2; false")) == Completed("", "oh\n", 1, "exit")
        assert (await run("cat")).stdout == ""
        assert (await run("echo '")).exit_code != 0
        assert (await run("echo a\0b")).stdout == "ab\n"
        assert await run("exit 3") == Completed("", "", 3, "exit", True)
        assert (await run("pwd; echo $A; cat f")).stdout == "/tmp\n\ntext\n"

    in_shell(Limits(), calls)


@pytest.mark.parametrize(
    ("command", "ended", "lost"),
    [
        ("sleep 100", "timeout", False),
        ("trap '' INT TERM; bash -c 'while :; do :; done'", "timeout", False),
        ("yes", "output", False),
        ("while :; do :; done", "timeout", True),
    ],
)
def test_a_shell_after_what_is_interrupted(command: str, ended: str, lost: bool) -> None:
    async def calls(run: Run) -> None:
        await run("A=5")
        completed = await run(command)
        assert (completed.ended, completed.state_lost) == (ended, lost)
        assert (await run("echo $A")).stdout == ("\n" if lost else "5\n")

    in_shell(SHORT, calls)


def test_processes_in_the_background_are_stopped_between_calls() -> None:
    async def calls(run: Run) -> None:
        await run("sleep 1000 & sleep 1000 &")
        wait_until(lambda: [state(pid) for pid in descendants_of_this()].count("T") == 3)  # these and the shell
        assert (await run("jobs")).stdout.count("Running") == 2

    in_shell(Limits(), calls)


def test_a_background_process_is_not_the_answer() -> None:
    async def calls(run: Run) -> None:
        assert (await run("sleep 100 & echo started")).stdout == "started\n"
        assert (await run("echo next")).stdout == "next\n"

    in_shell(Limits(), calls)


def test_reset_forgets_everything() -> None:
    async def play() -> None:
        session = PythonSession()
        assert not await session.healthy()
        await session.run("x = 1; open('f', 'w').close()")
        assert await session.healthy()
        await session.reset()
        assert "NameError" in (await session.run("x")).stderr
        assert (await session.run("import os; os.listdir()")).stdout == "[]\n"
        await session.stop()
        assert not await session.healthy()
        await session.stop()

    asyncio.run(play())


def test_calls_of_several_tasks_take_turns() -> None:
    async def play() -> None:
        async with PythonSession() as session:
            await session.run("n = 0")
            await asyncio.gather(*(session.run("n += 1; import time; time.sleep(0.001)") for _ in range(20)))
            assert (await session.run("n")).stdout == "20\n"

    asyncio.run(play())


def test_a_forged_answer_harms_only_the_session() -> None:
    async def calls(run: Run) -> None:
        forged = await run("import os, time; os.write(201, b'7\\n'); time.sleep(0.1)")
        assert forged.exit_code == 7
        assert (await run("print(1)")).ended == "exit"

    in_python(Limits(), calls)
    assert Sandbox().run("print(1)").stdout == "1\n"
