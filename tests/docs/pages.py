"""Run the code blocks of a page, one after the other in one folder, as a reader would.

Each block runs in a process of its own, which is forked from one that has imported marl_gem and loaded no scenario: so
a block costs milliseconds and still starts from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIMIT = 300.0
"""Seconds that one block or command may take."""

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["marl_gem.cli", "marl_gem.rollout", "marl_gem.trainers.run", "matplotlib.figure"])


class Block(NamedTuple):
    """A fenced block: its language, the file it is to be written to (or ""), and its text."""

    language: str
    path: str
    text: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page. Directives, whose language stands in braces, are none."""
    return [Block(*found) for found in _BLOCK.findall(text)]


def runnable(path: Path) -> bool:
    """Whether a page has anything to run."""
    return any(block.language in ("python", "console") for block in blocks(path.read_text("utf-8")))


def run_page(text: str, folder: Path, replace: Mapping[str, str] | None = None) -> str:
    """Run a page's blocks in `folder`.

    A block with a path behind its language, or `# name.py` in its first line, is written to that file. The lines of
    a `console` block that begin with `$ marl-gem` or `$ export` are carried out, the others are not; `# ends with 1`
    behind one is the status that it must end with. What a line of Python is to print stands in a comment behind it; in
    a `console` block, each line under a command must be among the lines that it prints.

    Args:
        text: the page.
        folder: an empty folder.
        replace: what stands for what in commands and code, such as the address of a server.

    Returns:
        All that was printed.

    Raises:
        AssertionError: a block failed, or did not print what it should.
    """
    variables: dict[str, str] = {}
    printed = ""
    for language, path, block in blocks(text):
        for old, new in (replace or {}).items():
            block = block.replace(old, new)
        if path:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(block, "utf-8")
        elif language == "console":
            printed += _run_console(block, folder, variables)
        elif language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            file = folder / (name[1] if name else "block.py")
            file.write_text(block, "utf-8")
            output = run([file.name], folder, variables)
            for expected in re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE):
                assert expected in output.splitlines(), f"{expected!r} is not printed, but\n{output}"
            printed += output
    return printed


def _run_console(block: str, folder: Path, variables: dict[str, str]) -> str:
    printed = ""
    for command, below in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.replace("\\\n", ""), re.MULTILINE):
        name, *words = shlex.split(command, comments=True)
        if name == "export":
            variables |= {key: value for key, _, value in (word.partition("=") for word in words)}
        elif name == "marl-gem":
            status = re.search(r"# ends with (\d+)", command)
            output = run(["marl-gem", *words], folder, variables, int(status[1]) if status else 0)
            shown = [line.rstrip() for line in output.splitlines()]
            for expected in filter(None, below.splitlines()):
                assert expected.rstrip() in shown, f"{expected!r} is not printed by {command}, but\n{output}"
            printed += output
    return printed


def run(
    command: list[str],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    status: int = 0,
    limit: float = LIMIT,
) -> str:
    """What a command prints: `marl-gem` with its words, or a file of Python with its arguments.

    Raises:
        AssertionError: it ends with another status than `status`, or takes longer than `limit` seconds.
    """
    output = folder / ".output"
    process = _PROCESSES.Process(target=_work, args=(command, str(folder), dict(variables or {}), str(output)))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
    printed = output.read_text("utf-8")
    output.unlink()
    assert process.exitcode == status, f"{shlex.join(command)} ended with {process.exitcode}\n{printed}"
    return printed


def _work(command: list[str], folder: str, variables: dict[str, str], output: str) -> None:
    """Run one command in this process, with everything that it prints in the file `output`."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    os.environ.update({"COLUMNS": "120", **variables})
    sys.path.insert(0, folder)
    sys.argv = command
    if command[0] == "marl-gem":
        from marl_gem.cli import main

        main()
    else:
        runpy.run_path(command[0], run_name="__main__")
