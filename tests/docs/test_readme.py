"""What the README and llms.txt show works and exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from marl_gem.cli.group import COMMANDS
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def run_blocks() -> dict[str, Any]:
    """Run the README's Python blocks one after the other, as a reader would."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, names)
    return names


def test_the_readmes_code_runs_and_does_what_it_says() -> None:
    names = run_blocks()
    assert names["env"].done
    assert len(names["episodes"]) == 100
    assert not any(episode.error for episode in names["episodes"])
    seating = {"a": ScriptedPolicy(["rock"]), "b": ScriptedPolicy(["paper"])}
    (episode,) = collect(names["RockPaperScissors"], [Job(0, seating)])
    assert episode.returns == {"a": -1.0, "b": 1.0}


def test_every_file_and_command_it_names_exists() -> None:
    files = re.findall(r"`((?:trainers|marl_gem|docs|benchmarks)/[\w./]+)`", README)
    files += [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert "docs/write-a-scenario.md" in files
    for path in files:
        assert "_build" in path or (ROOT / path).exists(), path
    for target in re.findall(r"make (\w+)", README):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE) or target.isupper()
    commands = re.findall(r"^ +marl-gem (\w+)", README, re.MULTILINE)
    assert commands and set(commands) <= set(COMMANDS)


def test_it_is_short_and_its_contents_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 150
    headings = {re.sub(r"\W+", "-", heading.lower()) for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)}
    contents = set(re.findall(r"\]\(#([\w-]+)\)", README))
    assert contents == headings


def test_llms_txt_leads_to_files_that_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text("utf-8"))
    assert "docs/guides.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
