"""Templates of the airline's tasks: lookups, one change, several changes."""

from __future__ import annotations

from typing import Any

from scripts.mini_worlds.carrier_case import CarrierCase, cabin_name, city_of, full_name, is_recent, may_cancel, when
from scripts.mini_worlds.carrier_data import CABINS, as_passenger
from scripts.mini_worlds.cases import Unfit
from scripts.mini_worlds.people import LAST, Record, tell_method

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
        f"You want to know what {passengers} {'seat' if passengers == 1 else 'seats'} in {cabin_name(cabin)} from "
        f"{city_of(origin)} to {city_of(destination)} cost on {when(day)}, on the cheapest direct flight that "
        "has room. "
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
    extra = upgrade_price(case, trip)
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


def upgrade_price(case: CarrierCase, trip: Record) -> int:
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
    trip = case.trip(lambda r: r["insurance"] == "yes" and not may_cancel(r))
    case.say(
        f"You have fallen ill and cannot fly, so {case.refer(trip)} is to be cancelled.",
        f"You want to cancel {case.refer(trip)}: a storm is forecast, and you will not fly in that weather.",
    )
    case.cancel(trip)


def cancel_recent(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "business" and is_recent(r))
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
    rename_passenger(case, case.trip(lambda r: len(r["passengers"]) > 1))


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
    upgrade_price(case, trip)
    case.refly(trip, "business", trip["flights"], method)


def book(case: CarrierCase) -> None:
    case.customer()
    leg, cabin = cheapest_flight(case, passengers=1)
    bags, insured = case.choose([0, 1, 2]), case.choose([True, False])
    case.say(f"You fly alone, with {bags or 'no'} {'bag' if bags == 1 else 'bags'} to check.")
    case.say("You want travel insurance." if insured else "You want no insurance.")
    method = case.card()
    case.say(f"You pay with {tell_method(method)}.")
    case.say("You want to hear the total price.")
    case.tell(case.book([leg], cabin, [as_passenger(case.user)], bags=bags, insured=insured, methods=[method]))


def book_for_two(case: CarrierCase) -> None:
    user = case.customer()
    leg, cabin = cheapest_flight(case, passengers=2)
    companion = case.choose(user["saved_passengers"])
    case.say(
        f"{full_name(companion)} flies with you, who is saved in your profile. You have no bags to check and want no "
        "insurance."
    )
    method = case.card()
    case.say(f"You pay with {tell_method(method)}.")
    case.book([leg], cabin, [as_passenger(user), companion], methods=[method])


def cheapest_flight(case: CarrierCase, passengers: int) -> tuple[tuple[Record, str], str]:
    """The customer wants the cheapest direct flight of a day; which that is, and in which cabin."""
    origin, destination, day = case.route()
    cabin = case.choose(CABINS)
    found = [f for f in case.search(origin, destination, day) if f["available_seats"][cabin] >= passengers]
    if not found or len({flight["prices"][cabin] for flight in found}) < len(found):
        raise Unfit
    case.say(
        f"You want to fly from {city_of(origin)} to {city_of(destination)} on {when(day)}, one way, in "
        f"{cabin_name(cabin)}. "
        "Of the direct flights you take the cheapest."
    )
    return (min(found, key=lambda flight: flight["prices"][cabin]), day), cabin


def rename_passenger(case: CarrierCase, trip: Record) -> None:
    passengers = [dict(passenger) for passenger in trip["passengers"]]
    changed = case.choose(passengers[1:])
    new = case.choose(name for name in LAST if name != changed["last_name"])
    case.say(
        f"{full_name(changed)} has married, and is called {new} now; {case.refer(trip)} should say so.",
        f"On {case.refer(trip)} the last name of {full_name(changed)} is wrong: it is {new}.",
    )
    changed["last_name"] = new
    case.call("update_reservation_passengers", reservation_id=trip["reservation_id"], passengers=passengers)


# Several changes


def two_reservations(case: CarrierCase, first: Any, second: Any) -> tuple[Record, Record]:
    """Two reservations of one customer."""
    one = case.trip(first)
    return one, case.trip(second, of=one["user_id"])


def cancel_two(case: CarrierCase) -> None:
    one, other = two_reservations(case, may_cancel, may_cancel)
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
    rename_passenger(case, trip)
    case.say(
        f"Besides, there will be {more} more {'bag' if more == 1 else 'bags'} than planned; if they cost extra, "
        f"{tell_method(method)} pays."
    )
    case.add_bags(trip, more, method)


def cancel_and_book(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "business")
    case.say(f"First, you want to cancel {case.refer(trip)}, as your plans have changed.")
    case.cancel(trip)
    leg, cabin = cheapest_flight(case, passengers=1)
    method = case.card()
    case.say(f"You fly alone, without bags and without insurance, and pay with {tell_method(method)}.")
    case.book([leg], cabin, [as_passenger(case.user)], methods=[method])


def upgrade_one_cancel_one(case: CarrierCase) -> None:
    up, off = two_reservations(
        case, lambda r: r["cabin"] != "business", lambda r: is_recent(r) or r["cabin"] == "business"
    )
    method = case.card()
    case.say(
        f"You want business for {case.refer(up)}, on the same flights, paid with {tell_method(method)}. And "
        f"{case.refer(off)} is to be cancelled, as you need it no more."
    )
    upgrade_price(case, up)
    case.refly(up, "business", up["flights"], method)
    case.cancel(off)
