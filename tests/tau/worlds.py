"""A small shop and a small airline in the schema of the official domains, and calls of all their tools."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from marl_gem.scenarios.tau import airline, retail
from marl_gem.scenarios.tau.database import Database, Session
from marl_gem.scenarios.tau.domain import Domain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)

Did = list[tuple[str, dict[str, Any]]]


def tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Two small tables of anything."""
    return {"u": {"b": {"list": [1]}, "a": {"x": 1.0, "list": []}}, "t": {"a": {"z": {}, "list": [{}]}}}


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


def after(tools: ModuleType, data: dict[str, Any], corrected: bool, did: Did) -> tuple[Session, list[str]]:
    """The data after these calls, and their answers."""
    domain = world(tools, data, corrected)
    session = domain.session()
    return session, [domain.call(session, name, arguments).text for name, arguments in did]


def in_shop(corrected: bool, *did: tuple[str, dict[str, Any]]) -> tuple[Session, list[str]]:
    return after(retail, shop_data(), corrected, list(did))


def in_airline(corrected: bool, *did: tuple[str, dict[str, Any]]) -> tuple[Session, list[str]]:
    return after(airline, airline_data(), corrected, list(did))
