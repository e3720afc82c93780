"""Templates of the airline's tasks: conditions, refusals, transfers to a human."""

from __future__ import annotations

from scripts.mini_worlds.carrier_case import FIRM, CarrierCase, city_of, full_name, hand_over, may_cancel, when
from scripts.mini_worlds.carrier_changes import cheapest_flight, upgrade_price
from scripts.mini_worlds.carrier_data import COMPENSATION, DAYS, ROUTES, TODAY, as_passenger
from scripts.mini_worlds.cases import Unfit
from scripts.mini_worlds.people import Record, tell_method

# Conditions


def upgrade_if_cheap(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] != "business")
    extra = upgrade_price(case, trip)
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
    leg, cabin = cheapest_flight(case, passengers=1)
    case.say(
        "You fly alone, without bags and without insurance. Your travel certificate should pay for as much of it as "
        f"it can, and {tell_method(card)} for the rest, if there is any. You ask how much that is."
    )
    rest = leg[0]["prices"][cabin] - certificate["amount"]
    if rest > 0:
        case.tell(rest)
    case.book([leg], cabin, [as_passenger(user)], methods=[certificate, card] if rest > 0 else [certificate])


def cancel_or_fly_later(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "economy" and r["insurance"] == "no")
    method = case.card()
    case.say(
        f"Something has come up, and you want to cancel {case.refer(trip)}. If that cannot be done, you want to take "
        f"its last flight a day later, at the same time of day; {tell_method(method)} takes the difference in price."
    )
    if may_cancel(trip):
        case.cancel(trip)
    else:
        case.refly(trip, trip["cabin"], case.next_day(trip), method)


def ask_for_compensation(case: CarrierCase) -> None:
    trip = case.trip(case.may_be_compensated, dropped=True)
    case.say(
        f"You have heard that a flight of {case.refer(trip)} will not take place. You are angry about it and ask to be "
        "compensated. You do not want to change or cancel anything now."
    )
    look_at_flights(case, trip)
    case.call("send_certificate", user_id=case.user_id, amount=COMPENSATION * len(trip["passengers"]))


def cancel_if_cancelled(case: CarrierCase) -> None:
    trip = case.trip(lambda r: not may_cancel(r), dropped=True)
    case.say(
        f"You have been told that the airline dropped a flight of {case.refer(trip)}. If that is so, the whole of it "
        "is to be cancelled; if not, you will fly. You do not ask for anything else."
    )
    look_at_flights(case, trip)
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
        f"You want to fly from {city_of(origin)} to {city_of(destination)} on {when(day)}, one way, in economy, "
        "direct if "
        "there is such a flight, else with one stop. Among what there is you take the cheapest. You fly alone, "
        f"without bags and without insurance, and pay with {tell_method(card)}. You want to be told the price."
    )
    case.tell(min(prices))
    case.book([(flight, day) for flight in cheapest], "economy", [as_passenger(case.user)], methods=[card])


def look_at_flights(case: CarrierCase, trip: Record) -> None:
    """The assistant makes sure which flights take place: those that do not are not found."""
    for leg in trip["flights"]:
        case.search(leg["origin"], leg["destination"], leg["date"])


# Refusals


def cancel_cheap_fare(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["insurance"] == "no" and not may_cancel(r))
    case.say(
        f"You want to cancel {case.refer(trip)} and get your money back, because your meeting was called off.",
        f"A friend's wedding was moved, so you want your money back for {case.refer(trip)}. It is to be cancelled.",
    )
    case.say(*FIRM)


def cancel_for_no_insured_reason(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["insurance"] == "yes" and not may_cancel(r))
    case.say(
        f"You want to cancel {case.refer(trip)}, as you have found a cheaper hotel elsewhere. You are insured, and "
        "think that this is what insurance is for. You are well, and the weather is fine."
    )
    case.say(*FIRM)


def change_basic_economy(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "basic_economy" and not may_cancel(r) and r["insurance"] == "no")
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
        f"{full_name(companion)}, who is saved in your profile, should come along on {case.refer(trip)}, on the same "
        "reservation. You do not want a second reservation."
    )
    case.say(*FIRM)


def another_destination(case: CarrierCase) -> None:
    trip = case.trip(lambda r: r["cabin"] == "economy" and not may_cancel(r) and r["insurance"] == "no")
    airports = {airport for route in ROUTES for airport in route} - {trip["origin"], trip["destination"]}
    case.say(
        f"You want {case.refer(trip)} to take you to {city_of(case.choose(sorted(airports)))} instead. You do not want "
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
    look_at_flights(case, trip)


# What only a human can do


def cancel_half_flown(case: CarrierCase) -> None:
    trip = case.pick("reservations", lambda r: "landed" in case.statuses(r) and r["flights"][-1]["date"] > str(TODAY))
    case.meet(trip["user_id"])
    case.say(f"You are half way through {case.refer(trip)}, and want to cancel the way back and get its price back.")
    hand_over(case, f"wants to cancel the way back of {trip['reservation_id']}, which is partly flown")


def lost_bag(case: CarrierCase) -> None:
    trip = case.pick("reservations", lambda r: set(case.statuses(r)) == {"landed"})
    case.meet(trip["user_id"])
    color = case.choose(["red", "brown", "striped", "green"])
    case.say(f"Your {color} suitcase did not arrive after {case.refer(trip)}. You want it found.")
    hand_over(case, f"a {color} suitcase was lost on {trip['reservation_id']}")


def large_group(case: CarrierCase) -> None:
    case.customer()
    origin, destination, day = case.route()
    size = case.choose(range(7, 15))
    case.say(
        f"You want to book seats for {size} people from {city_of(origin)} to {city_of(destination)} on "
        f"{when(day)}, all "
        "in one reservation."
    )
    hand_over(case, f"{size} people want to fly from {origin} to {destination} on {day} on one reservation")


def bring_animal(case: CarrierCase) -> None:
    trip = case.trip()
    animal = case.choose(["cat", "guide dog", "parrot", "tortoise"])
    case.say(
        f"You want to bring your {animal} along on {case.refer(trip)}, in the cabin, and ask to have that arranged."
    )
    hand_over(case, f"wants to bring a {animal} on {trip['reservation_id']}")
