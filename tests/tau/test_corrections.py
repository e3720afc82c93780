"""What the official tools do, oddities included, and what corrected domains do instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marl_gem.scenarios.tau.domain import CORRECTIONS
from tests.tau.counting import count_calls
from tests.tau.worlds import (
    BAGS,
    BOOK,
    CANCEL,
    CHANGE,
    PAY_OTHERWISE,
    UPGRADE,
    in_airline,
    in_shop,
)


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
    arguments: dict[str, Any] = {
        "order_id": "#W1" if pending else "#W2",
        "item_ids": [],
        "payment_method_id": "gift_card_1",
    }
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


@pytest.mark.slow
def test_the_work_of_changing_flights_grows_in_proportion_to_their_number() -> None:
    def change(number: int, day: str, payment_id: str = "credit_card_1") -> tuple[str, dict[str, Any]]:
        flights = [{"flight_number": "HAT1", "date": day}] * number
        return (UPGRADE[0], {**UPGRADE[1], "cabin": "economy", "flights": flights, "payment_id": payment_id})

    def change_thrice(number: int) -> None:
        days = ("2024-05-20", "2024-05-21", "2024-05-21")
        session, _ = in_airline(False, *(change(number, day) for day in days))
        flights = session["reservations"]["R1"]["flights"]
        assert len(flights) == number and flights[-1]["price"] == 121

    change_thrice(20_000)
    assert count_calls(lambda: change_thrice(4_000)) < 2.2 * count_calls(lambda: change_thrice(2_000))


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


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"flights": [{"flight_number": "HAT9", "date": "2024-05-20"}], "passengers": 1}, "flight HAT9 not found"),
        (
            {"flights": [{"flight_number": "HAT1", "date": "2023-01-01"}], "passengers": None},
            "flight HAT1 not found on date 2023-01-01",
        ),
        ({"cabin": "first", "passengers": 1}, "'first'"),
        ({"passengers": 1}, "object of type 'int' has no len()"),
        ({"flights": [], "passengers": 1, "insurance": "no", "payment_methods": []}, ""),
        ({"flights": [], "passengers": 1, "insurance": "yes"}, "object of type 'int' has no len()"),
        ({"payment_methods": [{"payment_id": "nobody's"}]}, "'amount'"),
        ({"payment_methods": [{"amount": 120}]}, "'payment_id'"),
        ({"payment_methods": [{"payment_id": "nobody's", "amount": 120}]}, "payment method nobody's not found"),
        ({"payment_methods": [{"payment_id": "credit_card_1"}]}, "'amount'"),
    ],
)
def test_a_booking_is_checked_in_the_official_order(changes: dict[str, Any], text: str) -> None:
    """As in the official `book_reservation.py`: passengers are counted, and amounts looked up, where it does."""
    (answer,) = in_airline(False, (BOOK[0], {**BOOK[1], **changes}))[1]
    assert answer == f"Error: {text}" if text else not answer.startswith("Error")
