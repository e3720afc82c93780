"""marl-gem list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import marl_gem
from marl_gem import registry
from marl_gem.cli import app
from marl_gem.errors import MarlGemError
from tests.toys import Chat, OneAnswer

pytestmark = pytest.mark.usefixtures("restored_registry")


@pytest.fixture(autouse=True)
def scenarios(restored_registry: None) -> None:
    marl_gem.register("toy:Chat-v0", Chat, description="Two talk.", agents=2, turn_order="sequential")
    marl_gem.register("toy:Answer-v0", OneAnswer, description="One answers.", agents=(1, 3), turn_order="parallel")
    marl_gem.register("toy:Far-v0", Chat, agents=2, unavailable="it needs the moon")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["list", *arguments], env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def ids(*arguments: str) -> list[str]:
    return [row["id"] for row in json.loads(run(*arguments, "--json"))]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["toy:Answer-v0", "toy:Chat-v0"]),
        (["--all"], ["toy:Answer-v0", "toy:Chat-v0", "toy:Far-v0"]),
        (["--agents", "2"], ["toy:Answer-v0", "toy:Chat-v0"]),
        (["--agents", "3"], ["toy:Answer-v0"]),
        (["--agents", "4"], []),
        (["--turn-order", "sequential"], ["toy:Chat-v0"]),
        (["--turn-order", "mixed"], []),
        (["--turn-order", "parallel", "--agents", "1"], ["toy:Answer-v0"]),
    ],
)
def test_filters(arguments: list[str], expected: list[str]) -> None:
    assert ids("toy", *arguments) == expected
    text = run("toy", *arguments)
    assert all(id in text for id in expected) and ("No scenario fits." in text) == (not expected)


def test_all_families_as_json() -> None:
    rows: list[dict[str, Any]] = json.loads(run("--json"))
    chat = next(row for row in rows if row["id"] == "toy:Chat-v0")
    assert chat == {
        "id": "toy:Chat-v0",
        "family": "toy",
        "agents": [2, 2],
        "turn_order": "sequential",
        "description": "Two talk.",
        "unavailable": "",
    }
    assert {"game", "ta", "tau", "toy"} <= {row["family"] for row in rows}
    assert all(row["turn_order"] for row in rows if row["family"] != "toy"), "what ships is found by its turn order"


def test_what_is_hidden_is_counted() -> None:
    assert "1 more cannot work on this machine; --all gives the reasons." in run("toy")
    assert "it needs the moon" in run("toy", "--all")


def test_one_scenario() -> None:
    card = json.loads(run("game:KuhnPoker-v0", "--json"))
    assert card["info"]["agents"] == ["player_0", "player_1"] and card["info"]["reward_range"] == [-2.0, 2.0]
    assert "exploitability" in card["analysis"]
    text = run("tau:desk-v0")
    for line in (
        "agents: user, assistant",
        "tasks: 200",
        "max_actions  int",
        "by grade: redirect 47, cancel 44",
        "role of assistant: Ask who it is",
        "tool look_up: Look a customer's parcel up.",
        "user sees (seed 0): Hi! How can I help you today?",
        "scripted:expert answers: ",
        "marl-gem play tau:desk-v0 --seat user=human",
        "scripted:expert",
        "max_steps",
        "MODEL,strategy=verify[,judge=MODEL]",
        "trivial baselines: noop",
    ):
        assert line in text
    assert "it needs the moon" in run("toy:Far-v0")
    assert "It has no policies and no strategies of its own." in run("tests.toys:Chat")


def test_a_scenario_that_needs_options_has_a_card_too() -> None:
    marl_gem.register("toy:Needs-v0", needs, agents=2)
    assert json.loads(run("toy:Needs-v0", "--json"))["options"] == {"size": "...", "kind": "small"}
    lines = [line.split() for line in run("toy:Needs-v0").splitlines()]
    assert ["size", "int", "needed"] in lines and ["kind", "str", "small"] in lines


def needs(size: int, kind: str = "small") -> Chat:
    return Chat()


def test_wrappers() -> None:
    rows = json.loads(run("--wrappers", "--json"))
    assert {"name": "time_limit", "parameters": ["max_steps"]}.items() <= next(
        row.items() for row in rows if row["name"] == "time_limit"
    )
    assert set(registry.wrappers()) == {row["name"] for row in rows}
    assert "max_steps" in run("--wrappers")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["toi"], "there is no family 'toi'"),
        (["toy:Chet-v0"], "Did you mean 'toy:Chat-v0'"),
        (["--turn-order", "random"], "choose one of sequential, parallel, mixed"),
    ],
)
def test_what_there_is_not(arguments: list[str], message: str) -> None:
    with pytest.raises(MarlGemError, match=message):
        run(*arguments)


def test_a_card_has_the_meaning_of_each_option() -> None:
    meanings = json.loads(run("tau:desk-v0", "--json"))["option_meanings"]
    assert {"split", "task", "user_reward", "official"} <= meanings.keys()
    assert all(meanings.values()) and "\n" not in "".join(meanings.values())
    assert "the number of the task of every episode" in run("tau:desk-v0")


def test_a_file_has_a_card(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from tests.toys import Crowd\n\n\nclass Mine(Crowd):\n    pass\n")
    text = run(f"{tmp_path}/mine.py:Mine")
    assert "agents: citizen_0, citizen_1" in text and "turn order: parallel" in text
    assert "citizen_0 sees (seed 0): Yes or no?" in text and "random answers: " in text


def test_a_broken_scenario_has_a_card_without_a_sample() -> None:
    class Broken(Chat):
        def observe(self, agent: str) -> str:
            raise RuntimeError("broken")

    marl_gem.register("toy:Broken-v0", Broken, agents=2)
    card = json.loads(run("toy:Broken-v0", "--json"))
    assert card["sample"] is None and card["commands"]
