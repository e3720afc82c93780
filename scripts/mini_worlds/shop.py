"""The small shop: products, customers and orders, and what customers of it want.

Prices are multiples of 25 cents, which floats hold exactly, so that a sum does not depend on its order.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from marl_gem.scenarios.tau import retail
from scripts.mini_worlds.cases import Case, Drawing, Template, Unfit, lines
from scripts.mini_worlds.people import Inventor, Record, address, tell_address, tell_method

SEED = "the small shop"
CUSTOMERS = 64
ORDERS = {"pending": 84, "delivered": 76, "processed": 16, "cancelled": 12}
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
        "lookup": 9,
        "one change": 18,
        "several changes": 15,
        "conditional": 15,
        "refusal": 9,
        "transfer": 6,
    },
}

PRODUCTS: dict[str, tuple[float, dict[str, tuple[str, ...]]]] = {
    "Alarm Clock": (24.5, {"color": ("mint", "black", "coral"), "dial": ("round", "square")}),
    "Bird Feeder": (31.75, {"wood": ("cedar", "pine"), "perches": ("two", "four", "six")}),
    "Camping Lantern": (42.0, {"light": ("warm", "white"), "power": ("solar", "battery", "crank")}),
    "Chess Set": (68.25, {"wood": ("maple", "walnut", "olive"), "board": ("folding", "flat")}),
    "Cutting Board": (27.0, {"wood": ("beech", "bamboo", "acacia"), "size": ("small", "large")}),
    "Hammock": (84.5, {"color": ("sand", "teal", "rust"), "size": ("single", "double")}),
    "Kite": (19.75, {"shape": ("diamond", "delta"), "color": ("red", "yellow", "violet")}),
    "Picnic Basket": (57.5, {"size": ("for two", "for four"), "lining": ("checked", "striped", "plain")}),
    "Rain Jacket": (112.0, {"color": ("navy", "moss", "ochre"), "size": ("S", "M", "L")}),
    "Sketchbook": (14.25, {"paper": ("smooth", "rough"), "binding": ("spiral", "sewn", "stapled")}),
    "Teapot": (36.0, {"material": ("clay", "glass", "iron"), "volume": ("0.8 l", "1.2 l")}),
    "Ukulele": (129.5, {"body": ("koa", "mahogany"), "size": ("soprano", "concert", "tenor")}),
    "Watering Can": (22.25, {"material": ("zinc", "copper"), "volume": ("3 l", "6 l", "9 l")}),
    "Wool Blanket": (95.0, {"color": ("oat", "slate", "plum"), "weave": ("plain", "herringbone")}),
}
REASONS = {
    "no longer needed": ("You no longer need it.", "You have no use for it any more."),
    "ordered by mistake": ("You ordered it by mistake.", "It was a mistake to order it."),
}
BAD_REASONS = (
    "You found it cheaper elsewhere, and you want that, and nothing else, to be put down as the reason.",
    "The reason is that the delivery takes too long, and you want no other reason to be put down.",
    "You will not say more about the reason than that you dislike the shop's new logo.",
)
FIRM = (
    "If that cannot be done, you want nothing else.",
    "You accept no other solution, but you take a no for an answer.",
    "If they say no, you leave it at that and change nothing.",
)


def build() -> dict[str, str]:
    """The shop's files: their names, and their texts."""
    rng = random.Random(SEED)
    tables = _tables(rng)
    drawing = Drawing(ShopCase, retail, "retail", tables, TEMPLATES, rng)
    return {
        **{f"data/{name}.json": lines(records) for name, records in tables.items()},
        **{f"tasks_{split}.json": lines(drawing.tasks(counts)) for split, counts in SPLITS.items()},
    }


# The data


def _tables(rng: random.Random) -> dict[str, dict[str, Record]]:
    inventor = Inventor(rng)
    products = dict(_product(inventor, name) for name in PRODUCTS)
    users = dict(_user(inventor) for _ in range(CUSTOMERS))
    owners = itertools.cycle(users.items())
    statuses = [status for status, count in ORDERS.items() for _ in range(count)]
    rng.shuffle(statuses)
    orders = dict(_order(inventor, *next(owners), products, status) for status in statuses)
    return {"orders": orders, "products": products, "users": users}


def _product(inventor: Inventor, name: str) -> tuple[str, Record]:
    rng = inventor.rng
    base, options = PRODUCTS[name]
    product_id = inventor.number(10)
    variants = {}
    for values in itertools.product(*options.values()):
        item_id = inventor.number(10)
        variants[item_id] = {
            "item_id": item_id,
            "options": dict(zip(options, values, strict=True)),
            "available": rng.random() < 0.75,
            "price": base + rng.randrange(0, 41) / 4,
        }
    return product_id, {"name": name, "product_id": product_id, "variants": variants}


def _user(inventor: Inventor) -> tuple[str, Record]:
    rng = inventor.rng
    user_id, person = inventor.person()
    methods: list[Record] = [
        {"source": "gift_card", "balance": rng.randrange(0, 601) / 4, "id": f"gift_card_{inventor.number(7)}"},
        {"source": "paypal", "id": f"paypal_{inventor.number(7)}"},
        inventor.credit_card(),
    ]
    kept = sorted(rng.sample(range(3), rng.choice([1, 2, 2, 3])))
    person["payment_methods"] = {methods[index]["id"]: methods[index] for index in kept}
    person["orders"] = []
    return user_id, person


def _order(
    inventor: Inventor, user_id: str, user: Record, products: dict[str, Record], status: str
) -> tuple[str, Record]:
    rng = inventor.rng
    order_id = f"#W{inventor.number(7)}"
    user["orders"].append(order_id)
    items = []
    for product in rng.sample(list(products.values()), rng.choice([1, 2, 2, 3])):
        variant = rng.choice(list(product["variants"].values()))
        items.append(
            {
                "name": product["name"],
                "product_id": product["product_id"],
                "item_id": variant["item_id"],
                "price": variant["price"],
                "options": dict(variant["options"]),
            }
        )
    parcel = {
        "tracking_id": [inventor.number(12)],
        "item_ids": [item["item_id"] for item in items],
    }
    payment = {
        "transaction_type": "payment",
        "amount": sum(item["price"] for item in items),
        "payment_method_id": rng.choice(list(user["payment_methods"])),
    }
    order = {
        "order_id": order_id,
        "user_id": user_id,
        "address": dict(user["address"]),
        "items": items,
        "fulfillments": [parcel] if status in ("processed", "delivered") else [],
        "status": status,
        "payment_history": [payment],
    }
    if status == "cancelled":
        order["payment_history"] = [payment, {**payment, "transaction_type": "refund"}]
        order["cancel_reason"] = rng.choice(list(REASONS))
    return order_id, order


# What customers want


class ShopCase(Case):
    """A customer of the shop."""

    def meet(self, user_id: str) -> Record:
        """The customer says who it is, and the assistant finds it."""
        self.user_id, self.user = user_id, self.domain.database.tables["users"][user_id]
        first, last = self.user["name"].values()
        postal, email = self.user["address"]["zip"], self.user["email"]
        if self.rng.random() < 0.5:
            self.say(
                f"You are {first} {last}, and your zip code is {postal}. You do not know which email address you gave.",
                f"Your name is {first} {last}. You live in {self.user['address']['city']}, zip code {postal}, "
                "and will not give your email address.",
            )
            self.call("find_user_id_by_name_zip", first_name=first, last_name=last, zip=postal)
        else:
            self.say(
                f"You are {first} {last}, and your email address is {email}.",
                f"You are a customer of the shop under {email}. Your name is {first} {last}.",
            )
            self.call("find_user_id_by_email", email=email)
        return self.user

    def order(self, status: str, test: Any = lambda order: True, *, of: str = "") -> Record:
        """An order of this status that no other case is about, of this customer if one is given."""
        return self.pick("orders", lambda o: o["status"] == status and of in ("", o["user_id"]) and test(o))

    def refer(self, order: Record, *items: Record) -> str:
        """What the customer calls one of its orders, of which it wants something about some items.

        The assistant looks it up. Asked again it is called the same.
        """
        if order["order_id"] not in self.called:
            self.called[order["order_id"]] = self._describe(order, [item["name"] for item in items])
        return self.called[order["order_id"]]

    def _describe(self, order: Record, subjects: list[str]) -> str:
        others = [self.domain.database.tables["orders"][other] for other in self.user["orders"]]
        had = subjects + [item["name"] for other in others if other is not order for item in other["items"]]
        telling = [item["name"] for item in order["items"] if item["name"] not in had]
        if telling and self.rng.random() < 0.4:
            self.look("get_user_details", user_id=self.user_id)
            self.look("get_order_details", order_id=order["order_id"])
            return f"the order with the {self.choose(telling).lower()}"
        self.look("get_order_details", order_id=order["order_id"])
        return f"order {order['order_id']}"

    def item(self, order: Record) -> Record:
        return self.choose(order["items"])

    def change(self, item: Record, *, available: bool = True) -> tuple[Record, str]:
        """A variant of an item that differs in one option, and how one asks for it; the assistant looks it up."""
        product = self.look("get_product_details", product_id=item["product_id"])
        fitting = [
            (variant, option)
            for variant in product["variants"].values()
            for option in item["options"]
            if variant["available"] == available
            and {o for o, value in variant["options"].items() if value != item["options"][o]} == {option}
        ]
        variant, option = self.choose(fitting)
        return variant, f"{option} {variant['options'][option]} instead of {item['options'][option]}"

    def method(self, *, but: str = "") -> Record:
        return self.choose(m for m in self.user["payment_methods"].values() if m["id"] != but)

    def refund_method(self, order: Record) -> Record:
        """What may get a refund: what paid for the order, or a gift card."""
        paid = order["payment_history"][0]["payment_method_id"]
        return self.choose(m for m in self.user["payment_methods"].values() if m["id"] == paid or "gift" in m["id"])

    def two(self, first: str, second: str) -> tuple[Record, Record]:
        """Two orders of one customer, of these statuses, neither of which another case is about."""
        one = self.order(first)
        other = self.order(second, of=one["user_id"])
        self.meet(one["user_id"])
        return one, other


def _name(item: Record) -> str:
    return item["name"].lower()  # type: ignore[no-any-return]


def _paid(order: Record) -> float:
    return order["payment_history"][0]["amount"]  # type: ignore[no-any-return]


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
        f"You think about buying a {_name(product)} with {option} {value}, and want to know the lowest price "
        "of those in stock. You buy nothing today."
    )
    case.tell(min(variant["price"] for variant in fitting))


def ask_refund(case: ShopCase) -> None:
    order = case.order("delivered", lambda o: len(o["items"]) == 3)
    case.meet(order["user_id"])
    one, other = case.rng.sample(order["items"], 2)
    case.say(
        f"You think of sending back the {_name(one)} and the {_name(other)} of {case.refer(order, one, other)}. "
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
        case.tell(_paid(order))
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
        f"You would rather have the {_name(item)} with {wish}, all else the same.",
        f"The {_name(item)} should come with {wish}; nothing else should change.",
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
        f"You are not happy with the {_name(item)} of {case.refer(order, item)} and want to return it, nothing else.",
        f"You want to send back the {_name(item)}, and only that. It came with {case.refer(order, item)}.",
    )
    case.say(f"The money should go to {tell_method(method)}.", f"You want the refund on {tell_method(method)}.")
    if case.rng.random() < 0.3:
        case.say("You ask how much that will be.")
        case.tell(item["price"])
    _return(case, order, [item], method)


def give_all_back(case: ShopCase) -> None:
    order = case.order("delivered", lambda o: len(o["items"]) > 1)
    case.meet(order["user_id"])
    method = case.refund_method(order)
    case.say(
        f"You want to return everything that came with {case.refer(order)}.",
        f"All of {case.refer(order)} is to go back.",
    )
    case.say(f"The money should go to {tell_method(method)}.")
    _return(case, order, order["items"], method)


def exchange(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"You have received {case.refer(order, item)}.")
    variant, wish = case.change(item)
    case.say(
        f"You want to exchange the {_name(item)} for one with {wish}, all else the same.",
        f"The {_name(item)} is not quite right: you want it with {wish}, otherwise the same.",
    )
    case.say(f"Whatever the difference is, it goes to {tell_method(method)}.")
    _exchange(case, order, [(item, variant)], method)


def exchange_two(case: ShopCase) -> None:
    order = case.order("delivered", lambda o: len(o["items"]) > 1)
    case.meet(order["user_id"])
    one, other = case.rng.sample(order["items"], 2)
    method = case.method()
    case.say(f"Two things that came with {case.refer(order, one, other)} should be exchanged.")
    first, first_wish = case.change(one)
    second, second_wish = case.change(other)
    case.say(
        f"You want the {_name(one)} with {first_wish}, and the {_name(other)} with {second_wish}; all "
        f"else is to stay the same. You mention the {_name(other)} only after the other one has been found."
    )
    case.say(f"You pay, or get back, the difference with {tell_method(method)}.")
    _exchange(case, order, [(one, first), (other, second)], method)


def _return(case: ShopCase, order: Record, items: list[Record], method: Record) -> None:
    case.call(
        "return_delivered_order_items",
        order_id=order["order_id"],
        item_ids=[item["item_id"] for item in items],
        payment_method_id=method["id"],
    )


def _exchange(case: ShopCase, order: Record, pairs: list[tuple[Record, Record]], method: Record) -> None:
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
        f"Then you want to return the {_name(item)} of {case.refer(delivered, item)}, and get the money back on "
        f"{tell_method(method)}."
    )
    case.say("At the end you ask how much you get back for both together.")
    case.tell(_paid(pending) + item["price"])
    _return(case, delivered, [item], method)


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
        f"You want the {_name(item)} with {wish}, otherwise the same; the difference goes to "
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
    case.say(f"You want to return the {_name(item)} of {case.refer(one, item)} for a refund to {tell_method(method)}.")
    _return(case, one, [item], method)
    item, method = case.item(other), case.method()
    case.say(f"There is also {case.refer(other, item)}.")
    variant, wish = case.change(item)
    case.say(
        f"From that you want the {_name(item)} exchanged for one with {wish}, otherwise the same; "
        f"{tell_method(method)} takes the difference."
    )
    _exchange(case, other, [(item, variant)], method)


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


# Conditions


def exchange_if_in_stock(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.method()
    case.say(f"You want to exchange the {_name(item)} of {case.refer(order, item)}.")
    _, first = case.change(item, available=False)
    variant, second = case.change(item)
    case.say(
        f"You want one with {first}, all else the same. If that cannot be had, one with {second} will do.",
        f"Best would be one with {first} and otherwise the same, second best one with {second}.",
    )
    case.say(f"The difference in price goes to {tell_method(method)}.")
    _exchange(case, order, [(item, variant)], method)


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
        f"You would like the {_name(item)} with {wish}, otherwise the same, if that costs at most {limit} dollars "
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
    _exchange(case, order, [(item, cheapest)], method)


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
    if card["balance"] >= _paid(order):
        case.call("modify_pending_order_payment", order_id=order["order_id"], payment_method_id=card["id"])
    else:
        case.tell(card["balance"])


def cancel_the_dearer(case: ShopCase) -> None:
    one, other = case.two("pending", "pending")
    if _paid(one) == _paid(other):
        raise Unfit
    dearer = max(one, other, key=_paid)
    case.say(
        f"You cannot afford both {case.refer(one)} and {case.refer(other)}. Whichever of them costs more is to be "
        "cancelled, as you no longer need it; the other one stays."
    )
    case.say("You want to be told how much you save.", "You ask what you get back.")
    case.tell(_paid(dearer))
    case.call("cancel_pending_order", order_id=dearer["order_id"], reason="no longer needed")


def cancel_or_return(case: ShopCase) -> None:
    late, here = case.two("processed", "delivered")
    item, method = case.item(here), case.refund_method(here)
    case.say(
        f"You want to cancel {case.refer(late)}, which you no longer need. If it is too late for that, you want to "
        f"return the {_name(item)} of {case.refer(here, item)} instead, with the money going to {tell_method(method)}."
    )
    _return(case, here, [item], method)


def return_if_worth_it(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item, method = case.item(order), case.refund_method(order)
    price = item["price"]
    limit = case.choose([int(price) - 3, int(price) + 4])
    case.say(
        f"You may want to return the {_name(item)} of {case.refer(order, item)}: do so if you get more than {limit} "
        f"dollars back, on {tell_method(method)}; if it is less, you keep it. Either way you want to hear the exact "
        "amount."
    )
    case.tell(price)
    if price > limit:
        _return(case, order, [item], method)


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
        f"You want to return the {_name(item)} of {case.refer(order, item)}, although it has not arrived yet. You do "
        "not want to cancel anything, nor to change it for something else."
    )
    case.say(*FIRM)


def exchange_for_another_product(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item = case.item(order)
    other = case.choose(name for name in PRODUCTS if name not in [one["name"] for one in order["items"]])
    case.say(
        f"You want to exchange the {_name(item)} of {case.refer(order, item)} for a {other.lower()}. You want no other "
        f"{_name(item)}, and no money back."
    )
    case.say(*FIRM)


def refund_elsewhere(case: ShopCase) -> None:
    order = case.order("delivered")
    user = case.meet(order["user_id"])
    item, paid = case.item(order), order["payment_history"][0]["payment_method_id"]
    method = case.choose(m for m in user["payment_methods"].values() if m["id"] != paid and m["source"] != "gift_card")
    case.say(
        f"You want to return the {_name(item)} of {case.refer(order, item)}, with the money going to "
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
        f"You want the {_name(item)} taken off {case.refer(order, item)}, and the rest delivered as planned. You will "
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
    _hand_over(case, f"{order['order_id']} is delivered by the books, but the customer never got it")


def revive(case: ShopCase) -> None:
    order = case.order("cancelled")
    case.meet(order["user_id"])
    case.say(
        f"You want {case.refer(order)} after all, at the old price, and ask for the cancellation to be undone.",
        f"It was wrong to cancel {case.refer(order)}. You want it back as it was.",
    )
    _hand_over(case, f"the customer wants {order['order_id']}, which is cancelled, to be revived")


def change_email(case: ShopCase) -> None:
    case.customer()
    case.say(
        "Your email address is about to change, and you want the shop to send its mail to "
        f"{case.user['name']['first_name'].lower()}{case.rng.randrange(100, 1000)}@post.example from now on."
    )
    _hand_over(case, "the customer wants another email address in its account")


def broken(case: ShopCase) -> None:
    order = case.order("delivered")
    case.meet(order["user_id"])
    item = case.item(order)
    case.say(
        f"The {_name(item)} of {case.refer(order, item)} hurt you when it broke. You want to neither return nor "
        "exchange it: you want to be paid for the harm."
    )
    _hand_over(case, f"the customer claims damages for a {_name(item)} of {order['order_id']}")


def _hand_over(case: ShopCase, summary: str) -> None:
    case.call("transfer_to_human_agents", summary=f"{case.user_id}: {summary}.")


TEMPLATES: dict[str, list[Template[ShopCase]]] = {
    "lookup": [ask_total, ask_cheapest, ask_tracking, ask_refund, ask_balance],
    "one change": [
        cancel,
        give_back,
        swap,
        exchange,
        redirect,
        pay_otherwise,
        exchange_two,
        move_house,
        give_all_back,
    ],
    "several changes": [
        cancel_and_return,
        redirect_and_swap,
        return_and_exchange,
        move_with_parcel,
        cancel_both,
        pay_otherwise_and_redirect,
    ],
    "conditional": [
        exchange_if_in_stock,
        swap_if_cheap,
        pay_with_gift_card_if_enough,
        exchange_for_cheapest,
        cancel_the_dearer,
        return_if_worth_it,
        cancel_or_return,
    ],
    "refusal": [
        cancel_too_late,
        exchange_for_another_product,
        cancel_for_another_reason,
        refund_elsewhere,
        return_too_early,
        cancel_a_part,
        ask_for_a_discount,
        touch_another_order,
    ],
    "transfer": [never_arrived, revive, change_email, broken],
}
