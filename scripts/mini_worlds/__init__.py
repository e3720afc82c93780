"""Generates the small shop and the small airline that ship with the scenarios, in the schema of TAU-bench.

    people.py     names, addresses, payment methods
    cases.py      how tasks are drawn, and checked while they are
    shop.py       products, customers and orders, and what customers of the shop want
    carrier.py    flights, customers and reservations, and what customers of the airline want

All people and places are invented. `python -m scripts.mini_worlds` writes the files anew, the same bytes each time,
except for the two `policy.md`, which are written by hand. Each task has a grade:

    lookup           the customer wants to know something
    one change       one call that changes the data
    several changes  two such calls or more
    conditional      what is to be done depends on what the data says
    refusal          policy forbids what the customer wants, and nothing may change
    transfer         only a human can help
"""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "scenarios" / "tau" / "mini"
"""Where the files are that ship."""


def build() -> dict[str, str]:
    """Every generated file: its path within `SHIPPED`, and its text."""
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
