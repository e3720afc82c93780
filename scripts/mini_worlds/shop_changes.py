"""Templates of the shop's tasks: lookups, one change, several changes."""

from __future__ import annotations

from scripts.mini_worlds.cases import Unfit
from scripts.mini_worlds.people import Record, address, tell_address, tell_method
from scripts.mini_worlds.shop_case import REASONS, ShopCase, amount_paid, name_of
from scripts.mini_worlds.shop_data import PRODUCTS

# Lookups


def ask_total(case: ShopCase) -> None:
    user = case.customer()
    order = case.domain.database.tables["orders"][case.choose(user["orders"])]
    case.say(
        f"You want to know what {case.refer(order)} cost altogether.",
        f"You are doing your accounts and need the total of {case.refer(order)}.",
    )
    case.tell(sum(item["price"] for item in order["items"]))


def ask_tracking(case: ShopCase) -> None:
    order = case.order("processed")
    case.meet(order["user_id"])
    case.say(
        f"You are waiting for {case.refer(order)} and want its tracking number.",
        f"You wonder where {case.refer(order)} is. All you want is the number to track it with.",
    )
    case.outputs += order["fulfillments"][0]["tracking_id"]


def ask_balance(case: ShopCase) -> None:
    user = case.customer()
    cards = [method for method in user["payment_methods"].values() if method["source"] == "gift_card"]
    card = case.choose(card for card in cards if card["balance"] > 0)
    case.look("get_user_details", user_id=case.user_id)
    case.say("You want to know how much is left on your gift card.", "You ask what your gift card still holds.")
    case.tell(card["balance"])


def ask_cheapest(case: ShopCase) -> None:
    case.customer()
    product = case.choose(case.domain.database.tables["products"].values())
    option = case.choose(PRODUCTS[product["name"]][1])
    value = case.choose(PRODUCTS[product["name"]][1][option])
    fitting = [v for v in product["variants"].values() if v["available"] and v["options"][option] == value]
    if len(fitting) < 2:
        raise Unfit
    case.look("list_all_product_types")
    case.look("get_product_details", product_id=product["product_id"])
    case.say(
        f"You think about buying a {name_of(product)} with {option} {value}, and want to know the lowest price "
        "of those in stock. You buy nothing today."
    )
    case.tell(min(variant["price"] for variant in fitting))


def ask_refund(case: ShopCase) -> None:
    order = case.order("delivered", lambda o: len(o["items"]) == 3)
    case.meet(order["user_id"])
    one, other = case.rng.sample(order["items"], 2)
    case.say(
        f"You think of sending back the {name_of(one)} and the {name_of(other)} of {case.refer(order, one, other)}. "
        "You want to hear how much you would get back for both together; you will decide later and return nothing now."
    )
    case.call("calculate", expression=f"{one['price']} + {other['price']}")
    case.tell(one["price"] + other["price"])


# One change


def cancel(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    reason = case.choose(REASONS)
    case.say(f"You want to cancel {case.refer(order)}.", f"Please have {case.refer(order)} cancelled, all of it.")
    case.say(*REASONS[reason])
    if case.rng.random() < 0.5:
        case.say("You also want to be told how much you get back.")
        case.tell(amount_paid(order))
    case.call("cancel_pending_order", order_id=order["order_id"], reason=reason)


def redirect(case: ShopCase) -> None:
    order, place = case.order("pending"), address(case.rng)
    case.meet(order["user_id"])
    case.say(
        f"You will be away, so {case.refer(order)} should go to {tell_address(place)}, USA.",
        f"The address on {case.refer(order)} is wrong. The right one is {tell_address(place)}, USA.",
    )
    case.say("Your own address in the shop's books stays as it is.")
    case.call("modify_pending_order_address", order_id=order["order_id"], **place)


def move_house(case: ShopCase) -> None:
    case.customer()
    place = address(case.rng)
    case.say(
        f"You have moved to {tell_address(place)}, USA, and want your own address changed. No order is to be touched.",
        f"Your new home is {tell_address(place)}, USA. Only your account should have it; your orders stay as they are.",
    )
    case.call("modify_user_address", user_id=case.user_id, **place)


def swap(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"It is about {case.refer(order, item)}, which has not been sent yet.")
    variant, wish = case.change(item)
    case.say(
        f"You would rather have the {name_of(item)} with {wish}, all else the same.",
        f"The {name_of(item)} should come with {wish}; nothing else should change.",
    )
    case.say(f"The difference in price goes to {tell_method(method)}.")
    case.call(
        "modify_pending_order_items",
        order_id=order["order_id"],
        item_ids=[item["item_id"]],
        new_item_ids=[variant["item_id"]],
        payment_method_id=method["id"],
    )


def pay_otherwise(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    method = case.method(but=order["payment_history"][0]["payment_method_id"])
    case.say(
        f"You want to pay for {case.refer(order)} with {tell_method(method)} instead.",
        f"Please take the money for {case.refer(order)} from {tell_method(method)}, not from what you chose at first.",
    )
    case.call("modify_pending_order_payment", order_id=order["order_id"], payment_method_id=method["id"])


def give_back(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.refund_method(order)
    case.say(
        f"You are not happy with the {name_of(item)} of {case.refer(order, item)} and want to return it, nothing else.",
        f"You want to send back the {name_of(item)}, and only that. It came with {case.refer(order, item)}.",
    )
    case.say(f"The money should go to {tell_method(method)}.", f"You want the refund on {tell_method(method)}.")
    if case.rng.random() < 0.3:
        case.say("You ask how much that will be.")
        case.tell(item["price"])
    return_items(case, order, [item], method)


def give_all_back(case: ShopCase) -> None:
    order = case.order("delivered", lambda o: len(o["items"]) > 1)
    case.meet(order["user_id"])
    method = case.refund_method(order)
    case.say(
        f"You want to return everything that came with {case.refer(order)}.",
        f"All of {case.refer(order)} is to go back.",
    )
    case.say(f"The money should go to {tell_method(method)}.")
    return_items(case, order, order["items"], method)


def exchange(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"You have received {case.refer(order, item)}.")
    variant, wish = case.change(item)
    case.say(
        f"You want to exchange the {name_of(item)} for one with {wish}, all else the same.",
        f"The {name_of(item)} is not quite right: you want it with {wish}, otherwise the same.",
    )
    case.say(f"Whatever the difference is, it goes to {tell_method(method)}.")
    exchange_items(case, order, [(item, variant)], method)


def exchange_two(case: ShopCase) -> None:
    order = case.order("delivered", lambda o: len(o["items"]) > 1)
    case.meet(order["user_id"])
    one, other = case.rng.sample(order["items"], 2)
    method = case.method()
    case.say(f"Two things that came with {case.refer(order, one, other)} should be exchanged.")
    first, first_wish = case.change(one)
    second, second_wish = case.change(other)
    case.say(
        f"You want the {name_of(one)} with {first_wish}, and the {name_of(other)} with {second_wish}; all "
        f"else is to stay the same. You mention the {name_of(other)} only after the other one has been found."
    )
    case.say(f"You pay, or get back, the difference with {tell_method(method)}.")
    exchange_items(case, order, [(one, first), (other, second)], method)


def return_items(case: ShopCase, order: Record, items: list[Record], method: Record) -> None:
    case.call(
        "return_delivered_order_items",
        order_id=order["order_id"],
        item_ids=[item["item_id"] for item in items],
        payment_method_id=method["id"],
    )


def exchange_items(case: ShopCase, order: Record, pairs: list[tuple[Record, Record]], method: Record) -> None:
    case.call(
        "exchange_delivered_order_items",
        order_id=order["order_id"],
        item_ids=[item["item_id"] for item, _ in pairs],
        new_item_ids=[variant["item_id"] for _, variant in pairs],
        payment_method_id=method["id"],
    )


# Several changes


def cancel_and_return(case: ShopCase) -> None:
    pending, delivered = case.two("pending", "delivered")
    reason = case.choose(REASONS)
    item, method = case.item(delivered), case.refund_method(delivered)
    case.say(f"First, you want to cancel {case.refer(pending)}.")
    case.say(*REASONS[reason])
    case.call("cancel_pending_order", order_id=pending["order_id"], reason=reason)
    case.say(
        f"Then you want to return the {name_of(item)} of {case.refer(delivered, item)}, and get the money back on "
        f"{tell_method(method)}."
    )
    case.say("At the end you ask how much you get back for both together.")
    case.tell(amount_paid(pending) + item["price"])
    return_items(case, delivered, [item], method)


def cancel_both(case: ShopCase) -> None:
    one, other = case.two("pending", "pending")
    case.say(f"You want to cancel {case.refer(one)}, which you ordered by mistake.")
    case.call("cancel_pending_order", order_id=one["order_id"], reason="ordered by mistake")
    case.say(
        f"When that is done, you remember that you no longer need {case.refer(other)} either; cancel that as well."
    )
    case.call("cancel_pending_order", order_id=other["order_id"], reason="no longer needed")


def redirect_and_swap(case: ShopCase) -> None:
    order, place = case.order("pending"), address(case.rng)
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"It is about {case.refer(order, item)}.")
    variant, wish = case.change(item)
    case.say(
        f"You want the {name_of(item)} with {wish}, otherwise the same; the difference goes to "
        f"{tell_method(method)}. You also want the order sent to {tell_address(place)}, USA, but you ask for that last."
    )
    case.call("modify_pending_order_address", order_id=order["order_id"], **place)
    case.call(
        "modify_pending_order_items",
        order_id=order["order_id"],
        item_ids=[item["item_id"]],
        new_item_ids=[variant["item_id"]],
        payment_method_id=method["id"],
    )


def move_with_parcel(case: ShopCase) -> None:
    order, place = case.order("pending"), address(case.rng)
    case.meet(order["user_id"])
    case.say(
        f"You are moving to {tell_address(place)}, USA. Your account needs the new address, and {case.refer(order)} "
        "should go there, too."
    )
    case.call("modify_user_address", user_id=case.user_id, **place)
    case.call("modify_pending_order_address", order_id=order["order_id"], **place)


def return_and_exchange(case: ShopCase) -> None:
    one, other = case.two("delivered", "delivered")
    item, method = case.item(one), case.refund_method(one)
    case.say(
        f"You want to return the {name_of(item)} of {case.refer(one, item)} for a refund to {tell_method(method)}."
    )
    return_items(case, one, [item], method)
    item, method = case.item(other), case.method()
    case.say(f"There is also {case.refer(other, item)}.")
    variant, wish = case.change(item)
    case.say(
        f"From that you want the {name_of(item)} exchanged for one with {wish}, otherwise the same; "
        f"{tell_method(method)} takes the difference."
    )
    exchange_items(case, other, [(item, variant)], method)


def pay_otherwise_and_redirect(case: ShopCase) -> None:
    order, place = case.order("pending"), address(case.rng)
    case.meet(order["user_id"])
    method = case.method(but=order["payment_history"][0]["payment_method_id"])
    case.say(
        f"You gave {case.refer(order)} to a friend as a present: it should go to {tell_address(place)}, USA, and you "
        f"want to pay for it with {tell_method(method)}."
    )
    case.call("modify_pending_order_address", order_id=order["order_id"], **place)
    case.call("modify_pending_order_payment", order_id=order["order_id"], payment_method_id=method["id"])
