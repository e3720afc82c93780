"""The small airline: its data and tasks, as the text of its files."""

from __future__ import annotations

import random

from marl_gem.scenarios.tau import airline
from scripts.mini_worlds.carrier_case import CarrierCase
from scripts.mini_worlds.carrier_changes import (
    ask_credit,
    ask_fare,
    ask_paid,
    ask_upgrade,
    book,
    book_for_two,
    cancel_and_book,
    cancel_business,
    cancel_insured,
    cancel_recent,
    cancel_two,
    fly_later,
    later_with_bags,
    more_bags,
    rename,
    rename_with_bags,
    upgrade,
    upgrade_one_cancel_one,
)
from scripts.mini_worlds.carrier_conditions import (
    another_destination,
    another_passenger,
    ask_for_compensation,
    book_direct_or_not,
    book_with_certificate,
    bring_animal,
    cancel_cheap_fare,
    cancel_for_no_insured_reason,
    cancel_half_flown,
    cancel_if_cancelled,
    cancel_or_fly_later,
    change_basic_economy,
    fewer_bags,
    insure_later,
    large_group,
    lost_bag,
    undue_compensation,
    upgrade_if_cheap,
)
from scripts.mini_worlds.carrier_data import make_tables
from scripts.mini_worlds.cases import Drawing, Template, lines

SEED = "the small airline"
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
        "lookup": 7,
        "one change": 14,
        "several changes": 12,
        "conditional": 12,
        "refusal": 9,
        "transfer": 6,
    },
}

TEMPLATES: dict[str, list[Template[CarrierCase]]] = {
    "lookup": [ask_fare, ask_paid, ask_upgrade, ask_credit],
    "one change": [
        cancel_business,
        more_bags,
        book,
        rename,
        cancel_insured,
        fly_later,
        upgrade,
        book_for_two,
        cancel_recent,
    ],
    "several changes": [cancel_two, later_with_bags, cancel_and_book, rename_with_bags, upgrade_one_cancel_one],
    "conditional": [
        upgrade_if_cheap,
        ask_for_compensation,
        book_with_certificate,
        cancel_or_fly_later,
        book_direct_or_not,
        cancel_if_cancelled,
    ],
    "refusal": [
        cancel_cheap_fare,
        change_basic_economy,
        insure_later,
        another_destination,
        cancel_for_no_insured_reason,
        fewer_bags,
        another_passenger,
        undue_compensation,
    ],
    "transfer": [cancel_half_flown, lost_bag, large_group, bring_animal],
}


def build() -> dict[str, str]:
    """The airline's files: their names, and their texts."""
    rng = random.Random(SEED)
    tables = make_tables(rng)
    drawing = Drawing(CarrierCase, airline, "airline", tables, TEMPLATES, rng)
    return {
        **{f"data/{name}.json": lines(records) for name, records in tables.items()},
        **{f"tasks_{split}.json": lines(drawing.tasks(counts)) for split, counts in SPLITS.items()},
    }
