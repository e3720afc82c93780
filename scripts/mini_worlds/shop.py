"""The small shop: its data and tasks, as the text of its files."""

from __future__ import annotations

import random

from marl_gem.scenarios.tau import retail
from scripts.mini_worlds.cases import Drawing, Template, lines
from scripts.mini_worlds.shop_case import ShopCase
from scripts.mini_worlds.shop_changes import (
    ask_balance,
    ask_cheapest,
    ask_refund,
    ask_total,
    ask_tracking,
    cancel,
    cancel_and_return,
    cancel_both,
    exchange,
    exchange_two,
    give_all_back,
    give_back,
    move_house,
    move_with_parcel,
    pay_otherwise,
    pay_otherwise_and_redirect,
    redirect,
    redirect_and_swap,
    return_and_exchange,
    swap,
)
from scripts.mini_worlds.shop_conditions import (
    ask_for_a_discount,
    broken,
    cancel_a_part,
    cancel_for_another_reason,
    cancel_or_return,
    cancel_the_dearer,
    cancel_too_late,
    change_email,
    exchange_for_another_product,
    exchange_for_cheapest,
    exchange_if_in_stock,
    never_arrived,
    pay_with_gift_card_if_enough,
    refund_elsewhere,
    return_if_worth_it,
    return_too_early,
    revive,
    swap_if_cheap,
    touch_another_order,
)
from scripts.mini_worlds.shop_data import make_tables

SEED = "the small shop"
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


def build() -> dict[str, str]:
    """The shop's files: their names, and their texts."""
    rng = random.Random(SEED)
    tables = make_tables(rng)
    drawing = Drawing(ShopCase, retail, "retail", tables, TEMPLATES, rng)
    return {
        **{f"data/{name}.json": lines(records) for name, records in tables.items()},
        **{f"tasks_{split}.json": lines(drawing.tasks(counts)) for split, counts in SPLITS.items()},
    }
