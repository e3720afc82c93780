"""A customer of the small shop: templates say what it wants and make the calls that solve its task."""

from __future__ import annotations

from typing import Any

from scripts.mini_worlds.cases import Case
from scripts.mini_worlds.people import Record

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


def name_of(item: Record) -> str:
    return item["name"].lower()  # type: ignore[no-any-return]


def amount_paid(order: Record) -> float:
    return order["payment_history"][0]["amount"]  # type: ignore[no-any-return]


def hand_over(case: ShopCase, summary: str) -> None:
    case.call("transfer_to_human_agents", summary=f"{case.user_id}: {summary}.")
