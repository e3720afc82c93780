"""The tools `python` and `shell`, by name and in an env."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from marl_gem.errors import SandboxUnavailable
from marl_gem.tools import Context, Tool, load_tools
from marl_gem.tools.python import python
from marl_gem.tools.sandbox import Completed, Limits
from marl_gem.tools.sandbox.answer import answer
from marl_gem.tools.shell import shell
from tests.sandbox.machine import confined


def calls(tool: Tool, *arguments: str, context: Context | None = None) -> Iterator[str]:
    """The answers to calls, one after the other, of the same episode."""
    (name,) = tool.spec.parameters["properties"]

    async def call_all() -> list[str]:
        used = context or Context("player_0")
        try:
            return [(await tool.call({name: text}, used)).text for text in arguments]
        finally:
            used.leases.release()

    return iter(asyncio.run(call_all()))


@confined
def test_python_keeps_variables_for_an_agent() -> None:
    (tool,) = load_tools("python:timeout=2")
    answers = calls(tool, "x = 6 * 7", "x", "print('a'); y", "while True: pass", "x")
    assert next(answers) == "[no output]"
    assert next(answers) == "42"
    assert next(answers).splitlines()[0] == "a"
    assert next(answers) == "[stopped: it took longer than 2 s]"
    assert next(answers) == "42"


@confined
def test_two_agents_have_a_sandbox_each() -> None:
    tool = python(size=2)

    async def play() -> list[str]:
        first = Context("player_0")
        second = Context("player_1", leases=first.leases)
        try:
            await tool.call({"code": "x = 1"}, first)
            await tool.call({"code": "x = 2"}, second)
            return [(await tool.call({"code": "x"}, context)).text for context in (first, second)]
        finally:
            first.leases.release()

    assert asyncio.run(play()) == ["1", "2"]


@confined
def test_fresh_python_starts_from_nothing() -> None:
    answers = list(calls(python(fresh=True), "x = 1", "x"))
    assert answers[1].endswith("NameError: name 'x' is not defined")


@confined
def test_the_next_episode_starts_from_nothing() -> None:
    tool = python(size=1)
    assert list(calls(tool, "x = 1", "x")) == ["[no output]", "1"]
    assert "NameError" in next(calls(tool, "x"))


@confined
def test_a_shell_says_its_exit_code() -> None:
    answers = calls(shell(), "cd /usr && pwd", "pwd; false", "exit 3", "pwd")
    assert next(answers) == "/usr"
    assert next(answers) == "/usr\n[exit code 1]"
    assert next(answers) == "[exit code 3; the folder, variables and processes of the shell are lost]"
    assert next(answers) == "/tmp"


def test_without_bubblewrap_the_tools_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for name in ("python:timeout=7", "shell:timeout=7"):
        with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
            load_tools(name)


def test_what_a_model_reads() -> None:
    limits = Limits(wall=2, output=1000)
    assert answer(Completed("", "", 0, "exit"), limits, "all variables") == "[no output]"
    assert answer(Completed("a\n", "b\n", 0, "exit"), limits, "all variables") == "a\nb"
    assert answer(Completed("a", "", -9, "memory", True), limits, "all variables") == (
        "a\n[stopped: it used more than 512 MiB of memory; all variables are lost]"
    )
    assert answer(Completed("", "", 1, "output"), limits, "") == "[stopped: it wrote more than 1,000 bytes]"
    assert answer(Completed("", "", -11, "killed"), limits, "") == "[ended by signal 11]"
