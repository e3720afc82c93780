"""Generates the small shop and the small airline that ship with the scenarios, in the schema of TAU-bench.

    people.py     names, addresses, payment methods
    cases.py      draws tasks and checks them
    shop.py       the shop, with shop_data.py (products, customers, orders), shop_case.py (a customer) and the templates
                  of its tasks in shop_changes.py and shop_conditions.py
    carrier.py    the airline, with the same four files: carrier_data.py (flights, customers, reservations), ...

All people and places are invented. `python -m scripts.mini_worlds` writes the same bytes each time. The two `policy.md`
are not generated. Each task has a grade:

    lookup           the customer asks for information
    one change       one call that changes the data
    several changes  two such calls or more
    conditional      the right calls depend on the data
    refusal          the policy forbids the wish, and nothing may change
    transfer         only a human can help
"""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "scenarios" / "tau" / "mini"
"""The folder of the files that ship."""


def build() -> dict[str, str]:
    """The text of every generated file, by its path within `SHIPPED`."""
    from scripts.mini_worlds import carrier, shop

    return {
        f"{folder}/{name}": text
        for folder, domain in (("retail", shop.build()), ("airline", carrier.build()))
        for name, text in domain.items()
    }


def write(folder: Path = SHIPPED) -> None:
    """Write every generated file."""
    for name, text in build().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
