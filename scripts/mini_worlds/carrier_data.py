"""The data of the small airline: flights, customers and reservations.

The time is that of every booking, `airline.NOW`; `policy.md` states it too.
"""

from __future__ import annotations

import itertools
import random
from datetime import date, datetime, timedelta

from marl_gem.scenarios.tau import airline
from scripts.mini_worlds.people import Inventor, Record

CUSTOMERS = 54
RESERVATIONS = 162

TODAY = date.fromisoformat(airline.NOW[:10])
CLOCK = airline.NOW[11:16]
DAYS = [str(TODAY + timedelta(days=days)) for days in range(-3, 11)]
ROUTES = {
    ("SEA", "DEN"): 155,
    ("SEA", "ORD"): 240,
    ("DEN", "ORD"): 140,
    ("DEN", "PHX"): 110,
    ("ORD", "BOS"): 130,
    ("ORD", "ATL"): 115,
    ("ATL", "MIA"): 100,
    ("ATL", "BOS"): 150,
    ("PHX", "ATL"): 225,
}
"""The pairs of cities that are flown between, both ways, and the minutes that takes."""
DEPARTURES = ("07:20", "16:40")
CABINS = ("basic_economy", "economy", "business")
FREE_BAGS = {
    "regular": {"basic_economy": 0, "economy": 1, "business": 2},
    "silver": {"basic_economy": 1, "economy": 2, "business": 3},
    "gold": {"basic_economy": 2, "economy": 3, "business": 4},
}
"""How many bags each passenger may check for nothing, by the customer's membership and the cabin."""
COMPENSATION = 80
"""Dollars a passenger, for a flight that the airline cancelled."""


def make_tables(rng: random.Random) -> dict[str, dict[str, Record]]:
    inventor = Inventor(rng)
    pairs = [pair for route in ROUTES for pair in (route, route[::-1])]
    legs = [(origin, destination, clock) for origin, destination in pairs for clock in DEPARTURES]
    flights = {f"HAT{number}": _flight(rng, f"HAT{number}", *leg) for number, leg in enumerate(legs, 501)}
    users = dict(_user(inventor) for _ in range(CUSTOMERS))
    owners = itertools.islice(itertools.cycle(users.items()), RESERVATIONS)
    reservations = dict(_reservation(inventor, *owner, list(flights.values())) for owner in owners)
    return {"flights": flights, "reservations": reservations, "users": users}


def _flight(rng: random.Random, number: str, origin: str, destination: str, clock: str) -> Record:
    minutes = ROUTES.get((origin, destination)) or ROUTES[destination, origin]
    departure = datetime.fromisoformat(f"{TODAY}T{clock}") + timedelta(minutes=5 * rng.randrange(0, 24))
    arrival = departure + timedelta(minutes=minutes)
    return {
        "flight_number": number,
        "origin": origin,
        "destination": destination,
        "scheduled_departure_time_est": f"{departure:%H:%M:%S}",
        "scheduled_arrival_time_est": f"{arrival:%H:%M:%S}",
        "dates": {day: _day(rng, day, departure, arrival, minutes) for day in DAYS},
    }


def _day(rng: random.Random, day: str, departure: datetime, arrival: datetime, minutes: int) -> Record:
    """What is known of a flight on a day, seen from `airline.NOW`."""
    if rng.random() < 0.1:
        return {"status": "cancelled"}
    if day > str(TODAY):
        base = minutes // 2 + rng.randrange(10, 60)
        prices = (base, base + rng.randrange(25, 80), 3 * base + rng.randrange(0, 90))
        seats = {cabin: rng.choice([0, 1, 2, 4, 7, 9, 12, 15]) for cabin in CABINS}
        return {"status": "available", "available_seats": seats, "prices": dict(zip(CABINS, prices, strict=True))}
    late = timedelta(minutes=rng.randrange(-5, 40))
    leaves, lands = (f"{day}T{moment + late:%H:%M:%S}" for moment in (departure, arrival))
    if lands <= airline.NOW:
        return {"status": "landed", "actual_departure_time_est": leaves, "actual_arrival_time_est": lands}
    if leaves <= airline.NOW:
        return {"status": "flying", "actual_departure_time_est": leaves, "estimated_arrival_time_est": lands}
    status = "delayed" if late > timedelta(minutes=15) else "on time"
    return {"status": status, "estimated_departure_time_est": leaves, "estimated_arrival_time_est": lands}


def _user(inventor: Inventor) -> tuple[str, Record]:
    rng = inventor.rng
    user_id, person = inventor.person()
    methods: list[Record] = [
        inventor.credit_card(),
        {"source": "gift_card", "amount": rng.randrange(40, 400), "id": f"gift_card_{inventor.number(7)}"},
        {"source": "certificate", "amount": rng.choice([100, 150, 250]), "id": f"certificate_{inventor.number(7)}"},
    ]
    kept = [methods[0], *(method for method in methods[1:] if rng.random() < 0.6)]
    person["dob"] = _birthday(rng)
    person["payment_methods"] = {method["id"]: method for method in kept}
    person["saved_passengers"] = [_passenger(inventor) for _ in range(rng.choice([1, 1, 2]))]
    person["membership"] = rng.choice(list(FREE_BAGS))
    person["reservations"] = []
    return user_id, person


def _passenger(inventor: Inventor) -> Record:
    name = inventor.person()[1]["name"]
    return {**name, "dob": _birthday(inventor.rng)}


def _birthday(rng: random.Random) -> str:
    return f"{rng.randrange(1948, 2004)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def _reservation(inventor: Inventor, user_id: str, user: Record, flights: list[Record]) -> tuple[str, Record]:
    rng, reservation_id = inventor.rng, inventor.code()
    user["reservations"].append(reservation_id)
    cabin, insured = rng.choice(["basic_economy", "economy", "economy", "business"]), rng.random() < 0.4
    out = rng.choice(flights)
    back = rng.choice([f for f in flights if (f["origin"], f["destination"]) == (out["destination"], out["origin"])])
    first, second = sorted(rng.sample(DAYS if rng.random() < 0.2 else DAYS[4:], 2))
    legs = [(out, first), (back, second)][: rng.choice([1, 2])]
    segments = [
        {
            "origin": flight["origin"],
            "destination": flight["destination"],
            "flight_number": flight["flight_number"],
            "date": day,
            "price": {"basic_economy": 80, "economy": 130, "business": 350}[cabin] + rng.randrange(0, 90),
        }
        for flight, day in legs
    ]
    passengers = [as_passenger(user), *user["saved_passengers"]][: rng.choice([1, 1, 2, 3])]
    paid_bags = rng.choice([0, 0, 0, 1])
    free_bags = FREE_BAGS[user["membership"]][cabin] * len(passengers)
    bags = free_bags + 1 if paid_bags else rng.randrange(0, free_bags + 1)
    recent = first > str(TODAY) and rng.random() < 0.25
    before = timedelta(minutes=rng.randrange(30, 1400)) if recent else timedelta(minutes=rng.randrange(8000, 14000))
    cards = [method["id"] for method in user["payment_methods"].values() if method["source"] != "certificate"]
    price = sum(segment["price"] for segment in segments) + 30 * insured
    return reservation_id, {
        "reservation_id": reservation_id,
        "user_id": user_id,
        "origin": out["origin"],
        "destination": out["destination"],
        "flight_type": "one_way" if len(legs) == 1 else "round_trip",
        "cabin": cabin,
        "flights": segments,
        "passengers": passengers,
        "payment_history": [{"payment_id": rng.choice(cards), "amount": price * len(passengers) + 50 * paid_bags}],
        "created_at": (datetime.fromisoformat(airline.NOW) - before).isoformat(),
        "total_baggages": bags,
        "nonfree_baggages": paid_bags,
        "insurance": "yes" if insured else "no",
    }


def as_passenger(user: Record) -> Record:
    return {**user["name"], "dob": user["dob"]}
