"""What the README shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def run_blocks() -> dict[str, Any]:
    """Run the README's Python blocks one after the other, as a reader would."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, names)
    return names


def test_the_readmes_code_runs_and_does_what_it_says() -> None:
    pytest.importorskip("textarena", reason="the README plays TextArena's games")
    names = run_blocks()
    assert names["env"].done
    assert len(names["episodes"]) == 100
    assert not any(episode.error for episode in names["episodes"])
    seating = {"a": ScriptedPolicy(["rock"]), "b": ScriptedPolicy(["paper"])}
    (episode,) = collect(names["RockPaperScissors"], [Job(0, seating)])
    assert episode.returns == {"a": -1.0, "b": 1.0}


def test_every_file_and_command_it_names_exists() -> None:
    root = Path(__file__).parents[2]
    for path in re.findall(r"`((?:trainers|marl_gem|docs|benchmarks)/[\w./]+)`", README):
        assert (root / path).exists(), path
    for target in re.findall(r"make (\w+)", README):
        assert re.search(rf"^{target}:", (root / "Makefile").read_text("utf-8"), re.MULTILINE) or target.isupper()
