"""Reading a domain from its files, its goals, and what counts as said."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marl_gem.errors import RecordError
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.domain import Domain, Task, load_domain
from marl_gem.scenarios.tau.tool import tool


def write_domain(folder: Path, **changes: str) -> Path:
    task = {"user_id": "u", "instruction": "i", "actions": [{"name": "f", "kwargs": {}}], "outputs": []}
    files = {
        "data/t.json": '{"a": {"n": 1}}',
        "policy.md": "Be kind.",
        "tasks_test.json": json.dumps([task]),
    } | changes
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if text:
            (folder / name).write_text(text, "utf-8")
    return folder


@tool
def f(db: Session) -> str:
    """Add one."""
    db["t"].edit("a")["n"] += 1
    return "done"


TOOLS: Any = SimpleNamespace(TOOLS=(f,), TERMINATING=frozenset({"g"}))


def load(folder: Path, tools: Any = TOOLS) -> Domain:
    return load_domain(folder, tools, name="test", official="retail")


def test_a_domain_is_a_folder(tmp_path: Path) -> None:
    schema = {"type": "function", "function": {"name": "f", "description": "Told so.", "parameters": {}}}
    hard = {"user_id": "u", "instruction": "j", "actions": [], "outputs": ["1"], "grade": "hard"}
    files = {"tools.json": json.dumps([schema]), "tasks_train.json": json.dumps([hard])}
    domain = load(write_domain(tmp_path, **files))
    assert domain.policy == "Be kind." and domain.splits["train"][0] == Task("u", "j", (), ("1",), "hard")
    assert domain.specs[0].description == "Told so." and domain.user_specs == ()
    assert domain.goal("test", 0)["t"]["a"] == {"n": 2}
    assert domain.goal("test", 0) is domain.goal("test", 0)
    assert domain.session()["t"]["a"] == {"n": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data/t.json": ""}, "is no domain"),
        ({"tasks_test.json": ""}, "is no domain"),
        ({"tasks_test.json": "[]"}, "with at least one task"),
        ({"policy.md": ""}, "policy.md cannot be read"),
        ({"data/t.json": "{"}, "t.json is not JSON"),
        ({"tasks_test.json": '[{"user_id": "u"}]'}, "tasks_test.json does not hold tasks: KeyError('instruction')"),
        ({"tasks_test.json": "[7]"}, "tasks_test.json does not hold tasks"),
        ({"tools.json": '[{"name": "g", "description": "", "parameters": {}}]'}, "offers 'g', which is no tool"),
        ({"tools.json": "[{}]"}, "tools.json does not hold tools"),
        ({"tools.json": "[]"}, "tools.json does not hold tools: it is no list of them"),
        ({"tools.json": "{}"}, "tools.json does not hold tools: it is no list of them"),
        ({"data/t.json": "[" * 100_000}, "t.json is not JSON: it is nested too deeply"),
    ],
)
def test_one_that_is_none_is_refused_with_the_file_at_fault(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordError) as caught:
        load(write_domain(tmp_path, **changes))
    assert message in str(caught.value)


def test_goals_leave_out_what_ends_an_episode_and_take_in_what_the_user_does(tmp_path: Path) -> None:
    @tool
    def g(db: Session) -> str:
        """Add ten."""
        db["t"].edit("a")["n"] += 10
        return ""

    @tool
    def h(db: Session) -> str:
        """Add a hundred."""
        db["t"].edit("a")["n"] += 100
        return ""

    task = '[{"user_id": "u", "instruction": "i", "actions": [%s], "outputs": []}]'
    actions = ", ".join(f'{{"name": "{name}", "kwargs": {{}}}}' for name in "fghx")
    tools = SimpleNamespace(TOOLS=(f, g), TERMINATING=frozenset({"g"}), USER_TOOLS=(h,))
    domain = load(write_domain(tmp_path, **{"tasks_test.json": task % actions}), tools)
    assert domain.goal("test", 0)["t"]["a"] == {"n": 102}
    assert domain.hands_over(domain.splits["test"][0])
    assert [spec.name for spec in domain.user_specs] == ["h"]


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        (("It is $1,234.50.",), ["Yes"]),
        (("YES", "1234.5"), []),
        (("Yes: 1234", ".5"), ["1234.5"]),
        (("1234.5",), ["Yes"]),
        ((), ["1234.5", "Yes"]),
    ],
)
def test_an_output_must_be_said_in_one_message(said: tuple[str, ...], missing: list[str]) -> None:
    task = Task("u", "", (), ("1234.5", "Yes"))
    domain = Domain("t", "retail", "", {}, frozenset(), Database({"t": {}}), {"test": (task,)})
    verdict = domain.judge("test", 0, domain.session(), said)
    assert verdict.missing == missing and verdict.reward == float(not missing)
