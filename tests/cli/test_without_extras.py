"""`pip install marl-gem` without extras: list, play, check and eval work, and the rest says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = (
    "aiohttp",
    "datasets",
    "gymnasium",
    "inspect_ai",
    "litellm",
    "matplotlib",
    "networkx",
    "numpy",
    "pettingzoo",
    "safetensors",
    "textarena",
    "tokenizers",
    "torch",
    "transformers",
)
CODE = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {optional}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from marl_gem.cli import main
main()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter that cannot import the optional packages."""
    return subprocess.run(
        [sys.executable, "-c", CODE.format(optional=set(OPTIONAL)), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["list"], "game:KuhnPoker-v0"),
        (["list", "tau:desk-v0"], "scripted:expert"),
        (["play", "game:KuhnPoker-v0", "-n", "3", "--wrap", "time_limit=2"], "player_1"),
        (["check", "game:KuhnPoker-v0", "--only", "reset"], "1 ok"),
        (["eval", "game:KuhnPoker-v0", "-n", "3"], "report.md"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_works(tmp_path: Path, arguments: list[str], shown: str) -> None:
    finished = run(tmp_path, *arguments)
    assert finished.returncode == 0 and shown in finished.stdout, finished.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "kuhn"], "train"),
        (["play", "game:KuhnPoker-v0", "--seat", "player_0=tiny@http://127.0.0.1:9/v1"], "llm"),
        (["play", "game:KuhnPoker-v0", "--seat", "player_0=litellm:openai/x"], "litellm"),
        (["play", "game:KuhnPoker-v0", "--seat", "player_0=."], "train"),
    ],
    ids=str,
)
def test_the_rest_says_what_to_install(tmp_path: Path, arguments: list[str], extra: str) -> None:
    finished = run(tmp_path, *arguments)
    assert finished.returncode == 2
    assert f"pip install 'marl-gem[{extra}]'" in " ".join(finished.stderr.split()), finished.stderr
