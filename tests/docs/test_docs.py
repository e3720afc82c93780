"""The pages under docs/ and the examples, run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = {"python", "console"}
PAGES = [
    path
    for path in sorted((ROOT / "docs").glob("*.md"))
    if any(language in RUN for language, _, _ in BLOCK.findall(path.read_text("utf-8")))
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(command: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(folder), **variables},
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_is_true(page: Path, tmp_path: Path) -> None:
    """Each block runs in turn in one folder; one with a path behind its language, or `# name.py` on top, is that file.

    What a line is said to print, in a comment behind it, must be printed.
    """
    variables: dict[str, str] = {}
    for language, path, block in BLOCK.findall(page.read_text("utf-8")):
        if path:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(block, "utf-8")
        elif language == "console":
            for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
                command, *words = shlex.split(line, comments=True)
                if command == "export":
                    variables |= {name: value for name, _, value in (word.partition("=") for word in words)}
                elif command == "marl-gem":
                    run([sys.executable, "-m", "marl_gem.cli", *words], tmp_path, **variables)
        elif language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            file = tmp_path / (name[1] if name else "block.py")
            file.write_text(block, "utf-8")
            printed = run([sys.executable, file.name], tmp_path, **variables)
            for promised in re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE):
                assert promised in printed.splitlines()


def test_there_are_pages_and_examples() -> None:
    assert {"index", "tau-domains", "write-a-scenario"} <= {page.stem for page in PAGES}
    assert {"haggle", "conversation", "pettingzoo_in_text"} <= {example.stem for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    assert len(run([sys.executable, str(example)], tmp_path).splitlines()) > 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(example: Path) -> None:
    assert f"python examples/{example.name}" in example.read_text("utf-8")
