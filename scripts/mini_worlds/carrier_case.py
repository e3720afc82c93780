"""A customer of the small airline: templates say what it wants and make the calls that solve its task."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from marl_gem.scenarios.tau import airline
from scripts.mini_worlds.carrier_data import DAYS, FREE_BAGS, TODAY
from scripts.mini_worlds.cases import Case, Unfit
from scripts.mini_worlds.people import Record

FIRM = (
    "If that cannot be done, you want nothing else.",
    "You accept no other solution, but you take a no for an answer.",
    "If they say no, you leave everything as it is.",
)


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
        same = [other for other in mine if route_of(table[other]) == route_of(trip)]
        if len(same) > 1 or self.rng.random() < 0.6:
            self.look("get_reservation_details", reservation_id=trip["reservation_id"])
            return f"reservation {trip['reservation_id']}"
        for reservation_id in mine[: mine.index(trip["reservation_id"]) + 1]:
            self.look("get_reservation_details", reservation_id=reservation_id)
        return f"your trip from {city_of(trip['origin'])} to {city_of(trip['destination'])}"

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


def is_recent(trip: Record) -> bool:
    """Whether it was booked within the last 24 hours."""
    age = datetime.fromisoformat(airline.NOW) - datetime.fromisoformat(trip["created_at"])
    return age <= timedelta(days=1)


def may_cancel(trip: Record) -> bool:
    """Whether it may be cancelled whatever the reason."""
    return is_recent(trip) or trip["cabin"] == "business"


def route_of(trip: Record) -> tuple[str, str]:
    return trip["origin"], trip["destination"]


def city_of(airport: str) -> str:
    return airline.AIRPORTS[airport]


def when(day: str) -> str:
    return f"{date.fromisoformat(day):%B} {int(day[-2:])}"


def cabin_name(cabin: str) -> str:
    return cabin.replace("_", " ")


def full_name(passenger: Record) -> str:
    return f"{passenger['first_name']} {passenger['last_name']}"


def hand_over(case: CarrierCase, summary: str) -> None:
    case.call("transfer_to_human_agents", summary=f"{case.user_id}: {summary}.")
