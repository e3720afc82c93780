"""Invented names, addresses and payment methods."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

FIRST = str.split("""
    Abel Agnes Alma Anton Beata Bruno Carla Cosmo Dagny Dario Edda Elias Enid Fabio Felka Gideon Greta Hanno Hedda
    Idris Ilka Ines Jasper Jonna Kaia Kaspar Leander Linnea Magda Marek Minna Nils Nuria Oskar Petra Quirin Ragna
    Romy Selma Sixten Tarek Tilda Ulla Viggo Wanda Xenia Ylva Zeno
""")
LAST = str.split("""
    Albright Arkwright Bellweather Birkin Castellane Crowther Dunmore Ekeberg Fairweather Falk Grenville Hallow
    Hartnell Ibsley Joyner Kestrel Lindqvist Lorimer Marchetti Nightingale Ostrow Pemberly Quill Ravensdale Sorley
    Tamblyn Underhill Varga Whitlock Yarrow
""")
STREETS = (
    "Alder Lane",
    "Barn Street",
    "Cobbler's Row",
    "Ferry Road",
    "Foxglove Court",
    "Harbour View",
    "Juniper Way",
    "Lantern Hill",
    "Mill Street",
    "Orchard Close",
    "Quarry Road",
    "Sparrow Lane",
    "Station Square",
    "Thistle Avenue",
    "Weir Street",
)
TOWNS = {
    "Ashgrove Falls": ("OR", "973"),
    "Brindle Creek": ("MT", "597"),
    "Copperhaven": ("AZ", "853"),
    "Dovermoor": ("VT", "056"),
    "Elm Hollow": ("OH", "447"),
    "Fennimore": ("WI", "537"),
    "Gull Point": ("ME", "043"),
    "Highmarsh": ("NC", "275"),
    "Larkspur Bay": ("WA", "985"),
    "Mossbridge": ("PA", "176"),
    "Pinewick": ("CO", "806"),
    "Sunder Lake": ("MN", "563"),
}

Record = dict[str, Any]


class Inventor:
    """Generates people and their payment methods; no name and no number repeats."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = [(first, last) for first in FIRST for last in LAST]
        rng.shuffle(self._names)
        self._taken: set[str] = set()

    def person(self) -> tuple[str, Record]:
        """A customer's id, and the fields of a customer that both domains have."""
        first, last = self._names.pop()
        return f"{first}_{last}_{self.number(4)}".lower(), {
            "name": {"first_name": first, "last_name": last},
            "address": address(self.rng),
            "email": f"{first}.{last}{self.rng.randrange(10, 100)}@mail.example".lower(),
        }

    def number(self, digits: int) -> str:
        """A number with this many digits."""
        return self._new(lambda: str(self.rng.randrange(10 ** (digits - 1), 10**digits)))

    def code(self) -> str:
        """Six letters and digits."""
        return self._new(lambda: "".join(self.rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=6)))

    def credit_card(self) -> Record:
        brand, last_four = self.rng.choice(["visa", "mastercard"]), self.number(4)
        return {
            "source": "credit_card",
            "brand": brand,
            "last_four": last_four,
            "id": f"credit_card_{self.number(7)}",
        }

    def _new(self, draw: Callable[[], str]) -> str:
        while (drawn := draw()) in self._taken:
            pass
        self._taken.add(drawn)
        return drawn


def address(rng: random.Random) -> Record:
    """A random address."""
    town = rng.choice(list(TOWNS))
    state, area = TOWNS[town]
    return {
        "address1": f"{rng.randrange(2, 400)} {rng.choice(STREETS)}",
        "address2": rng.choice(["", f"Unit {rng.randrange(1, 30)}", f"Floor {rng.randrange(2, 9)}"]),
        "city": town,
        "country": "USA",
        "state": state,
        "zip": f"{area}{rng.randrange(10, 100)}",
    }


def tell_address(address: Record) -> str:
    """An address as a phrase of an instruction."""
    street = f"{address['address1']}, {address['address2']}" if address["address2"] else address["address1"]
    return f"{street}, {address['city']}, {address['state']} {address['zip']}"


def tell_method(method: Record) -> str:
    """A payment method as a phrase of an instruction."""
    if method["source"] == "credit_card":
        return f"your {method['brand'].capitalize()} card that ends in {method['last_four']}"
    return {
        "gift_card": "your gift card",
        "paypal": "your PayPal account",
        "certificate": "your travel certificate",
    }[method["source"]]
