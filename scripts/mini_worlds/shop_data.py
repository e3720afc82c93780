"""The data of the small shop: products, customers and orders.

Prices are multiples of 25 cents, which floats hold exactly, so that a sum does not depend on its order.
"""

from __future__ import annotations

import itertools
import random

from scripts.mini_worlds.people import Inventor, Record
from scripts.mini_worlds.shop_case import REASONS

CUSTOMERS = 64
ORDERS = {"pending": 84, "delivered": 76, "processed": 16, "cancelled": 12}

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


def make_tables(rng: random.Random) -> dict[str, dict[str, Record]]:
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
