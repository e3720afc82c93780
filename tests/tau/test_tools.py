"""What TAU-bench's episodes stand on: copy-on-write data, tools that take anything, a calculator, corrections."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from marl_gem.errors import RecordError
from marl_gem.scenarios.tau import airline, retail
from marl_gem.scenarios.tau.common import calculate, think, transfer_to_human_agents
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.domain import CORRECTIONS, Domain, Task, load_domain
from marl_gem.scenarios.tau.tool import Outcome, Refused, call, tool

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)

Did = list[tuple[str, dict[str, Any]]]

# Copy on write

KEYS = st.sampled_from(["a", "b", "\u00e9\ud800"])
CHANGES = st.tuples(st.sampled_from(["edit", "nested", "add", "read", "fork"]), st.sampled_from(["t", "u"]), KEYS, JSON)


def tables() -> dict[str, dict[str, dict[str, Any]]]:
    return {"u": {"b": {"list": [1]}, "a": {"x": 1.0, "list": []}}, "t": {"a": {"z": {}, "list": [{}]}}}


def apply(session: Session, plain: dict[str, Any], change: tuple[str, str, str, Any]) -> None:
    """The same change to a session and to a plain copy of all data."""
    how, table, key, value = change
    if how == "add":
        session[table].add(key, {"new": copy.deepcopy(value), "list": []})
        plain[table][key] = {"new": copy.deepcopy(value), "list": []}
    elif key not in plain[table]:
        assert key not in session[table]
    elif how == "edit":
        session[table].edit(key)["x"] = copy.deepcopy(value)
        plain[table][key]["x"] = copy.deepcopy(value)
    elif how == "nested":
        session[table].edit(key)["list"].append(copy.deepcopy(value))
        plain[table][key]["list"].append(copy.deepcopy(value))


def full_digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(st.lists(st.tuples(st.integers(0, 2), CHANGES), max_size=12))
def test_sessions_are_as_independent_as_copies_of_everything(
    story: list[tuple[int, tuple[str, str, str, Any]]],
) -> None:
    database = Database(tables())
    fresh = database.session()
    pairs: list[tuple[Session, dict[str, Any]]] = [(database.session(), tables()) for _ in range(3)]
    for which, change in story:
        session, plain = pairs[which]
        apply(session, plain, change)
        if change[0] == "fork":
            pairs[which - 1] = copy.deepcopy((session, plain))
        for session, plain in pairs:
            assert session.digest() == full_digest(plain)
            for name in plain:
                assert list(session[name]) == list(plain[name])
                assert canonical(dict(session[name].items())) == canonical(plain[name])
    assert database.tables == tables() and fresh.digest() == full_digest(tables())
    for session, plain in pairs:
        for other, plain_other in pairs:
            differing = [
                (name, key)
                for name in sorted(plain)
                for key in sorted({*plain[name], *plain_other[name]})
                if canonical(plain[name].get(key)) != canonical(plain_other[name].get(key))
            ]
            assert session.differences(other) == sorted(differing)


def test_one_and_one_point_zero_differ_and_a_change_that_is_taken_back_does_not() -> None:
    database = Database(tables())
    session, other = database.session(), database.session()
    session["u"].edit("a")["x"] = 1
    assert session.differences(other) == other.differences(session) == [("u", "a")]
    session["u"].edit("a")["x"] = 1.0
    assert session.differences(other) == [] and session.digest() == other.digest()


def test_a_copy_shares_what_nobody_wrote() -> None:
    session = Database({"t": {str(n): {"blob": "x" * 1000} for n in range(1000)}}).session()
    session["t"].edit("5")["blob"] = ""
    twin = copy.deepcopy(session)
    assert twin["t"]["7"] is session["t"]["7"] and twin["t"]["5"] is not session["t"]["5"]
    assert twin.database is session.database


def test_what_json_cannot_hold_differs_from_all_it_can() -> None:
    database = Database(tables())
    session = database.session()
    session["t"].edit("a")["z"] = 50 * 10**4299
    assert session.differences(database.session()) == [("t", "a")]
    assert session.digest() != database.session().digest()


# Tools


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


# A small shop and a small airline


def shop_data() -> dict[str, Any]:
    def order(id: str, status: str, items: list[str], history: list[tuple[str, float, str]]) -> dict[str, Any]:
        return {
            "order_id": id,
            "user_id": "ada_1",
            "address": {"zip": "10001"},
            "items": [
                {"name": "Cup", "product_id": "1", "item_id": item, "price": prices[item], "options": {}}
                for item in items
            ],
            "status": status,
            "payment_history": [
                {"transaction_type": kind, "amount": amount, "payment_method_id": method}
                for kind, amount, method in history
            ],
        }

    prices = {"10": 10.1, "11": 13.63, "12": 20.2}
    methods = {
        "gift_card_1": {"source": "gift_card", "balance": 100.0, "id": "gift_card_1"},
        "paypal_1": {"source": "paypal", "id": "paypal_1"},
    }
    return {
        "orders": {
            "#W1": order("#W1", "pending", ["10", "10"], [("payment", 20.2, "gift_card_1")]),
            "#W2": order("#W2", "delivered", ["11"], [("payment", 13.63, "gift_card_1")]),
        },
        "products": {
            "1": {
                "name": "Cup",
                "product_id": "1",
                "variants": {
                    item: {"item_id": item, "options": {"size": item}, "available": item != "12", "price": price}
                    for item, price in prices.items()
                },
            }
        },
        "users": {
            "ada_1": {
                "name": {"first_name": "Ada", "last_name": "Lee"},
                "address": {"zip": "10001"},
                "email": "Ada@example.com",
                "payment_methods": methods,
                "orders": ["#W1", "#W2"],
            }
        },
    }


def airline_data() -> dict[str, Any]:
    def flight(origin: str, destination: str, departs: str, arrives: str, price: int) -> dict[str, Any]:
        day = {"status": "available", "available_seats": dict.fromkeys(("economy", "business"), 5)}
        return {
            "origin": origin,
            "destination": destination,
            "scheduled_departure_time_est": departs,
            "scheduled_arrival_time_est": arrives,
            "dates": {
                f"2024-05-{number:02}": day | {"prices": {"economy": price + number, "business": 2 * price}}
                for number in range(1, 31)
            },
        }

    return {
        "flights": {
            name: {"flight_number": name, **flight(*rest)}  # type: ignore[arg-type]
            for name, *rest in (
                ("HAT1", "JFK", "ORD", "20:00:00", "01:00:00+1", 100),
                ("HAT2", "ORD", "SEA", "09:00:00", "12:00:00", 200),
            )
        },
        "reservations": {
            "R1": {
                "reservation_id": "R1",
                "user_id": "bo_1",
                "cabin": "economy",
                "flights": [
                    {"origin": "JFK", "destination": "ORD", "flight_number": "HAT1", "date": "2024-05-20", "price": 120}
                ],
                "passengers": [{"first_name": "Bo", "last_name": "Li", "dob": "1990-01-01"}],
                "payment_history": [{"payment_id": "credit_card_1", "amount": 120}],
                "total_baggages": 0,
                "nonfree_baggages": 0,
            }
        },
        "users": {
            "bo_1": {
                "payment_methods": {
                    "credit_card_1": {"source": "credit_card", "id": "credit_card_1"},
                    "gift_card_1": {"source": "gift_card", "amount": 500, "id": "gift_card_1"},
                },
                "reservations": ["R1"],
            }
        },
    }


def world(tools: ModuleType, data: dict[str, Any], corrected: bool = False) -> Domain:
    name = tools.__name__.rpartition(".")[2]
    return Domain(
        name=name,
        official=name,
        policy="",
        tools={tool.name: tool for tool in tools.TOOLS},
        terminating=tools.TERMINATING,
        database=Database(data),
        splits={"test": ()},
        corrected=corrected,
    )


WORLDS = {"retail": world(retail, shop_data()), "airline": world(airline, airline_data())}
PAY_OTHERWISE = ("modify_pending_order_payment", {"order_id": "#W1", "payment_method_id": "paypal_1"})
CANCEL = ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
CHANGE = {"order_id": "#W1", "item_ids": ["10"], "new_item_ids": ["11"], "payment_method_id": "paypal_1"}
RETURN = {"order_id": "#W2", "item_ids": ["11"], "payment_method_id": "gift_card_1"}
ADDRESS = {"address1": "a", "address2": "", "city": "c", "state": "s", "country": "c", "zip": "10002"}
FLIGHTS = [{"flight_number": "HAT1", "date": "2024-05-20"}]
UPGRADE = (
    "update_reservation_flights",
    {"reservation_id": "R1", "cabin": "business", "flights": FLIGHTS, "payment_id": "gift_card_1"},
)
BAGS = (
    "update_reservation_baggages",
    {"reservation_id": "R1", "total_baggages": 1, "nonfree_baggages": 1, "payment_id": "credit_card_1"},
)
BOOK = (
    "book_reservation",
    {
        "user_id": "bo_1",
        "origin": "JFK",
        "destination": "ORD",
        "flight_type": "one_way",
        "cabin": "economy",
        "flights": FLIGHTS,
        "passengers": [{"first_name": "Bo", "last_name": "Li", "dob": "1990-01-01"}],
        "payment_methods": [{"payment_id": "credit_card_1", "amount": 120}],
        "total_baggages": 0,
        "nonfree_baggages": 0,
        "insurance": "no",
    },
)
SEARCH = {"origin": "JFK", "destination": "SEA", "date": "2024-05-20"}
GOOD: dict[str, Did] = {
    "retail": [
        PAY_OTHERWISE,
        CANCEL,
        ("modify_pending_order_items", CHANGE),
        ("exchange_delivered_order_items", RETURN | {"new_item_ids": ["10"]}),
        ("return_delivered_order_items", RETURN),
        ("modify_pending_order_address", {"order_id": "#W1", **ADDRESS}),
        ("modify_user_address", {"user_id": "ada_1", **ADDRESS}),
        ("find_user_id_by_email", {"email": "ada@EXAMPLE.com"}),
        ("find_user_id_by_name_zip", {"first_name": "ADA", "last_name": "lee", "zip": "10001"}),
        ("get_order_details", {"order_id": "#W1"}),
        ("get_product_details", {"product_id": "1"}),
        ("get_user_details", {"user_id": "ada_1"}),
        ("list_all_product_types", {}),
        ("calculate", {"expression": "1+1"}),
        ("think", {"thought": "hm"}),
        ("transfer_to_human_agents", {"summary": ""}),
    ],
    "airline": [
        BOOK,
        UPGRADE,
        BAGS,
        ("cancel_reservation", {"reservation_id": "R1"}),
        ("update_reservation_passengers", {"reservation_id": "R1", "passengers": [{"first_name": "Di"}]}),
        ("send_certificate", {"user_id": "bo_1", "amount": 10}),
        ("get_reservation_details", {"reservation_id": "R1"}),
        ("get_user_details", {"user_id": "bo_1"}),
        ("search_direct_flight", SEARCH | {"destination": "ORD"}),
        ("search_onestop_flight", SEARCH),
        ("list_all_airports", {}),
        ("calculate", {"expression": "1+1"}),
        ("think", {"thought": "hm"}),
        ("transfer_to_human_agents", {"summary": ""}),
    ],
}
"""A call of every tool that goes well."""

HUGE = 10**4299
KNOWN = st.sampled_from(
    [value for calls in GOOD.values() for _, arguments in calls for value in arguments.values()] + ["#W2", "12", "HAT2"]
)
ODD = (
    KNOWN
    | JSON
    | st.sampled_from([HUGE, -HUGE, math.inf, math.nan, [], {}, [{"payment_id": "credit_card_1", "amount": HUGE}]])
)


@st.composite
def calls(draw: Callable[..., Any], name: str) -> tuple[str, dict[str, Any]]:
    """A call that would go well, with some arguments changed, left out or added."""
    tool_name, good = draw(st.sampled_from(GOOD[name]))
    arguments = {key: draw(ODD) if draw(st.integers(0, 3)) == 0 else value for key, value in good.items()}
    if draw(st.integers(0, 9)) == 0:
        arguments |= draw(st.dictionaries(st.text(max_size=4), JSON, max_size=2))
        arguments.pop(draw(st.sampled_from([*arguments, ""])), None)
    return tool_name, arguments


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
def test_calls_without_end_and_with_everything_in_them_come_back_at_once(name: str) -> None:
    domain, started = WORLDS[name], time.perf_counter()
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
    assert time.perf_counter() - started < 20


# The calculator


@given(st.text("0123456789+-*/(). ", max_size=12).filter(lambda text: "**" not in text))
@example("2 * (12.50 + 3)")
@example("1//0")
@example("()")
@example("..." * 3)
@example("2(3)")
@example("2(*3)")
@example("()(*())")
@example("1.5(*2.)")
@example(" 1")
@example("")
def test_it_says_what_python_would(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = str(round(float(eval(expression, {"__builtins__": {}}, {})), 2))
        except Exception as error:
            expected = f"Error: {error}"
    assert (
        call({"calculate": calculate}, Database({}).session(), "calculate", {"expression": expression}, "retail").text
        == expected
    )


def work_out(expression: Any) -> str:
    return call(
        {"calculate": calculate}, Database({}).session(), "calculate", {"expression": expression}, "retail"
    ).text


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("2**10", "1024.0"),
        ("9**0.5", "3.0"),
        ("2**-1", "0.5"),
        ("7//2", "3.0"),
        ("-0.0", "-0.0"),
        ("2(**(3))", "Error: 2 argument after ** must be a mapping, not int"),
        ("9**400/9**399", "9.0"),
        ("9**9**9", "Error: int too large to convert to float"),
        ("9**-9**9", "0.0"),
        ("9.0**9999", "Error: (34, 'Numerical result out of range')"),
        ("__import__('os')", "Error: invalid characters in expression"),
        ("1e5", "Error: invalid characters in expression"),
        ("1,000", "Error: invalid characters in expression"),
        (5, "Error: 'int' object is not iterable"),
        (["1", "+", "1"], "Error: eval() arg 1 must be a string, bytes or code object"),
    ],
)
def test_what_it_works_out(expression: Any, answer: str) -> None:
    assert work_out(expression) == answer


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9",
        "(9**49000//9**20000)" + "+(9**49000//9**20000)" * 500,
        "+".join(["(" + "+".join(["9**49000"] * 500) + ")"] * 100),
        "*".join(["9**9999"] * 1000),
        "9" * 1_000_000,
        "-" * 1_000_000 + "1",
        "(" * 1_000_000,
        "1+" * 500_000 + "1",
        " " * 1_000_000,
        "1 " * 500_000,
    ],
    ids=lambda expression: str(expression)[:20],
)
def test_it_never_takes_long(expression: str) -> None:
    started = time.perf_counter()
    assert work_out(expression).startswith("Error: ")
    assert time.perf_counter() - started < 5


def test_it_warns_of_nothing_and_leaves_the_filters_of_warnings_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        assert work_out("2(3)") == "Error: 'int' object is not callable"
        assert work_out("(1)(2)(3)") == "Error: 'int' object is not callable"
        assert warnings.filters == before


# Corrections


def after(tools: ModuleType, data: dict[str, Any], corrected: bool, did: Did) -> tuple[Session, list[str]]:
    domain = world(tools, data, corrected)
    session = domain.session()
    return session, [domain.call(session, name, arguments).text for name, arguments in did]


def in_shop(corrected: bool, *did: tuple[str, dict[str, Any]]) -> tuple[Session, list[str]]:
    return after(retail, shop_data(), corrected, list(did))


def in_airline(corrected: bool, *did: tuple[str, dict[str, Any]]) -> tuple[Session, list[str]]:
    return after(airline, airline_data(), corrected, list(did))


def test_what_is_mended_is_written_down() -> None:
    assert {name: len(told) for name, told in CORRECTIONS.items()} == {"retail": 3, "airline": 5}


@pytest.mark.parametrize(("corrected", "balance", "refunds"), [(False, 160.6, 4), (True, 120.2, 2)])
def test_a_cancelled_order_refunds_what_is_still_paid(corrected: bool, balance: float, refunds: int) -> None:
    session, _ = in_shop(corrected, PAY_OTHERWISE, CANCEL)
    kinds = [entry["transaction_type"] for entry in session["orders"]["#W1"]["payment_history"]]
    assert session["users"]["ada_1"]["payment_methods"]["gift_card_1"]["balance"] == balance
    assert kinds.count("refund") == refunds


@pytest.mark.parametrize(("corrected", "amount"), [(False, 13.63 - 10.1), (True, 3.53)])
def test_differences_in_price_are_in_cents(corrected: bool, amount: float) -> None:
    session, _ = in_shop(corrected, ("modify_pending_order_items", CHANGE))
    assert session["orders"]["#W1"]["payment_history"][-1]["amount"] == amount
    assert 13.63 - 10.1 != 3.53


@pytest.mark.parametrize(
    "name", ["modify_pending_order_items", "exchange_delivered_order_items", "return_delivered_order_items"]
)
def test_nothing_at_all_is_not_changed_exchanged_or_returned(name: str) -> None:
    pending = name.startswith("modify")
    arguments = {"order_id": "#W1" if pending else "#W2", "item_ids": [], "payment_method_id": "gift_card_1"}
    if not name.startswith("return"):
        arguments["new_item_ids"] = []
    for corrected, status in ((False, "changed"), (True, "pending" if pending else "delivered")):
        session, (text,) = in_shop(corrected, (name, arguments))
        if corrected:
            assert text == "Error: no items are named"
            assert session["orders"][arguments["order_id"]]["status"] == status  # type: ignore[index]
        else:
            assert session["orders"][arguments["order_id"]]["status"] not in ("pending", "delivered")  # type: ignore[index]


@pytest.mark.parametrize(
    ("corrected", "text"), [(False, "Error: user not found"), (True, "Error: reservation not found")]
)
def test_a_reservation_that_is_missing_is_no_missing_user(corrected: bool, text: str) -> None:
    assert in_airline(corrected, ("get_reservation_details", {"reservation_id": "R9"}))[1] == [text]


@pytest.mark.parametrize(("corrected", "cabin"), [(False, "economy"), (True, "business")])
def test_a_changed_cabin_is_written_down(corrected: bool, cabin: str) -> None:
    session, _ = in_airline(corrected, UPGRADE)
    assert session["reservations"]["R1"]["cabin"] == cabin
    assert session["users"]["bo_1"]["payment_methods"]["gift_card_1"]["amount"] == 420


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(("day", "found"), [("2024-05-07", "2024-05-08"), ("2024-05-20", "2024-05-21")])
def test_connections_over_midnight(corrected: bool, day: str, found: str) -> None:
    _, (text,) = in_airline(corrected, ("search_onestop_flight", {"origin": "JFK", "destination": "SEA", "date": day}))
    pairs = [
        [(leg["flight_number"], leg["date"], leg["prices"]["economy"]) for leg in pair] for pair in json.loads(text)
    ]
    number = int(day[-2:])
    if not corrected and number < 9:
        assert pairs == []  # officially the day after has no zero
    else:
        assert pairs == [[("HAT1", day, 100 + number), ("HAT2", found, 200 + number + corrected)]]


def test_what_is_cancelled_stays_so() -> None:
    cancel = ("cancel_reservation", {"reservation_id": "R1"})
    session, texts = in_airline(False, cancel, cancel, UPGRADE, BAGS)
    assert not any(text.startswith("Error") for text in texts)
    session, texts = in_airline(True, cancel, cancel, UPGRADE, BAGS)
    assert texts[1:] == ["Error: the reservation is cancelled"] * 3
    assert len(session["reservations"]["R1"]["payment_history"]) == 2


def test_cancelling_over_and_over_stays_small() -> None:
    """Officially each time refunds all refunds as well: thirty calls would fill any memory."""
    cancel = ("cancel_reservation", {"reservation_id": "R1"})
    session, texts = in_airline(False, *[cancel] * 30)
    assert [len(json.loads(text)["payment_history"]) for text in texts[:14]] == [2**n for n in range(1, 15)]
    assert texts[14:] == ["Error: too many payments to refund"] * 16
    assert len(session["reservations"]["R1"]["payment_history"]) == 2**14


def test_changing_very_many_flights_takes_no_time_for_each_pair_of_them() -> None:
    def change(day: str, payment_id: str = "credit_card_1") -> tuple[str, dict[str, Any]]:
        flights = [{"flight_number": "HAT1", "date": day}] * 20_000
        return (UPGRADE[0], {**UPGRADE[1], "cabin": "economy", "flights": flights, "payment_id": payment_id})

    started = time.perf_counter()
    session, _ = in_airline(False, change("2024-05-20"), change("2024-05-21"), change("2024-05-21"))
    flights = session["reservations"]["R1"]["flights"]
    assert len(flights) == 20_000 and flights[-1]["price"] == 121
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("flight", "text"),
    [
        ({"flight_number": "HAT1", "date": ["2024-05-20"]}, "Error: unhashable type: 'list'"),
        ({"flight_number": ["HAT1"], "date": "2024-05-20"}, "Error: unhashable type: 'list'"),
        ({"flight_number": "HAT9", "date": ["2024-05-20"]}, "Error: flight HAT9 not found"),
        ({"flight_number": "HAT9"}, "Error: flight HAT9 not found"),
        ({"flight_number": "HAT1"}, "Error: 'date'"),
        ({"date": "2024-05-20"}, "Error: 'flight_number'"),
        ("HAT1", "Error: string indices must be integers, not 'str'"),
    ],
)
def test_a_flight_that_is_none_is_refused_as_officially(flight: Any, text: str) -> None:
    arguments = {**UPGRADE[1], "cabin": "economy", "flights": [flight]}
    assert in_airline(False, (UPGRADE[0], arguments))[1] == [text]


def test_ids_never_run_out() -> None:
    send = ("send_certificate", {"user_id": "bo_1", "amount": 10})
    for corrected, reservations, certificates in ((False, 4, 3), (True, 6, 5)):
        session, texts = in_airline(corrected, *[BOOK] * 5, *[send] * 5)
        methods = session["users"]["bo_1"]["payment_methods"]
        assert len(list(session["reservations"])) == reservations
        assert sum(name.startswith("certificate") for name in methods) == certificates
        assert ("Error: send_certificate gave no answer" in texts) is not corrected


# Domains


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


def test_thinking_and_handing_over_change_nothing() -> None:
    session = Database({}).session()
    assert call({"think": think}, session, "think", {"thought": "hm"}, "retail").text == ""
    tools = {"transfer_to_human_agents": transfer_to_human_agents}
    assert call(tools, session, "transfer_to_human_agents", {"summary": ""}, "retail").text == "Transfer successful"
