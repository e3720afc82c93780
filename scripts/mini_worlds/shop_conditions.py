"""Templates of the shop's tasks: conditions, refusals, transfers to a human."""

from __future__ import annotations

from scripts.mini_worlds.cases import Unfit
from scripts.mini_worlds.people import tell_method
from scripts.mini_worlds.shop_case import BAD_REASONS, FIRM, ShopCase, amount_paid, hand_over, name_of
from scripts.mini_worlds.shop_changes import exchange_items, return_items
from scripts.mini_worlds.shop_data import PRODUCTS

# Conditions


def exchange_if_in_stock(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"You want to exchange the {name_of(item)} of {case.refer(order, item)}.")
    _, first = case.change(item, available=False)
    variant, second = case.change(item)
    case.say(
        f"You want one with {first}, all else the same. If that cannot be had, one with {second} will do.",
        f"Best would be one with {first} and otherwise the same, second best one with {second}.",
    )
    case.say(f"The difference in price goes to {tell_method(method)}.")
    exchange_items(case, order, [(item, variant)], method)


def swap_if_cheap(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"It is about {case.refer(order, item)}.")
    variant, wish = case.change(item)
    more = variant["price"] - item["price"]
    if more <= 0:
        raise Unfit
    limit = case.choose([int(more) + 2, max(1, int(more) - 1)])
    case.say(
        f"You would like the {name_of(item)} with {wish}, otherwise the same, if that costs at most {limit} dollars "
        f"more, to be paid with {tell_method(method)}. If it costs more than that, you want to cancel the order "
        "instead, as you would no longer need it."
    )
    if more <= limit:
        case.call(
            "modify_pending_order_items",
            order_id=order["order_id"],
            item_ids=[item["item_id"]],
            new_item_ids=[variant["item_id"]],
            payment_method_id=method["id"],
        )
    else:
        case.call("cancel_pending_order", order_id=order["order_id"], reason="no longer needed")


def exchange_for_cheapest(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    name = item["name"].lower()
    case.say(f"The {name} of {case.refer(order, item)} was too dear for what it is.")
    product = case.look("get_product_details", product_id=item["product_id"])
    others = [v for v in product["variants"].values() if v["available"] and v["item_id"] != item["item_id"]]
    cheapest = min(others, key=lambda variant: variant["price"])
    if [v["price"] for v in others].count(cheapest["price"]) > 1 or cheapest["price"] >= item["price"]:
        raise Unfit
    case.say(
        f"You want to exchange it for the cheapest {name} in stock, whatever it looks like, and get the difference "
        f"back on {tell_method(method)}. You ask how much that is."
    )
    case.tell(item["price"] - cheapest["price"])
    exchange_items(case, order, [(item, cheapest)], method)


def pay_with_gift_card_if_enough(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    card = case.method(but=order["payment_history"][0]["payment_method_id"])
    if card["source"] != "gift_card":
        raise Unfit
    case.say(
        f"You want to pay for {case.refer(order)} with your gift card, if what is on it is enough. If it is not, "
        "everything should stay as it is, but you want to know how much is on the card."
    )
    case.look("get_user_details", user_id=case.user_id)
    if card["balance"] >= amount_paid(order):
        case.call("modify_pending_order_payment", order_id=order["order_id"], payment_method_id=card["id"])
    else:
        case.tell(card["balance"])


def cancel_the_dearer(case: ShopCase) -> None:
    one, other = case.two("pending", "pending")
    if amount_paid(one) == amount_paid(other):
        raise Unfit
    dearer = max(one, other, key=amount_paid)
    case.say(
        f"You cannot afford both {case.refer(one)} and {case.refer(other)}. Whichever of them costs more is to be "
        "cancelled, as you no longer need it; the other one stays."
    )
    case.say("You want to be told how much you save.", "You ask what you get back.")
    case.tell(amount_paid(dearer))
    case.call("cancel_pending_order", order_id=dearer["order_id"], reason="no longer needed")


def cancel_or_return(case: ShopCase) -> None:
    late, here = case.two("processed", "delivered")
    item, method = case.item(here), case.refund_method(here)
    case.say(
        f"You want to cancel {case.refer(late)}, which you no longer need. If it is too late for that, you want to "
        f"return the {name_of(item)} of {case.refer(here, item)} instead, with the money going to "
        f"{tell_method(method)}."
    )
    return_items(case, here, [item], method)


def return_if_worth_it(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.refund_method(order)
    price = item["price"]
    limit = case.choose([int(price) - 3, int(price) + 4])
    case.say(
        f"You may want to return the {name_of(item)} of {case.refer(order, item)}: do so if you get more than {limit} "
        f"dollars back, on {tell_method(method)}; if it is less, you keep it. Either way you want to hear the exact "
        "amount."
    )
    case.tell(price)
    if price > limit:
        return_items(case, order, [item], method)


# Refusals


def cancel_too_late(case: ShopCase) -> None:
    order = case.order("processed")
    case.meet(order["user_id"])
    case.say(f"You want to cancel {case.refer(order)}, because you no longer need it.")
    case.say(*FIRM)


def return_too_early(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    item = case.item(order)
    case.say(
        f"You want to return the {name_of(item)} of {case.refer(order, item)}, although it has not arrived yet. You do "
        "not want to cancel anything, nor to change it for something else."
    )
    case.say(*FIRM)


def exchange_for_another_product(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item = case.item(order)
    other = case.choose(name for name in PRODUCTS if name not in [one["name"] for one in order["items"]])
    case.say(
        f"You want to exchange the {name_of(item)} of {case.refer(order, item)} for a {other.lower()}. You want "
        "no other "
        f"{name_of(item)}, and no money back."
    )
    case.say(*FIRM)


def refund_elsewhere(case: ShopCase) -> None:
    order = case.order("delivered")
    user = case.meet(order["user_id"])
    item, paid = case.item(order), order["payment_history"][0]["payment_method_id"]
    method = case.choose(m for m in user["payment_methods"].values() if m["id"] != paid and m["source"] != "gift_card")
    case.say(
        f"You want to return the {name_of(item)} of {case.refer(order, item)}, with the money going to "
        f"{tell_method(method)}, which is not what you paid with. You want it there or not at all."
    )
    case.say(*FIRM)


def cancel_for_another_reason(case: ShopCase) -> None:
    order = case.order("pending")
    case.meet(order["user_id"])
    case.say(f"You want to cancel {case.refer(order)}.")
    case.say(*BAD_REASONS)
    case.say(*FIRM)


def cancel_a_part(case: ShopCase) -> None:
    order = case.order("pending", lambda o: len(o["items"]) > 1)
    case.meet(order["user_id"])
    item = case.item(order)
    case.say(
        f"You want the {name_of(item)} taken off {case.refer(order, item)}, and the rest delivered as planned. "
        "You will "
        "not cancel all of it."
    )
    case.say(*FIRM)


def ask_for_a_discount(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    percent = case.choose([10, 15, 20, 25])
    case.say(
        f"You paid too much for {case.refer(order)}, you think, and want {percent} percent of it back, without "
        "returning anything."
    )
    case.say(*FIRM)


def touch_another_order(case: ShopCase) -> None:
    case.customer()
    order = case.order("pending", lambda o: o["user_id"] != case.user_id)
    case.say(
        f"You want to cancel order {order['order_id']}, which belongs to your neighbour. Your neighbour no longer "
        "needs it and has asked you to see to it. You cannot give your neighbour's details."
    )
    case.say(*FIRM)
    case.look("get_order_details", order_id=order["order_id"])


# What only a human can do


def never_arrived(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    case.say(
        f"The shop says that {case.refer(order)} was delivered, but nothing ever came. You want it to be looked into.",
        f"You never got {case.refer(order)}, whatever the shop's books say. Somebody should find the parcel.",
    )
    hand_over(case, f"{order['order_id']} is delivered by the books, but the customer never got it")


def revive(case: ShopCase) -> None:
    order = case.order("cancelled")
    case.meet(order["user_id"])
    case.say(
        f"You want {case.refer(order)} after all, at the old price, and ask for the cancellation to be undone.",
        f"It was wrong to cancel {case.refer(order)}. You want it back as it was.",
    )
    hand_over(case, f"the customer wants {order['order_id']}, which is cancelled, to be revived")


def change_email(case: ShopCase) -> None:
    case.customer()
    case.say(
        "Your email address is about to change, and you want the shop to send its mail to "
        f"{case.user['name']['first_name'].lower()}{case.rng.randrange(100, 1000)}@post.example from now on."
    )
    hand_over(case, "the customer wants another email address in its account")


def broken(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item = case.item(order)
    case.say(
        f"The {name_of(item)} of {case.refer(order, item)} hurt you when it broke. You want to neither return nor "
        "exchange it: you want to be paid for the harm."
    )
    hand_over(case, f"the customer claims damages for a {name_of(item)} of {order['order_id']}")
