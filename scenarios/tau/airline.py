"""The tools of the airline: reservations, users, flights.

They do what the official tools do and check in the same order, including that an unknown reservation is reported as an
unknown user, that a changed cabin is not stored, and that bookings do not reduce the free seats. The docstrings are the
tools' schemas.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Literal

from marl_gem.scenarios.tau.common import calculate, think, transfer_to_human_agents
from marl_gem.scenarios.tau.database import Record, Session, copy_json
from marl_gem.scenarios.tau.tool import Refused, tool

NOW = "2024-05-15T15:00:00"
"""The time of every booking."""

AIRPORTS = {
    "SFO": "San Francisco",
    "JFK": "New York",
    "LAX": "Los Angeles",
    "ORD": "Chicago",
    "DFW": "Dallas",
    "DEN": "Denver",
    "SEA": "Seattle",
    "ATL": "Atlanta",
    "MIA": "Miami",
    "BOS": "Boston",
    "PHX": "Phoenix",
    "IAH": "Houston",
    "LAS": "Las Vegas",
    "MCO": "Orlando",
    "EWR": "Newark",
    "CLT": "Charlotte",
    "MSP": "Minneapolis",
    "DTW": "Detroit",
    "PHL": "Philadelphia",
    "LGA": "LaGuardia",
}

MOST_PAYMENTS = 10_000
"""A reservation with more payments cannot be cancelled."""

Cabin = Literal["basic_economy", "economy", "business"]


@tool
def book_reservation(
    db: Session,
    user_id: str,
    origin: str,
    destination: str,
    flight_type: Literal["one_way", "round_trip"],
    cabin: Cabin,
    flights: list[dict],  # type: ignore[type-arg]
    passengers: list[dict],  # type: ignore[type-arg]
    payment_methods: list[dict],  # type: ignore[type-arg]
    total_baggages: int,
    nonfree_baggages: int,
    insurance: Literal["yes", "no"],
) -> str:
    """Book flights. The customer must have agreed to all details.

    Args:
        user_id: The customer's id.
        origin: The airport it begins at, as three letters.
        destination: The airport it leads to, as three letters.
        flight_type: There alone, or there and back.
        cabin: The cabin, the same on all flights.
        flights: Each as {"flight_number": ..., "date": "YYYY-MM-DD"}.
        passengers: Each as {"first_name": ..., "last_name": ..., "dob": "YYYY-MM-DD"}.
        payment_methods: Each as {"payment_id": ..., "amount": ...}; the amounts must sum to the price.
        total_baggages: How many pieces of baggage there are.
        nonfree_baggages: How many of them cost extra.
        insurance: Whether the trip is insured.
    """
    if user_id not in db["users"]:
        raise Refused("user not found")
    user = db["users"][user_id]
    reservation_id = "HATHAT"
    if reservation_id in db["reservations"]:
        reservation_id = "HATHAU"
        if reservation_id in db["reservations"]:
            reservation_id = _free(db["reservations"], "HATH{}", start=100) if db.corrected else "HATHAV"
    segments = copy_json(flights)
    total_price: Any = 0
    for flight in segments:
        _price_now(db, flight, cabin, passengers)
        total_price += flight["price"] * len(passengers)
    if insurance == "yes":
        total_price += 30 * len(passengers)
    total_price += 50 * nonfree_baggages
    for payment in payment_methods:
        method_id, amount = payment["payment_id"], payment["amount"]
        if method_id not in user["payment_methods"]:
            raise Refused(f"payment method {method_id} not found")
        method = user["payment_methods"][method_id]
        if method["source"] in ["gift_card", "certificate"] and method["amount"] < amount:
            raise Refused(f"not enough balance in payment method {method_id}")
    paid = sum(payment["amount"] for payment in payment_methods)
    if paid != total_price:
        raise Refused(f"payment amount does not add up, total price is {total_price}, but paid {paid}")
    user = db["users"].edit(user_id)
    for payment in payment_methods:
        method_id = payment["payment_id"]
        method = user["payment_methods"][method_id]
        if method["source"] == "gift_card":
            method["amount"] -= payment["amount"]
        elif method["source"] == "certificate":
            del user["payment_methods"][method_id]  # including what remains of it
    reservation = {
        "reservation_id": reservation_id,
        "user_id": user_id,
        "origin": origin,
        "destination": destination,
        "flight_type": flight_type,
        "cabin": cabin,
        "flights": segments,
        "passengers": passengers,
        "payment_history": payment_methods,
        "created_at": NOW,
        "total_baggages": total_baggages,
        "nonfree_baggages": nonfree_baggages,
        "insurance": insurance,
    }
    db["reservations"].add(reservation_id, reservation)
    user["reservations"].append(reservation_id)
    return json.dumps(reservation)


@tool
def cancel_reservation(db: Session, reservation_id: str) -> str:
    """Cancel a whole reservation. The customer must have agreed.

    Args:
        reservation_id: The reservation's id, such as 'ZFA04Y'.
    """
    if len(_reservation(db, reservation_id)["payment_history"]) > MOST_PAYMENTS:
        raise Refused("too many payments to refund")  # officially refunds are refunded too: the list doubles
    reservation = db["reservations"].edit(reservation_id)
    refunds = [
        {"payment_id": payment["payment_id"], "amount": -payment["amount"]}
        for payment in reservation["payment_history"]
    ]
    reservation["payment_history"].extend(refunds)
    reservation["status"] = "cancelled"
    return json.dumps(reservation)


@tool
def get_reservation_details(db: Session, reservation_id: str) -> str:
    """Look up a reservation.

    Args:
        reservation_id: The reservation's id.
    """
    if reservation_id not in db["reservations"]:
        raise Refused("reservation not found" if db.corrected else "user not found")
    return json.dumps(db["reservations"][reservation_id])


@tool
def get_user_details(db: Session, user_id: str) -> str:
    """Look up a customer, with payment methods and reservations.

    Args:
        user_id: The customer's id.
    """
    if user_id not in db["users"]:
        raise Refused("user not found")
    return json.dumps(db["users"][user_id])


@tool
def list_all_airports(db: Session) -> str:
    """List all airports and their cities."""
    return json.dumps(AIRPORTS)


@tool
def search_direct_flight(db: Session, origin: str, destination: str, date: str) -> str:
    """Find direct flights on a day.

    Args:
        origin: The airport it begins at, as three letters.
        destination: The airport it leads to, as three letters.
        date: The day, as YYYY-MM-DD.
    """
    found = []
    for flight in _flights_from(db, origin):
        if flight["destination"] == destination and date in flight["dates"]:
            day = flight["dates"][date]
            if day["status"] == "available":
                found.append(_without_dates(flight) | day)
    return json.dumps(found)


@tool
def search_onestop_flight(db: Session, origin: str, destination: str, date: str) -> str:
    """Find connections with one stop on a day.

    Args:
        origin: The airport it begins at, as three letters.
        destination: The airport it leads to, as three letters.
        date: The day, as YYYY-MM-DD.
    """
    found = []
    for first in _flights_from(db, origin):
        for second in _flights_from(db, first["destination"]):
            if second["destination"] != destination:
                continue
            overnight = "+1" in first["scheduled_arrival_time_est"]
            second_date = _next_day(date, db.corrected) if overnight else date
            if first["scheduled_arrival_time_est"] > second["scheduled_departure_time_est"]:
                continue
            if date not in first["dates"] or second_date not in second["dates"]:
                continue
            if first["dates"][date]["status"] != "available" or second["dates"][second_date]["status"] != "available":
                continue
            found.append(
                [
                    _without_dates(first) | first["dates"][date] | {"date": date},
                    _without_dates(second)
                    | second["dates"][second_date if db.corrected else date]  # the official code takes the first day's
                    | {"date": second_date},
                ]
            )
    return json.dumps(found)


@tool
def send_certificate(db: Session, user_id: str, amount: int) -> str | None:
    """Give a customer a certificate, as compensation. Only where policy allows it.

    Args:
        user_id: The customer's id.
        amount: What it is worth, in dollars.
    """
    if user_id not in db["users"]:
        raise Refused("user not found")
    for number in (3221322, 3221323, 3221324):
        method_id = f"certificate_{number}"
        if method_id not in db["users"][user_id]["payment_methods"]:
            user = db["users"].edit(user_id)
            user["payment_methods"][method_id] = {"source": "certificate", "amount": amount, "id": method_id}
            return f"Certificate {method_id} added to user {user_id} with amount {amount}."
    if not db.corrected:
        return None
    method_id = _free(db["users"][user_id]["payment_methods"], "certificate_{}", start=3221325)
    certificate = {"source": "certificate", "amount": amount, "id": method_id}
    db["users"].edit(user_id)["payment_methods"][method_id] = certificate
    return f"Certificate {method_id} added to user {user_id} with amount {amount}."


@tool
def update_reservation_baggages(
    db: Session, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
) -> str:
    """Change how much baggage a reservation has. The customer must have agreed.

    Args:
        reservation_id: The reservation's id.
        total_baggages: How many pieces there are from now on.
        nonfree_baggages: How many of them cost extra.
        payment_id: The customer's payment method.
    """
    reservation = _reservation(db, reservation_id)
    price = 50 * max(0, nonfree_baggages - reservation["nonfree_baggages"])
    _check_method(db, reservation, payment_id, price)
    reservation = db["reservations"].edit(reservation_id)
    reservation["total_baggages"] = total_baggages
    reservation["nonfree_baggages"] = nonfree_baggages
    _pay(db, reservation, payment_id, price)
    return json.dumps(reservation)


@tool
def update_reservation_flights(
    db: Session,
    reservation_id: str,
    cabin: Cabin,
    flights: list[dict],  # type: ignore[type-arg]
    payment_id: str,
) -> str:
    """Change a reservation's flights or cabin. The customer must have agreed.

    Args:
        reservation_id: The reservation's id.
        cabin: The cabin, the same on all flights.
        flights: All flights from now on, those that stay too, each as {"flight_number": ..., "date": "YYYY-MM-DD"}.
        payment_id: The customer's payment method.
    """
    reservation = _reservation(db, reservation_id)
    passengers = reservation["passengers"]
    total_price: Any = 0
    segments = copy_json(flights)
    booked = {(old["flight_number"], old["date"]): old for old in reversed(reservation["flights"])}
    for flight in segments:
        segment = flight["flight_number"], flight.get("date")
        if cabin == reservation["cabin"] and all(isinstance(part, str) for part in segment) and segment in booked:
            flight |= {name: booked[segment][name] for name in ("price", "origin", "destination")}
        else:
            _price_now(db, flight, cabin, passengers)
        total_price += flight["price"] * len(passengers)
    total_price -= sum(old["price"] for old in reservation["flights"]) * len(passengers)
    _check_method(db, reservation, payment_id, total_price)
    reservation = db["reservations"].edit(reservation_id)
    reservation["flights"] = segments
    if db.corrected:
        reservation["cabin"] = cabin
    _pay(db, reservation, payment_id, total_price)
    return json.dumps(reservation)


@tool
def update_reservation_passengers(db: Session, reservation_id: str, passengers: list[dict]) -> str:  # type: ignore[type-arg]
    """Change who flies. The customer must have agreed.

    Args:
        reservation_id: The reservation's id.
        passengers: As many as before, each as {"first_name": ..., "last_name": ..., "dob": "YYYY-MM-DD"}.
    """
    reservation = _reservation(db, reservation_id)
    if len(passengers) != len(reservation["passengers"]):
        raise Refused("number of passengers does not match")
    reservation = db["reservations"].edit(reservation_id)
    reservation["passengers"] = passengers
    return json.dumps(reservation)


TOOLS = (
    book_reservation,
    calculate,
    cancel_reservation,
    get_reservation_details,
    get_user_details,
    list_all_airports,
    search_direct_flight,
    search_onestop_flight,
    send_certificate,
    think,
    transfer_to_human_agents,
    update_reservation_baggages,
    update_reservation_flights,
    update_reservation_passengers,
)
TABLES = ("flights", "reservations", "users")
TERMINATING = frozenset({"transfer_to_human_agents"})


def _reservation(db: Session, reservation_id: str) -> Record:
    if reservation_id not in db["reservations"]:
        raise Refused("reservation not found")
    reservation = db["reservations"][reservation_id]
    if db.corrected and reservation.get("status") == "cancelled":
        raise Refused("the reservation is cancelled")
    return reservation


def _price_now(db: Session, flight: Record, cabin: str, passengers: Any) -> None:
    """Check that a flight is available, and write its price, origin and destination into the segment."""
    number = flight["flight_number"]
    if number not in db["flights"]:
        raise Refused(f"flight {number} not found")
    known = db["flights"][number]
    if flight["date"] not in known["dates"]:
        raise Refused(f"flight {number} not found on date {flight['date']}")
    day = known["dates"][flight["date"]]
    if day["status"] != "available":
        raise Refused(f"flight {number} not available on date {flight['date']}")
    if day["available_seats"][cabin] < len(passengers):
        raise Refused(f"not enough seats on flight {number}")
    flight["price"] = day["prices"][cabin]
    flight["origin"] = known["origin"]
    flight["destination"] = known["destination"]


def _next_day(date: str, corrected: bool) -> str:
    """The next day; the official code writes no zero before a single digit, so such a day is never found."""
    day = int(date[-2:]) + 1
    return f"{date[:-2]}{day:02}" if corrected else f"2024-05-{day}"


def _free(taken: Any, pattern: str, start: int) -> str:
    """The first id of this pattern, counting from `start`, that is not in use."""
    return next(name for name in map(pattern.format, itertools.count(start)) if name not in taken)


def _check_method(db: Session, reservation: Record, payment_id: str, price: Any) -> None:
    methods = db["users"][reservation["user_id"]]["payment_methods"]
    if payment_id not in methods:
        raise Refused("payment method not found")
    if methods[payment_id]["source"] == "certificate":
        raise Refused("certificate cannot be used to update reservation")
    if methods[payment_id]["source"] == "gift_card" and methods[payment_id]["amount"] < price:
        raise Refused("gift card balance is not enough")


def _pay(db: Session, reservation: Record, payment_id: str, price: Any) -> None:
    user = db["users"].edit(reservation["user_id"])
    if user["payment_methods"][payment_id]["source"] == "gift_card":
        user["payment_methods"][payment_id]["amount"] -= price
    if price != 0:
        reservation["payment_history"].append({"payment_id": payment_id, "amount": price})


def _without_dates(flight: Record) -> Record:
    return {name: value for name, value in flight.items() if name != "dates"}


def _flights_from(db: Session, origin: Any) -> list[Record]:
    """All flights from an airport in the order of the file; cached for all episodes, as no tool changes them."""
    indexes = db.database.indexes
    if "origin" not in indexes:
        found: dict[str, list[Record]] = {}
        for flight in db.database.tables["flights"].values():
            found.setdefault(flight["origin"], []).append(flight)
        indexes["origin"] = found
    return indexes["origin"].get(origin, []) if isinstance(origin, str) else []  # type: ignore[no-any-return]
