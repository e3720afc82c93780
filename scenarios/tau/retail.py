"""The tools of the shop: orders, products, users.

They do what the official tools do and check in the same order, including amounts that are not rounded, refunds of
refunds, and statuses that lock an order. The docstrings are the tools' schemas.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from marl_gem.scenarios.tau.common import calculate, think, transfer_to_human_agents
from marl_gem.scenarios.tau.database import Record, Session
from marl_gem.scenarios.tau.tool import Refused, tool


@tool
def cancel_pending_order(db: Session, order_id: str, reason: Literal["no longer needed", "ordered by mistake"]) -> str:
    """Cancel an order that is still pending, and refund it. The customer must have agreed.

    Args:
        order_id: The order's number, with the '#'.
        reason: Why the customer cancels.
    """
    order = _order(db, order_id)
    if order["status"] != "pending":
        raise Refused("non-pending order cannot be cancelled")
    if reason not in ["no longer needed", "ordered by mistake"]:
        raise Refused("invalid reason")
    refunds = []
    for payment in _still_paid(order) if db.corrected else order["payment_history"]:  # officially refunds too
        amount, method = payment["amount"], payment["payment_method_id"]
        refunds.append({"transaction_type": "refund", "amount": amount, "payment_method_id": method})
        if "gift_card" in method:
            _add_to_balance(_methods(db, order, edit=True)[method], amount)
    order = db["orders"].edit(order_id)
    order["status"] = "cancelled"
    order["cancel_reason"] = reason
    order["payment_history"].extend(refunds)
    return json.dumps(order)


@tool
def exchange_delivered_order_items(
    db: Session, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> str:
    """Ask for items of a delivered order to be exchanged, once an order. The customer must have agreed.

    Args:
        order_id: The order's number, with the '#'.
        item_ids: The items to give back; an item that is there twice may be named twice.
        new_item_ids: What to get instead, in the same order, each of the same product.
        payment_method_id: What pays or gets the difference in price.
    """
    order = _order(db, order_id)
    if order["status"] != "delivered":
        raise Refused("non-delivered order cannot be exchanged")
    _check_items(db, order, item_ids, "{} not found")
    if len(item_ids) != len(new_item_ids):
        raise Refused("the number of items to be exchanged should match")
    difference = round(_difference(db, order, item_ids, new_item_ids), 2)
    methods = _methods(db, order)
    if payment_method_id not in methods:
        raise Refused("payment method not found")
    if _is_short(methods[payment_method_id], difference):
        raise Refused("insufficient gift card balance to pay for the price difference")
    order = db["orders"].edit(order_id)
    order["status"] = "exchange requested"
    order["exchange_items"] = sorted(item_ids)
    order["exchange_new_items"] = sorted(new_item_ids)
    order["exchange_payment_method_id"] = payment_method_id
    order["exchange_price_difference"] = difference
    return json.dumps(order)


@tool
def find_user_id_by_email(db: Session, email: str) -> str:
    """Find a customer by email address.

    Args:
        email: The address.
    """
    by_email = _index(db, "email", lambda user: user["email"])
    for user_id in by_email.get(email.lower(), ()):
        return user_id
    raise Refused("user not found")


@tool
def find_user_id_by_name_zip(db: Session, first_name: str, last_name: str, zip: str) -> str:
    """Find a customer by name and zip code.

    Args:
        first_name: The first name.
        last_name: The last name.
        zip: The zip code of the customer's address.
    """
    by_first_name = _index(db, "first_name", lambda user: user["name"]["first_name"])
    for user_id in by_first_name.get(first_name.lower(), ()):
        user = db["users"][user_id]
        if user["name"]["last_name"].lower() == last_name.lower() and user["address"]["zip"] == zip:
            return user_id
    raise Refused("user not found")


@tool
def get_order_details(db: Session, order_id: str) -> str:
    """Look up an order: its items, status, address and payments.

    Args:
        order_id: The order's number, with the '#'.
    """
    return json.dumps(_order(db, order_id))


@tool
def get_product_details(db: Session, product_id: str) -> str:
    """Look up a product with all its variants, their options, prices and whether they can be had.

    Args:
        product_id: The product's number, which is not an item's.
    """
    if product_id not in db["products"]:
        raise Refused("product not found")
    return json.dumps(db["products"][product_id])


@tool
def get_user_details(db: Session, user_id: str) -> str:
    """Look up a customer: name, address, payment methods and orders.

    Args:
        user_id: The customer's id.
    """
    return json.dumps(_user(db, user_id))


@tool
def list_all_product_types(db: Session) -> str:
    """List the names of all products with their numbers."""
    numbers = {product["name"]: product["product_id"] for _, product in db["products"].items()}
    return json.dumps(dict(sorted(numbers.items())))


@tool
def modify_pending_order_address(
    db: Session, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
) -> str:
    """Send a pending order to another address. The customer must have agreed.

    Args:
        order_id: The order's number, with the '#'.
        address1: Street and number.
        address2: Suite or apartment; may be empty.
        city: The city.
        state: The state.
        country: The country.
        zip: The zip code.
    """
    if _order(db, order_id)["status"] != "pending":
        raise Refused("non-pending order cannot be modified")
    order = db["orders"].edit(order_id)
    order["address"] = _address(address1, address2, city, state, country, zip)
    return json.dumps(order)


@tool
def modify_pending_order_items(
    db: Session, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> str:
    """Change items of a pending order for other variants, once an order. The customer must have agreed.

    Args:
        order_id: The order's number, with the '#'.
        item_ids: The items to change; an item that is there twice may be named twice.
        new_item_ids: What to get instead, in the same order, each of the same product.
        payment_method_id: What pays or gets the difference in price.
    """
    order = _order(db, order_id)
    if order["status"] != "pending":
        raise Refused("non-pending order cannot be modified")
    _check_items(db, order, item_ids, "{} not found")
    if len(item_ids) != len(new_item_ids):
        raise Refused("the number of items to be exchanged should match")
    difference = _difference(db, order, item_ids, new_item_ids)
    methods = _methods(db, order)
    if payment_method_id not in methods:
        raise Refused("payment method not found")
    if _is_short(methods[payment_method_id], difference):
        raise Refused("insufficient gift card balance to pay for the new item")
    order = db["orders"].edit(order_id)
    kind = "payment" if difference > 0 else "refund"
    order["payment_history"].append(
        {"transaction_type": kind, "amount": abs(difference), "payment_method_id": payment_method_id}
    )
    if methods[payment_method_id]["source"] == "gift_card":
        _add_to_balance(_methods(db, order, edit=True)[payment_method_id], -difference)
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        variant = db["products"][item["product_id"]]["variants"][new_item_id]
        item["item_id"] = new_item_id
        item["price"] = variant["price"]
        item["options"] = dict(variant["options"])
    order["status"] = "pending (item modified)"
    return json.dumps(order)


@tool
def modify_pending_order_payment(db: Session, order_id: str, payment_method_id: str) -> str:
    """Let another payment method pay for a pending order. The customer must have agreed.

    Args:
        order_id: The order's number, with the '#'.
        payment_method_id: The customer's other payment method.
    """
    order = _order(db, order_id)
    if order["status"] != "pending":
        raise Refused("non-pending order cannot be modified")
    methods = _methods(db, order)
    if payment_method_id not in methods:
        raise Refused("payment method not found")
    history = order["payment_history"]
    if len(history) > 1 or history[0]["transaction_type"] != "payment":
        raise Refused("there should be exactly one payment for a pending order")
    amount, former = history[0]["amount"], history[0]["payment_method_id"]
    if former == payment_method_id:
        raise Refused("the new payment method should be different from the current one")
    if _is_short(methods[payment_method_id], amount):
        raise Refused("insufficient gift card balance to pay for the order")
    order = db["orders"].edit(order_id)
    order["payment_history"] += [
        {"transaction_type": "payment", "amount": amount, "payment_method_id": payment_method_id},
        {"transaction_type": "refund", "amount": amount, "payment_method_id": former},
    ]
    if methods[payment_method_id]["source"] == "gift_card":
        _add_to_balance(_methods(db, order, edit=True)[payment_method_id], -amount)
    if "gift_card" in former:
        _add_to_balance(_methods(db, order, edit=True)[former], amount)
    return json.dumps(order)


@tool
def modify_user_address(
    db: Session, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
) -> str:
    """Change a customer's own address. The customer must have agreed.

    Args:
        user_id: The customer's id.
        address1: Street and number.
        address2: Suite or apartment; may be empty.
        city: The city.
        state: The state.
        country: The country.
        zip: The zip code.
    """
    _user(db, user_id)
    user = db["users"].edit(user_id)
    user["address"] = _address(address1, address2, city, state, country, zip)
    return json.dumps(user)


@tool
def return_delivered_order_items(db: Session, order_id: str, item_ids: list[str], payment_method_id: str) -> str:
    """Ask for items of a delivered order to be taken back, once an order. The customer must have agreed.

    Args:
        order_id: The order's number, with the '#'.
        item_ids: The items to give back; an item that is there twice may be named twice.
        payment_method_id: What gets the refund: what paid for the order, or a gift card.
    """
    order = _order(db, order_id)
    if order["status"] != "delivered":
        raise Refused("non-delivered order cannot be returned")
    if payment_method_id not in _methods(db, order):
        raise Refused("payment method not found")
    if "gift_card" not in payment_method_id and payment_method_id != order["payment_history"][0]["payment_method_id"]:
        raise Refused("payment method should be either the original payment method or a gift card")
    _check_items(db, order, item_ids, "some item not found")
    order = db["orders"].edit(order_id)
    order["status"] = "return requested"
    order["return_items"] = sorted(item_ids)
    order["return_payment_method_id"] = payment_method_id
    return json.dumps(order)


TOOLS = (
    calculate,
    cancel_pending_order,
    exchange_delivered_order_items,
    find_user_id_by_email,
    find_user_id_by_name_zip,
    get_order_details,
    get_product_details,
    get_user_details,
    list_all_product_types,
    modify_pending_order_address,
    modify_pending_order_items,
    modify_pending_order_payment,
    modify_user_address,
    return_delivered_order_items,
    think,
    transfer_to_human_agents,
)
TABLES = ("orders", "products", "users")
TERMINATING = frozenset({"transfer_to_human_agents"})


def _order(db: Session, order_id: str) -> Record:
    if order_id not in db["orders"]:
        raise Refused("order not found")
    return db["orders"][order_id]


def _user(db: Session, user_id: str) -> Record:
    if user_id not in db["users"]:
        raise Refused("user not found")
    return db["users"][user_id]


def _methods(db: Session, order: Record, edit: bool = False) -> dict[str, Record]:
    """The payment methods of an order's customer."""
    users = db["users"]
    user = users.edit(order["user_id"]) if edit else users[order["user_id"]]
    return user["payment_methods"]  # type: ignore[no-any-return]


def _add_to_balance(method: Record, amount: float) -> None:
    method["balance"] = round(method["balance"] + amount, 2)


def _is_short(method: Record, amount: float) -> bool:
    return bool(method["source"] == "gift_card" and method["balance"] < amount)


def _still_paid(order: Record) -> list[Record]:
    """What each payment method has paid less its refunds, as entries of a payment history."""
    paid: dict[str, float] = {}
    for entry in order["payment_history"]:
        sign = 1 if entry["transaction_type"] == "payment" else -1
        paid[entry["payment_method_id"]] = paid.get(entry["payment_method_id"], 0) + sign * entry["amount"]
    return [
        {"amount": round(amount, 2), "payment_method_id": method} for method, amount in paid.items() if amount >= 0.005
    ]


def _check_items(db: Session, order: Record, item_ids: list[str], complaint: str) -> None:
    if db.corrected and not item_ids:
        raise Refused("no items are named")
    ordered = [item["item_id"] for item in order["items"]]
    for item_id in item_ids:
        if item_ids.count(item_id) > ordered.count(item_id):
            raise Refused(complaint.format(item_id))


def _difference(db: Session, order: Record, item_ids: list[str], new_item_ids: list[str]) -> float:
    """The price of the new items less that of the old ones, summed in this order and not rounded."""
    difference: float = 0
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        variants = db["products"][item["product_id"]]["variants"]
        if new_item_id not in variants or not variants[new_item_id]["available"]:
            raise Refused(f"new item {new_item_id} not found or available")
        difference += variants[new_item_id]["price"] - item["price"]
    return round(difference, 2) if db.corrected else difference


def _address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Record:
    return {
        "address1": address1,
        "address2": address2,
        "city": city,
        "state": state,
        "country": country,
        "zip": zip,
    }


def _index(db: Session, name: str, of: Any) -> dict[str, list[str]]:
    """The ids of all users by a field that no tool changes, in lower case; made once for all episodes."""
    indexes = db.database.indexes
    if name not in indexes:
        found: dict[str, list[str]] = {}
        for user_id, user in db.database.tables["users"].items():
            found.setdefault(of(user).lower(), []).append(user_id)
        indexes[name] = found
    return indexes[name]  # type: ignore[no-any-return]
