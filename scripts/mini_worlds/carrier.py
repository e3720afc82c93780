"""The small airline: flights, customers and reservations, and what customers of it want.

The moment is the one at which the tools make every booking, `airline.NOW`; `policy.md` tells it, too.
"""

from __future__ import annotations

import itertools
import random
from datetime import date, datetime, timedelta
from typing import Any

from marl_gem.scenarios.tau import airline
from scripts.mini_worlds.cases import Case, Drawing, Template, Unfit, lines
from scripts.mini_worlds.people import LAST, Inventor, Record, tell_method

SEED = "the small airline"
CUSTOMERS = 54
RESERVATIONS = 162
SPLITS = {
    "test": {
        "lookup": 6,
        "one change": 12,
        "several changes": 10,
        "conditional": 10,
        "refusal": 6,
        "transfer": 4,
    },
    "train": {
        "lookup": 7,
        "one change": 14,
        "several changes": 12,
        "conditional": 12,
        "refusal": 9,
        "transfer": 6,
    },
}

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
FIRM = (
    "If that cannot be done, you want nothing else.",
    "You accept no other solution, but you take a no for an answer.",
    "If they say no, you leave everything as it is.",
)


def build() -> dict[str, str]:
    """The airline's files: their names, and their texts."""
    rng = random.Random(SEED)
    tables = _tables(rng)
    drawing = Drawing(CarrierCase, airline, "airline", tables, TEMPLATES, rng)
    return {
        **{f"data/{name}.json": lines(records) for name, records in tables.items()},
        **{f"tasks_{split}.json": lines(drawing.tasks(counts)) for split, counts in SPLITS.items()},
    }


# The data


def _tables(rng: random.Random) -> dict[str, dict[str, Record]]:
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
    passengers = [_self(user), *user["saved_passengers"]][: rng.choice([1, 1, 2, 3])]
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


def _self(user: Record) -> Record:
    return {**user["name"], "dob": user["dob"]}


# What customers want


class CarrierCase(Case):
    """A customer of the airline."""

    def meet(self, user_id: str) -> Record:
        """The customer says who it is, and the assistant looks it up."""
        self.user_id, self.user = user_id, self.domain.database.tables["users"][user_id]
        first, last = self.user["name"].values()
        self.say(
            f"You are {first} {last}, and your user id is {user_id}.",
            f"Your name is {first} {last}. You fly with this airline under the user id {user_id}.",
            f"You are {first} {last}. You tell your user id, {user_id}, when you are asked for it.",
        )
        self.look("get_user_details", user_id=user_id)
        return self.user

    def trip(self, test: Any = lambda reservation: True, *, of: str = "", dropped: bool = False) -> Record:
        """A reservation that no other case is about, of this customer, or the customer is met.

        All of it is still to be flown; the airline dropped one of its flights or did not.
        """
        trip = self.pick(
            "reservations",
            lambda r: (
                r["flights"][0]["date"] > str(TODAY)
                and of in ("", r["user_id"])
                and ("cancelled" in self.statuses(r)) == dropped
                and test(r)
            ),
        )
        if not of:
            self.meet(trip["user_id"])
        return trip

    def refer(self, trip: Record) -> str:
        """What the customer calls one of its reservations; the assistant looks it up, among others if it must."""
        reservation_id = trip["reservation_id"]
        if reservation_id not in self.called:
            self.called[reservation_id] = self._describe(trip)
        return self.called[reservation_id]

    def _describe(self, trip: Record) -> str:
        table, mine = self.domain.database.tables["reservations"], self.user["reservations"]
        same = [other for other in mine if _route(table[other]) == _route(trip)]
        if len(same) > 1 or self.rng.random() < 0.6:
            self.look("get_reservation_details", reservation_id=trip["reservation_id"])
            return f"reservation {trip['reservation_id']}"
        for reservation_id in mine[: mine.index(trip["reservation_id"]) + 1]:
            self.look("get_reservation_details", reservation_id=reservation_id)
        return f"your trip from {_city(trip['origin'])} to {_city(trip['destination'])}"

    def statuses(self, trip: Record) -> list[str]:
        """The status of each flight of a reservation."""
        flights = self.domain.database.tables["flights"]
        return [flights[leg["flight_number"]]["dates"][leg["date"]]["status"] for leg in trip["flights"]]

    def card(self) -> Record:
        """What may pay for a change."""
        return self.choose(m for m in self.user["payment_methods"].values() if m["source"] != "certificate")

    def route(self) -> tuple[str, str, str]:
        """From where to where, and on which day; there are flights."""
        flight = self.choose(self.domain.database.tables["flights"].values())
        return flight["origin"], flight["destination"], self.choose(DAYS[4:])

    def search(self, origin: str, destination: str, day: str) -> list[Record]:
        return self.look("search_direct_flight", origin=origin, destination=destination, date=day)  # type: ignore[no-any-return]

    def may_be_compensated(self, trip: Record) -> bool:
        membership = self.domain.database.tables["users"][trip["user_id"]]["membership"]
        return bool(membership != "regular" or trip["insurance"] == "yes" or trip["cabin"] == "business")

    def cancel(self, trip: Record) -> None:
        self.call("cancel_reservation", reservation_id=trip["reservation_id"])

    def book(self, legs: list[tuple[Record, str]], cabin: str, passengers: list[Record], **wishes: Any) -> int:
        """Book flights, one way; what it costs. `wishes`: bags, insured, methods (what pays, in this order)."""
        bags, insured = wishes.get("bags", 0), wishes.get("insured", False)
        free = FREE_BAGS[self.user["membership"]][cabin] * len(passengers)
        paid_bags = max(0, bags - free)
        price = sum(flight["prices"][cabin] for flight, _ in legs) + 30 * insured
        total: int = price * len(passengers) + 50 * paid_bags
        due = total
        payments = []
        for method in wishes["methods"]:
            amount = min(due, method.get("amount", due))
            payments.append({"payment_id": method["id"], "amount": amount})
            due -= amount
        self.call(
            "book_reservation",
            user_id=self.user_id,
            origin=legs[0][0]["origin"],
            destination=legs[-1][0]["destination"],
            flight_type="one_way",
            cabin=cabin,
            flights=[{"flight_number": flight["flight_number"], "date": day} for flight, day in legs],
            passengers=passengers,
            payment_methods=payments,
            total_baggages=bags,
            nonfree_baggages=paid_bags,
            insurance="yes" if insured else "no",
        )
        return total

    def add_bags(self, trip: Record, more: int, method: Record) -> None:
        free = FREE_BAGS[self.user["membership"]][trip["cabin"]] * len(trip["passengers"])
        bags = trip["total_baggages"] + more
        paid_bags = max(trip["nonfree_baggages"], bags - free)
        self.call(
            "update_reservation_baggages",
            reservation_id=trip["reservation_id"],
            total_baggages=bags,
            nonfree_baggages=paid_bags,
            payment_id=method["id"],
        )

    def refly(self, trip: Record, cabin: str, legs: list[Record], method: Record) -> None:
        """Give a reservation other flights or another cabin."""
        self.call(
            "update_reservation_flights",
            reservation_id=trip["reservation_id"],
            cabin=cabin,
            flights=[{"flight_number": leg["flight_number"], "date": leg["date"]} for leg in legs],
            payment_id=method["id"],
        )

    def next_day(self, trip: Record) -> list[Record]:
        """The same flights, but the last one a day later; the assistant looks for it.

        Raises:
            Unfit: it cannot be had.
        """
        last = trip["flights"][-1]
        day = str(date.fromisoformat(last["date"]) + timedelta(days=1))
        if day not in DAYS:
            raise Unfit
        found = self.search(last["origin"], last["destination"], day)
        if last["flight_number"] not in [flight["flight_number"] for flight in found]:
            raise Unfit
        return [*trip["flights"][:-1], {**last, "date": day}]


def _is_recent(trip: Record) -> bool:
    """Whether it was booked within the last 24 hours."""
    age = datetime.fromisoformat(airline.NOW) - datetime.fromisoformat(trip["created_at"])
    return age <= timedelta(days=1)


def _may_cancel(trip: Record) -> bool:
    """Whether it may be cancelled whatever the reason."""
    return _is_recent(trip) or trip["cabin"] == "business"


def _route(trip: Record) -> tuple[str, str]:
    return trip["origin"], trip["destination"]


def _city(airport: str) -> str:
    return airline.AIRPORTS[airport]


def _when(day: str) -> str:
    return f"{date.fromisoformat(day):%B} {int(day[-2:])}"


def _cabin(cabin: str) -> str:
    return cabin.replace("_", " ")


def _full_name(passenger: Record) -> str:
    return f"{passenger['first_name']} {passenger['last_name']}"


# Lookups


def ask_fare(case: CarrierCase) -> None:
    case.customer()
    origin, destination, day = case.route()
    cabin, passengers = case.choose(CABINS[1:]), case.choose([1, 2, 3])
    prices = [
        flight["prices"][cabin]
        for flight in case.search(origin, destination, day)
        if flight["available_seats"][cabin] >= passengers
    ]
    if not prices:
        raise Unfit
    case.say(
        f"You want to know what {passengers} {'seat' if passengers == 1 else 'seats'} in {_cabin(cabin)} from "
        f"{_city(origin)} to {_city(destination)} cost on {_when(day)}, on the cheapest direct flight that has room. "
        "You do not book anything today."
    )
    case.tell(min(prices) * passengers)


def ask_paid(case: CarrierCase) -> None:
    trip = case.trip()
    case.say(
        f"You want to know what you paid for {case.refer(trip)} altogether.",
        f"Your employer asks what {case.refer(trip)} cost. You want to hear the total.",
    )
    case.tell(trip["payment_history"][0]["amount"])


def ask_upgrade(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "business")
    extra = _upgrade_price(case, trip)
    case.say(
        f"You consider business for {case.refer(trip)}, for all who fly on it, and want to know how much you would "
        "have to pay on top. You only ask; you change nothing."
    )
    case.tell(extra)


def ask_credit(case: CarrierCase) -> None:
    user = case.customer()
    credit = [m["amount"] for m in user["payment_methods"].values() if m["source"] != "credit_card"]
    if len(credit) < 2:
        raise Unfit
    case.say(
        "You want to know how much you have in gift cards and certificates, all added up.",
        "You ask for one number: the sum of all gift cards and certificates that you have.",
    )
    case.call("calculate", expression=" + ".join(map(str, credit)))
    case.tell(sum(credit))


def _upgrade_price(case: CarrierCase, trip: Record) -> int:
    """What business costs on top for all of a reservation; the assistant looks it up.

    Raises:
        Unfit: there is no room, or it costs nothing.
    """
    case.refer(trip)
    extra = 0
    for leg in trip["flights"]:
        found = case.search(leg["origin"], leg["destination"], leg["date"])
        offered = [flight for flight in found if flight["flight_number"] == leg["flight_number"]]
        if not offered or offered[0]["available_seats"]["business"] < len(trip["passengers"]):
            raise Unfit
        extra += (offered[0]["prices"]["business"] - leg["price"]) * len(trip["passengers"])
    if extra <= 0:
        raise Unfit
    return extra


# One change


def cancel_business(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "business")
    case.say(
        f"Your plans have changed, and you want to cancel {case.refer(trip)}.",
        f"You will not travel after all. Please have {case.refer(trip)} cancelled.",
    )
    case.say("You ask how much you get back.")
    case.tell(trip["payment_history"][0]["amount"])
    case.cancel(trip)


def cancel_insured(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["insurance"] == "yes" and not _may_cancel(r))
    case.say(
        f"You have fallen ill and cannot fly, so {case.refer(trip)} is to be cancelled.",
        f"You want to cancel {case.refer(trip)}: a storm is forecast, and you will not fly in that weather.",
    )
    case.cancel(trip)


def cancel_recent(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "business" and _is_recent(r))
    case.say(
        f"You booked {case.refer(trip)} a few hours ago and have changed your mind. You want to cancel it.",
        f"You regret {case.refer(trip)}, which you have only just booked, and want it cancelled.",
    )
    case.cancel(trip)


def more_bags(case: CarrierCase) -> None:
    trip, more = case.trip(), case.choose([1, 2, 3])
    method = case.card()
    case.say(
        f"You will take {more} more {'bag' if more == 1 else 'bags'} on {case.refer(trip)} than you said at first. If "
        f"that costs anything, {tell_method(method)} pays."
    )
    case.add_bags(trip, more, method)


def rename(case: CarrierCase) -> None:
    _rename(case, case.trip(lambda r: len(r["passengers"]) > 1))


def fly_later(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "basic_economy")
    method = case.card()
    case.say(
        f"You want to take the last flight of {case.refer(trip)} a day later, at the same time of day. The difference "
        f"in price goes to {tell_method(method)}."
    )
    case.refly(trip, trip["cabin"], case.next_day(trip), method)


def upgrade(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "business")
    method = case.card()
    case.say(
        f"You want to fly in business on {case.refer(trip)}, on the flights that you have. You pay with "
        f"{tell_method(method)}."
    )
    _upgrade_price(case, trip)
    case.refly(trip, "business", trip["flights"], method)


def book(case: CarrierCase) -> None:
    case.customer()
    leg, cabin = _cheapest(case, passengers=1)
    bags, insured = case.choose([0, 1, 2]), case.choose([True, False])
    case.say(f"You fly alone, with {bags or 'no'} {'bag' if bags == 1 else 'bags'} to check.")
    case.say("You want travel insurance." if insured else "You want no insurance.")
    method = case.card()
    case.say(f"You pay with {tell_method(method)}.")
    case.say("You want to hear the total price.")
    case.tell(case.book([leg], cabin, [_self(case.user)], bags=bags, insured=insured, methods=[method]))


def book_for_two(case: CarrierCase) -> None:
    user = case.customer()
    leg, cabin = _cheapest(case, passengers=2)
    companion = case.choose(user["saved_passengers"])
    case.say(
        f"{_full_name(companion)} flies with you, who is saved in your profile. You have no bags to check and want no "
        "insurance."
    )
    method = case.card()
    case.say(f"You pay with {tell_method(method)}.")
    case.book([leg], cabin, [_self(user), companion], methods=[method])


def _cheapest(case: CarrierCase, passengers: int) -> tuple[tuple[Record, str], str]:
    """The customer wants the cheapest direct flight of a day; which that is, and in which cabin."""
    origin, destination, day = case.route()
    cabin = case.choose(CABINS)
    found = [f for f in case.search(origin, destination, day) if f["available_seats"][cabin] >= passengers]
    if not found or len({flight["prices"][cabin] for flight in found}) < len(found):
        raise Unfit
    case.say(
        f"You want to fly from {_city(origin)} to {_city(destination)} on {_when(day)}, one way, in {_cabin(cabin)}. "
        "Of the direct flights you take the cheapest."
    )
    return (min(found, key=lambda flight: flight["prices"][cabin]), day), cabin


def _rename(case: CarrierCase, trip: Record) -> None:
    passengers = [dict(passenger) for passenger in trip["passengers"]]
    changed = case.choose(passengers[1:])
    new = case.choose(name for name in LAST if name != changed["last_name"])
    case.say(
        f"{_full_name(changed)} has married, and is called {new} now; {case.refer(trip)} should say so.",
        f"On {case.refer(trip)} the last name of {_full_name(changed)} is wrong: it is {new}.",
    )
    changed["last_name"] = new
    case.call("update_reservation_passengers", reservation_id=trip["reservation_id"], passengers=passengers)


# Several changes


def _two(case: CarrierCase, first: Any, second: Any) -> tuple[Record, Record]:
    """Two reservations of one customer."""
    one = case.trip(first)
    return one, case.trip(second, of=one["user_id"])


def cancel_two(case: CarrierCase) -> None:
    one, other = _two(case, _may_cancel, _may_cancel)
    case.say(f"You give up travelling for now: {case.refer(one)} is to be cancelled, and so is {case.refer(other)}.")
    case.say("You ask for the sum that you get back.")
    case.cancel(one)
    case.cancel(other)
    case.tell(one["payment_history"][0]["amount"] + other["payment_history"][0]["amount"])


def later_with_bags(case: CarrierCase) -> None:
    trip, more = case.trip(lambda r: r["cabin"] != "basic_economy"), case.choose([1, 2])
    method = case.card()
    case.say(f"You want to take the last flight of {case.refer(trip)} a day later, at the same time of day.")
    case.refly(trip, trip["cabin"], case.next_day(trip), method)
    case.say(
        f"When that is done, you add {more} {'bag' if more == 1 else 'bags'} to it. Both go on {tell_method(method)}, "
        "whatever they cost."
    )
    case.add_bags(trip, more, method)


def rename_with_bags(case: CarrierCase) -> None:
    trip, more = case.trip(lambda r: len(r["passengers"]) > 1), case.choose([1, 2])
    method = case.card()
    _rename(case, trip)
    case.say(
        f"Besides, there will be {more} more {'bag' if more == 1 else 'bags'} than planned; if they cost extra, "
        f"{tell_method(method)} pays."
    )
    case.add_bags(trip, more, method)


def cancel_and_book(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "business")
    case.say(f"First, you want to cancel {case.refer(trip)}, as your plans have changed.")
    case.cancel(trip)
    leg, cabin = _cheapest(case, passengers=1)
    method = case.card()
    case.say(f"You fly alone, without bags and without insurance, and pay with {tell_method(method)}.")
    case.book([leg], cabin, [_self(case.user)], methods=[method])


def upgrade_one_cancel_one(case: CarrierCase) -> None:
    up, off = _two(case, lambda r: r["cabin"] != "business", lambda r: _is_recent(r) or r["cabin"] == "business")
    method = case.card()
    case.say(
        f"You want business for {case.refer(up)}, on the same flights, paid with {tell_method(method)}. And "
        f"{case.refer(off)} is to be cancelled, as you need it no more."
    )
    _upgrade_price(case, up)
    case.refly(up, "business", up["flights"], method)
    case.cancel(off)


# Conditions


def upgrade_if_cheap(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "business")
    extra = _upgrade_price(case, trip)
    limit, method = case.choose([extra - extra % 50 + 50, max(50, extra - extra % 50 - 50)]), case.card()
    case.say(
        f"You want to fly in business on {case.refer(trip)}, on the same flights, if that costs no more than {limit} "
        f"dollars on top for all who fly, paid with {tell_method(method)}. Otherwise it stays as it is. You want to "
        "hear the price."
    )
    case.tell(extra)
    if extra <= limit:
        case.refly(trip, "business", trip["flights"], method)


def book_with_certificate(case: CarrierCase) -> None:
    user = case.customer()
    certificate = case.choose(m for m in user["payment_methods"].values() if m["source"] == "certificate")
    card = case.choose(m for m in user["payment_methods"].values() if m["source"] == "credit_card")
    leg, cabin = _cheapest(case, passengers=1)
    case.say(
        "You fly alone, without bags and without insurance. Your travel certificate should pay for as much of it as "
        f"it can, and {tell_method(card)} for the rest, if there is any. You ask how much that is."
    )
    rest = leg[0]["prices"][cabin] - certificate["amount"]
    if rest > 0:
        case.tell(rest)
    case.book([leg], cabin, [_self(user)], methods=[certificate, card] if rest > 0 else [certificate])


def cancel_or_fly_later(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "economy" and r["insurance"] == "no")
    method = case.card()
    case.say(
        f"Something has come up, and you want to cancel {case.refer(trip)}. If that cannot be done, you want to take "
        f"its last flight a day later, at the same time of day; {tell_method(method)} takes the difference in price."
    )
    if _may_cancel(trip):
        case.cancel(trip)
    else:
        case.refly(trip, trip["cabin"], case.next_day(trip), method)


def ask_for_compensation(case: CarrierCase) -> None:
    trip = case.trip(case.may_be_compensated, dropped=True)
    case.say(
        f"You have heard that a flight of {case.refer(trip)} will not take place. You are angry about it and ask to be "
        "compensated. You do not want to change or cancel anything now."
    )
    _look_at_flights(case, trip)
    case.call("send_certificate", user_id=case.user_id, amount=COMPENSATION * len(trip["passengers"]))


def cancel_if_cancelled(case: CarrierCase) -> None:
    trip = case.trip(lambda r: not _may_cancel(r), dropped=True)
    case.say(
        f"You have been told that the airline dropped a flight of {case.refer(trip)}. If that is so, the whole of it "
        "is to be cancelled; if not, you will fly. You do not ask for anything else."
    )
    _look_at_flights(case, trip)
    case.cancel(trip)


def book_direct_or_not(case: CarrierCase) -> None:
    case.customer()
    airports = sorted({airport for route in ROUTES for airport in route})
    origin, destination = case.rng.sample(airports, 2)
    day = case.choose(DAYS[4:])
    if (origin, destination) in ROUTES or (destination, origin) in ROUTES:
        raise Unfit
    case.search(origin, destination, day)
    found = case.look("search_onestop_flight", origin=origin, destination=destination, date=day)
    fitting = [pair for pair in found if all(flight["available_seats"]["economy"] > 0 for flight in pair)]
    prices = [sum(flight["prices"]["economy"] for flight in pair) for pair in fitting]
    if not prices or prices.count(min(prices)) > 1:
        raise Unfit
    cheapest = fitting[prices.index(min(prices))]
    card = case.choose(m for m in case.user["payment_methods"].values() if m["source"] == "credit_card")
    case.say(
        f"You want to fly from {_city(origin)} to {_city(destination)} on {_when(day)}, one way, in economy, direct if "
        "there is such a flight, else with one stop. Among what there is you take the cheapest. You fly alone, "
        f"without bags and without insurance, and pay with {tell_method(card)}. You want to be told the price."
    )
    case.tell(min(prices))
    case.book([(flight, day) for flight in cheapest], "economy", [_self(case.user)], methods=[card])


def _look_at_flights(case: CarrierCase, trip: Record) -> None:
    """The assistant makes sure which flights take place: those that do not are not found."""
    for leg in trip["flights"]:
        case.search(leg["origin"], leg["destination"], leg["date"])


# Refusals


def cancel_cheap_fare(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["insurance"] == "no" and not _may_cancel(r))
    case.say(
        f"You want to cancel {case.refer(trip)} and get your money back, because your meeting was called off.",
        f"A friend's wedding was moved, so you want your money back for {case.refer(trip)}. It is to be cancelled.",
    )
    case.say(*FIRM)


def cancel_for_no_insured_reason(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["insurance"] == "yes" and not _may_cancel(r))
    case.say(
        f"You want to cancel {case.refer(trip)}, as you have found a cheaper hotel elsewhere. You are insured, and "
        "think that this is what insurance is for. You are well, and the weather is fine."
    )
    case.say(*FIRM)


def change_basic_economy(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "basic_economy" and not _may_cancel(r) and r["insurance"] == "no")
    case.say(
        f"You want to fly a day later on {case.refer(trip)}. You want to stay in the cabin that you have, and to "
        "cancel nothing."
    )
    case.say(*FIRM)


def insure_later(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["insurance"] == "no")
    case.say(f"You want to add travel insurance to {case.refer(trip)}, for everybody on it, and pay for it now.")
    case.say(*FIRM)


def fewer_bags(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["nonfree_baggages"] > 0)
    case.say(
        f"You travel lighter than you thought: take the bag that you paid for off {case.refer(trip)}, and give the 50 "
        "dollars back."
    )
    case.say(*FIRM)


def another_passenger(case: CarrierCase) -> None:
    trip = case.trip(lambda r: len(r["passengers"]) == 1)
    companion = case.choose(case.user["saved_passengers"])
    case.say(
        f"{_full_name(companion)}, who is saved in your profile, should come along on {case.refer(trip)}, on the same "
        "reservation. You do not want a second reservation."
    )
    case.say(*FIRM)


def another_destination(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "economy" and not _may_cancel(r) and r["insurance"] == "no")
    airports = {airport for route in ROUTES for airport in route} - {trip["origin"], trip["destination"]}
    case.say(
        f"You want {case.refer(trip)} to take you to {_city(case.choose(sorted(airports)))} instead. You do not want "
        "to cancel it, or to book anything new."
    )
    case.say(*FIRM)


def undue_compensation(case: CarrierCase) -> None:
    trip = case.trip(lambda r: not case.may_be_compensated(r), dropped=True)
    case.say(
        f"A flight of {case.refer(trip)} will not take place. You want to be paid something for that, and neither to "
        "change nor to cancel anything."
    )
    case.say(*FIRM)
    _look_at_flights(case, trip)


# What only a human can do


def cancel_half_flown(case: CarrierCase) -> None:
    trip = case.pick("reservations", lambda r: "landed" in case.statuses(r) and r["flights"][-1]["date"] > str(TODAY))
    case.meet(trip["user_id"])
    case.say(f"You are half way through {case.refer(trip)}, and want to cancel the way back and get its price back.")
    _hand_over(case, f"wants to cancel the way back of {trip['reservation_id']}, which is partly flown")


def lost_bag(case: CarrierCase) -> None:
    trip = case.pick("reservations", lambda r: set(case.statuses(r)) == {"landed"})
    case.meet(trip["user_id"])
    color = case.choose(["red", "brown", "striped", "green"])
    case.say(f"Your {color} suitcase did not arrive after {case.refer(trip)}. You want it found.")
    _hand_over(case, f"a {color} suitcase was lost on {trip['reservation_id']}")


def large_group(case: CarrierCase) -> None:
    case.customer()
    origin, destination, day = case.route()
    size = case.choose(range(7, 15))
    case.say(
        f"You want to book seats for {size} people from {_city(origin)} to {_city(destination)} on {_when(day)}, all "
        "in one reservation."
    )
    _hand_over(case, f"{size} people want to fly from {origin} to {destination} on {day} on one reservation")


def bring_animal(case: CarrierCase) -> None:
    trip = case.trip()
    animal = case.choose(["cat", "guide dog", "parrot", "tortoise"])
    case.say(
        f"You want to bring your {animal} along on {case.refer(trip)}, in the cabin, and ask to have that arranged."
    )
    _hand_over(case, f"wants to bring a {animal} on {trip['reservation_id']}")


def _hand_over(case: CarrierCase, summary: str) -> None:
    case.call("transfer_to_human_agents", summary=f"{case.user_id}: {summary}.")


TEMPLATES: dict[str, list[Template[CarrierCase]]] = {
    "lookup": [ask_fare, ask_paid, ask_upgrade, ask_credit],
    "one change": [
        cancel_business,
        more_bags,
        book,
        rename,
        cancel_insured,
        fly_later,
        upgrade,
        book_for_two,
        cancel_recent,
    ],
    "several changes": [cancel_two, later_with_bags, cancel_and_book, rename_with_bags, upgrade_one_cancel_one],
    "conditional": [
        upgrade_if_cheap,
        ask_for_compensation,
        book_with_certificate,
        cancel_or_fly_later,
        book_direct_or_not,
        cancel_if_cancelled,
    ],
    "refusal": [
        cancel_cheap_fare,
        change_basic_economy,
        insure_later,
        another_destination,
        cancel_for_no_insured_reason,
        fewer_bags,
        another_passenger,
        undue_compensation,
    ],
    "transfer": [cancel_half_flown, lost_bag, large_group, bring_animal],
}
