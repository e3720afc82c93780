"""The pages under docs/ and the examples, run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if BLOCK.search(path.read_text("utf-8"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_is_true(page: Path, tmp_path: Path) -> None:
    """Each block runs in turn in one folder; one that begins with `# name.py` is that file.

    What a line is said to print, in a comment behind it, must be printed.
    """
    for language, block in BLOCK.findall(page.read_text("utf-8")):
        if language == "console":
            for line in re.findall(r"^\$ marl-gem (.*)$", block, re.MULTILINE):
                run([sys.executable, "-m", "marl_gem.cli", *shlex.split(line)], tmp_path)
            continue
        name = re.match(r"# (\w+\.py)\n", block)
        file = tmp_path / (name[1] if name else "block.py")
        file.write_text(block, "utf-8")
        printed = run([sys.executable, file.name], tmp_path)
        for promised in re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE):
            assert promised in printed.splitlines()


def test_there_are_pages_and_examples() -> None:
    assert "write-a-scenario" in [page.stem for page in PAGES]
    assert {"haggle", "conversation", "pettingzoo_in_text"} <= {example.stem for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    assert len(run([sys.executable, str(example)], tmp_path).splitlines()) > 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(example: Path) -> None:
    assert f"python examples/{example.name}" in example.read_text("utf-8")
