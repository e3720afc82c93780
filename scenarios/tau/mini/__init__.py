"""A small shop and a small airline of our own making, in the schema of TAU-bench, so that nothing is downloaded.

    people.py     names, addresses, payment methods
    cases.py      how tasks are drawn, and checked while they are
    shop.py       products, customers and orders, and what customers of the shop want
    carrier.py    flights, customers and reservations, and what customers of the airline want

Everybody and everything in it is invented. `python -m marl_gem.scenarios.tau.mini` writes it all anew, the same
bytes each time, but for the two `policy.md`, which are written by hand. Each task tells its grade:

    lookup           the customer wants to know something
    one change       one call that changes the data
    several changes  two such calls or more
    conditional      what is to be done depends on what the data says
    refusal          policy forbids what the customer wants, and nothing may change
    transfer         only a human can help
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def build() -> dict[str, str]:
    """Every generated file: its path within this folder, and its text."""
    from marl_gem.scenarios.tau.mini import carrier, shop

    return {
        f"{folder}/{name}": text
        for folder, domain in (("retail", shop.build()), ("airline", carrier.build()))
        for name, text in domain.items()
    }


def write(folder: Path = HERE) -> None:
    """Write every generated file."""
    for name, text in build().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
