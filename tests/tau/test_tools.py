"""Tools of a domain: made of functions, called as the official benchmark calls them, whatever the arguments."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem.scenarios.tau.common import think, transfer_to_human_agents
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.tool import Outcome, Refused, call, tool
from tests.tau.worlds import BOOK, GOOD, WORLDS, calls, tables


@tool
def sell(
    db: Session, item: str, count: int, price: float, how: Literal["now", "later"], to: list[str], gift: bool
) -> str:
    """Sell something.

    In whole pieces.

    Args:
        item: What
            it is.
        count: How many.
    """
    return f"{item}{count}"


@tool
def takes_two(db: Session, one: str, two: str) -> str:
    """Take two."""
    if one == "refuse":
        raise Refused("no")
    return json.dumps([one, two])


@tool
def keeps(db: Session, value: dict) -> str:  # type: ignore[type-arg]
    """Keep what it is given."""
    db["t"].edit("a")["z"] = value
    value["kept"] = True
    return ""


def test_a_function_becomes_a_tool() -> None:
    assert sell.name == "sell" and sell.spec.description == "Sell something. In whole pieces."
    assert sell.spec.parameters == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "What it is."},
            "count": {"type": "integer", "description": "How many."},
            "price": {"type": "number"},
            "how": {"type": "string", "enum": ["now", "later"]},
            "to": {"type": "array", "items": {"type": "string"}},
            "gift": {"type": "boolean"},
        },
        "required": ["item", "count", "price", "how", "to", "gift"],
    }


def test_an_annotation_without_a_json_type_is_refused() -> None:
    def odd(db: Session, when: complex) -> str:
        return ""

    with pytest.raises(TypeError, match="has no JSON type"):
        tool(odd)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("takes_two", {"two": "b", "one": "a"}, '["a", "b"]'),
        ("takes_two", {"one": "refuse", "two": ""}, "Error: no"),
        ("takes_three", {}, "Unknown action takes_three"),
        ("takes_two", {}, "Error: TakesTwo.invoke() missing 2 required positional arguments: 'one' and 'two'"),
        ("takes_two", {"one": 1}, "Error: TakesTwo.invoke() missing 1 required positional argument: 'two'"),
        ("takes_two", {"zwei": 2, "drei": 3}, "Error: TakesTwo.invoke() got an unexpected keyword argument 'zwei'"),
        (
            "takes_two",
            {"zwei": 2, "data": 3},
            "Error: tau_bench.envs.retail.tools.takes_two.TakesTwo.invoke() got multiple values for keyword argument "
            "'data'",
        ),
        (
            "sell",
            {"item": ""},
            "Error: Sell.invoke() missing 5 required positional arguments: 'count', 'price', 'how', 'to', and 'gift'",
        ),
        ("keeps", {"value": 5}, "Error: 'int' object does not support item assignment"),
    ],
)
def test_a_call_answers_as_the_official_one(name: str, arguments: dict[str, Any], text: str) -> None:
    tools = {tool.name: tool for tool in (sell, takes_two, keeps)}
    assert call(tools, Database(tables()).session(), name, arguments, "retail") == Outcome(text)


def test_what_a_tool_keeps_is_not_the_callers() -> None:
    session, value = Database(tables()).session(), {"a": [1]}
    call({"keeps": keeps}, session, "keeps", {"value": value}, "retail")
    assert value == {"a": [1]} and session["t"]["a"]["z"] == {"a": [1], "kept": True}


# Every tool of the official domains


@pytest.mark.parametrize("name", WORLDS)
def test_every_tool_does_its_work(name: str) -> None:
    assert {tool_name for tool_name, _ in GOOD[name]} == set(WORLDS[name].tools)
    for tool_name, arguments in GOOD[name]:
        assert not WORLDS[name].call(WORLDS[name].session(), tool_name, arguments).text.startswith(("Error", "Unknown"))


@pytest.mark.parametrize("name", WORLDS)
def test_no_call_raises_or_reaches_another_episode(name: str) -> None:
    domain = WORLDS[name]
    before = json.dumps(domain.database.tables)

    @given(st.lists(calls(name), max_size=5))
    def attack(made: list[tuple[str, dict[str, Any]]]) -> None:
        mine, corrected, others = domain.session(), domain.database.session(corrected=True), domain.session()
        for tool_name, arguments in made:
            given_before = repr(arguments)
            for session in (mine, corrected):
                outcome = domain.call(session, tool_name, arguments)
                assert isinstance(outcome.text, str)
                assert repr(arguments) == given_before
        assert copy.deepcopy(mine).digest() == mine.digest()
        assert mine.differences(mine) == [] and others.differences(others) == []
        assert all(
            others[table].text(key) == domain.session()[table].text(key) for table, key in mine.differences(others)
        )

    attack()
    assert json.dumps(domain.database.tables) == before


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.slow
def test_very_long_and_very_deep_arguments_are_answered_with_text(name: str) -> None:
    domain = WORLDS[name]
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for tool_name, made in domain.tools.items():
        for value in (
            deep,
            "x" * 1_000_000,
            ["10"] * 100_000,
            "9" * 100_000,
            {"a": deep},
            "(" * 100_000,
            "-" * 100_000,
        ):
            assert isinstance(domain.call(domain.session(), tool_name, dict.fromkeys(made.parameters, value)).text, str)


def test_thinking_and_handing_over_change_nothing() -> None:
    session = Database({}).session()
    assert call({"think": think}, session, "think", {"thought": "hm"}, "retail").text == ""
    tools = {"transfer_to_human_agents": transfer_to_human_agents}
    assert call(tools, session, "transfer_to_human_agents", {"summary": ""}, "retail").text == "Transfer successful"


# Arguments in a deep stack


def in_a_stack_with_room_for(frames: int, function: Callable[[], Any]) -> Any:
    """What the function returns where so many frames are left before Python's limit."""

    def descend(left: int) -> Any:
        return descend(left - 1) if left else function()

    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return descend(sys.getrecursionlimit() - depth - frames)


@pytest.mark.parametrize("room", [60, 90, 120, 150, 250])
@pytest.mark.parametrize("levels", [50, 98, 5000])
def test_deep_arguments_in_a_deep_stack_are_an_answer_and_never_raise(room: int, levels: int) -> None:
    deep: Any = []
    for _ in range(levels):
        deep = [deep]
    domain = WORLDS["airline"]
    arguments = {**BOOK[1], "passengers": deep}
    text = in_a_stack_with_room_for(room, lambda: domain.call(domain.session(), BOOK[0], arguments).text)
    if levels == 5000:
        assert text == "Error: arguments nested in more than 100 levels"
    else:
        assert text.startswith(('{"reservation_id"', "Error: maximum recursion depth exceeded"))


def test_what_is_stored_deep_is_compared_in_a_deep_stack() -> None:
    deep: Any = []
    for _ in range(98):
        deep = [deep]
    domain = WORLDS["airline"]
    session, fresh = domain.session(), domain.session()
    session["users"].add("deep", {"passengers": deep})
    assert in_a_stack_with_room_for(60, lambda: session.differences(fresh)) == [("users", "deep")]
