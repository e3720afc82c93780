"""The shop and the airline that ship: whole, solvable, within their own policies, and ours."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau import airline, catalog
from marl_gem.scenarios.tau.database import Session
from marl_gem.scenarios.tau.domain import Domain, Task
from marl_gem.scenarios.tau.scripts import ScriptPolicy
from scripts import mini_worlds

OFFICIAL = Path(os.environ.get("MARL_GEM_TAU_BENCH", "/nowhere"))
NAMES = ("retail-mini", "airline-mini")
GRADES = {"lookup", "one change", "several changes", "conditional", "refusal", "transfer"}
UNCHANGED = {"lookup", "refusal", "transfer"}
NOW = datetime.fromisoformat(airline.NOW)

both = pytest.mark.parametrize("name", NAMES)


@cache
def domain(name: str) -> Domain:
    return catalog.domain(name)


def tables(name: str) -> Any:
    return domain(name).database.tables


def tasks(name: str) -> Iterator[tuple[str, int, Task]]:
    for split, members in domain(name).splits.items():
        yield from ((split, index, task) for index, task in enumerate(members))


@cache
def written(name: str) -> Any:
    """The tasks as they are written, with what the loader leaves out."""
    folder = mini_worlds.SHIPPED / catalog.SHIPPED[name]
    return {split: json.loads((folder / f"tasks_{split}.json").read_text("utf-8")) for split in ("test", "train")}


def played(name: str, task: Task) -> Iterator[tuple[str, dict[str, Any], str, Session, Session]]:
    """Each of a task's own calls: name, arguments, answer, the data before and after it."""
    session = domain(name).session()
    for action in task.actions:
        before = copy.deepcopy(session)
        answer = domain(name).call(session, action.name, action.arguments)
        assert answer.note == ""
        yield action.name, action.arguments, answer.text, before, session


# The files


@pytest.mark.slow
def test_the_generator_makes_these_very_bytes() -> None:
    built = mini_worlds.build()
    kept = {
        f"{path.relative_to(mini_worlds.SHIPPED)}": path.read_bytes() for path in mini_worlds.SHIPPED.rglob("*.json")
    }
    assert {name: text.encode() for name, text in built.items()} == kept


@pytest.mark.slow
def test_writing_makes_the_same_files(tmp_path: Path) -> None:
    mini_worlds.write(tmp_path)
    for file in tmp_path.rglob("*.*"):
        assert file.read_bytes() == (mini_worlds.SHIPPED / file.relative_to(tmp_path)).read_bytes()
    assert len(list(tmp_path.rglob("*.json"))) == 10


@pytest.mark.parametrize("folder", ["retail", "airline"])
def test_a_domain_is_small(folder: str) -> None:
    assert sum(file.stat().st_size for file in (mini_worlds.SHIPPED / folder).rglob("*.*")) < 400_000


# The data


def test_the_shop_is_whole() -> None:
    orders, products, users = (tables("retail-mini")[name] for name in ("orders", "products", "users"))
    for user_id, user in users.items():
        assert user["orders"] and all(orders[order_id]["user_id"] == user_id for order_id in user["orders"])
        assert all(key == method["id"] for key, method in user["payment_methods"].items())
    assert sum(len(user["orders"]) for user in users.values()) == len(orders)
    for order_id, order in orders.items():
        assert order["order_id"] == order_id
        for item in order["items"]:
            variant = products[item["product_id"]]["variants"][item["item_id"]]
            assert (item["price"], item["options"]) == (variant["price"], variant["options"])
        first, *refunds = order["payment_history"]
        assert first["amount"] == sum(item["price"] for item in order["items"])
        assert first["payment_method_id"] in users[order["user_id"]]["payment_methods"]
        assert bool(refunds) == (order["status"] == "cancelled")
        assert bool(order["fulfillments"]) == (order["status"] in ("processed", "delivered"))
    for product in products.values():
        assert any(variant["available"] for variant in product["variants"].values())
        options = [tuple(variant["options"].values()) for variant in product["variants"].values()]
        assert len(set(options)) == len(options)


def test_the_prices_of_the_shop_add_up_in_any_order() -> None:
    for product in tables("retail-mini")["products"].values():
        assert all(variant["price"] * 4 % 1 == 0 for variant in product["variants"].values())


def test_the_airline_is_whole() -> None:
    flights, reservations, users = (tables("airline-mini")[name] for name in ("flights", "reservations", "users"))
    for number, flight in flights.items():
        assert flight["flight_number"] == number
        assert {flight["origin"], flight["destination"]} <= airline.AIRPORTS.keys()
        assert flight["scheduled_departure_time_est"] < flight["scheduled_arrival_time_est"]
        for day, record in flight["dates"].items():
            if day > airline.NOW[:10]:
                assert record["status"] in ("available", "cancelled")
            else:
                assert record["status"] in ("landed", "flying", "on time", "delayed", "cancelled")
    for user_id, user in users.items():
        assert all(reservations[code]["user_id"] == user_id for code in user["reservations"])
    assert sum(len(user["reservations"]) for user in users.values()) == len(reservations)
    for code, trip in reservations.items():
        user = users[trip["user_id"]]
        assert trip["reservation_id"] == code and len(trip["passengers"]) <= 5
        assert trip["created_at"] < airline.NOW
        for leg in trip["flights"]:
            flight = flights[leg["flight_number"]]
            assert (leg["origin"], leg["destination"]) == (flight["origin"], flight["destination"])
            assert leg["date"] in flight["dates"] and trip["created_at"][:10] <= leg["date"]
        assert trip["origin"] == trip["flights"][0]["origin"]
        fare = sum(leg["price"] for leg in trip["flights"]) + 30 * (trip["insurance"] == "yes")
        (payment,) = trip["payment_history"]
        assert payment["amount"] == fare * len(trip["passengers"]) + 50 * trip["nonfree_baggages"]
        assert user["payment_methods"][payment["payment_id"]]["source"] != "certificate"
        assert trip["nonfree_baggages"] == paid_bags(user, trip["cabin"], trip["passengers"], trip["total_baggages"])


@both
@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="MARL_GEM_TAU_BENCH names no folder with the official data")
def test_it_has_the_official_schema_and_nothing_of_the_official_data(name: str) -> None:
    kind = catalog.SHIPPED[name]
    for table, records in tables(name).items():
        official = json.loads((OFFICIAL / kind / "data" / f"{table}.json").read_text("utf-8"))
        assert not records.keys() & official.keys()
        known = {key for record in official.values() for key in record}
        assert {key for record in records.values() for key in record} <= known | {"cancel_reason"}
        if table == "users":
            first, last = ({user["name"][part] for user in official.values()} for part in ("first_name", "last_name"))
            assert not {user["name"]["first_name"] for user in records.values()} & first
            assert not {user["name"]["last_name"] for user in records.values()} & last
        if table == "products":
            assert not {r["name"] for r in records.values()} & {r["name"] for r in official.values()}
    said = {task["instruction"] for task in json.loads((OFFICIAL / kind / "tasks_test.json").read_text("utf-8"))}
    assert not said & {task.instruction for _, _, task in tasks(name)}


# The tasks


@both
def test_there_are_tasks_of_every_grade_and_no_two_alike(name: str) -> None:
    assert len(domain(name).splits["test"]) >= 40
    for split in ("test", "train"):
        assert {task.grade for task in domain(name).splits[split]} == GRADES
    every = [task for _, _, task in tasks(name)]
    assert len({task.instruction for task in every}) == len(every)
    assert len({json.dumps([[a.name, a.arguments] for a in t.actions] + [t.outputs, t.grade]) for t in every}) == len(
        every
    )


@both
def test_every_task_can_be_solved_by_its_own_calls(name: str) -> None:
    for split, index, task in tasks(name):
        answers = list(played(name, task))
        assert not [text for _, _, text, _, _ in answers if text.startswith(("Error", "Unknown"))], task.instruction
        session = answers[-1][-1]
        assert domain(name).judge(split, index, session, task.outputs).reward == 1.0
        assert session.differences(domain(name).goal(split, index)) == []


@both
def test_the_grades_tell_what_happens(name: str) -> None:
    for _, _, task in tasks(name):
        changes = [tool for tool, _, _, before, after in played(name, task) if before.differences(after)]
        if task.grade in UNCHANGED:
            assert changes == []
        elif task.grade != "conditional":
            assert len(changes) == 1 if task.grade == "one change" else len(changes) > 1
        assert ("transfer_to_human_agents" in [action.name for action in task.actions]) == (task.grade == "transfer")
        assert bool(task.outputs) or task.grade != "lookup"


@both
def test_both_outcomes_of_conditions_occur(name: str) -> None:
    """Otherwise one could always do the same, without looking."""
    changed = {
        any(before.differences(after) for _, _, _, before, after in played(name, task))
        for _, _, task in tasks(name)
        if task.grade == "conditional"
    }
    assert changed == {True, False}


@both
def test_an_instruction_holds_what_is_needed_and_not_what_is_asked_for(name: str) -> None:
    for _, _, task in tasks(name):
        first = task.actions[0]
        assert all(value in task.instruction for value in first.arguments.values())
        assert not [output for output in task.outputs if output in task.instruction]
        assert all(len(re.sub(r"\D", "", output)) >= 3 for output in task.outputs)  # none is said by chance
        assert task.instruction.startswith("You") and "  " not in task.instruction and "{" not in task.instruction


@both
def test_doing_without_wit_does_not_get_far(name: str) -> None:
    floors = {floor: sum(own) / len(own) for floor, own in domain(name).trivial_baselines("test", strict=True).items()}
    assert floors["noop"] < 0.4 and floors["transfer"] < 0.1 and floors["gold-without-words"] < 0.8


@both
@pytest.mark.slow
def test_the_oracle_solves_everything_through_the_env(name: str) -> None:
    members = domain(name).splits["test"]
    policy = ScriptPolicy("oracle", domain(name), members)
    jobs = [Job(index, policy, options={"task": index}) for index in range(len(members))]
    episodes = collect(lambda: catalog.make(name), jobs)
    assert [episode.error for episode in episodes if episode.error] == []
    assert {episode.returns["assistant"] for episode in episodes} == {1.0}


# The policies hold for what the tasks' own calls do


def test_the_shop_knows_whom_it_serves() -> None:
    for _, _, task in tasks("retail-mini"):
        (first, _, found, _, _), *rest = played("retail-mini", task)
        assert first.startswith("find_user_id_by_") and found == task.user_id
        for tool, arguments, _, before, after in rest:
            for table, key in before.differences(after):
                owner = key if table == "users" else after[table][key]["user_id"]
                assert owner == task.user_id, (tool, arguments)


def test_the_shop_keeps_its_policy() -> None:
    for _, _, task in tasks("retail-mini"):
        for tool, arguments, _, before, after in played("retail-mini", task):
            if not before.differences(after):
                continue
            order = before["orders"][arguments["order_id"]] if "order_id" in arguments else {}
            if tool == "cancel_pending_order":
                wordings = {"no longer needed": "need|use for", "ordered by mistake": "mistake"}
                assert re.search(wordings[arguments["reason"]], task.instruction)
            if tool == "return_delivered_order_items":
                paid = order["payment_history"][0]["payment_method_id"]
                assert arguments["payment_method_id"] == paid or "gift_card" in arguments["payment_method_id"]
            if "items" in tool and "new_item_ids" in arguments:
                products = before["products"]
                for old, new in zip(arguments["item_ids"], arguments["new_item_ids"], strict=True):
                    item = next(item for item in order["items"] if item["item_id"] == old)
                    assert products[item["product_id"]]["variants"][new]["available"] and old != new
                user = before["users"][order["user_id"]]
                assert arguments["payment_method_id"] in user["payment_methods"]


def test_the_airline_knows_whom_it_serves() -> None:
    for _, _, task in tasks("airline-mini"):
        assert (task.actions[0].name, task.actions[0].arguments) == ("get_user_details", {"user_id": task.user_id})
        for _, _, _, before, after in played("airline-mini", task):
            for table, key in before.differences(after):
                assert (key if table == "users" else after[table][key]["user_id"]) == task.user_id


def paid_bags(user: Any, cabin: str, passengers: list[Any], bags: int) -> int:
    """How many bags are paid for, by the table of the airline's policy."""
    policy = domain("airline-mini").policy
    row = re.search(rf"^\| {user['membership']} +\|(.*)\|$", policy, re.MULTILINE)
    assert row
    free = dict(zip(("basic_economy", "economy", "business"), map(int, row[1].split("|")), strict=True))
    return max(0, bags - free[cabin] * len(passengers))


def statuses(trip: Any) -> list[str]:
    flights = tables("airline-mini")["flights"]
    return [flights[leg["flight_number"]]["dates"][leg["date"]]["status"] for leg in trip["flights"]]


def may_cancel(trip: Any, instruction: str) -> bool:
    recent = NOW - datetime.fromisoformat(trip["created_at"]) <= timedelta(hours=24)
    covered = trip["insurance"] == "yes" and ("ill" in instruction.split() or "weather" in instruction.split("fly")[-1])
    return recent or covered or trip["cabin"] == "business" or "cancelled" in statuses(trip)


def test_the_airline_keeps_its_policy() -> None:
    seen = set()
    for _, _, task in tasks("airline-mini"):
        for tool, arguments, answer, before, after in played("airline-mini", task):
            if not before.differences(after):
                continue
            seen.add(tool)
            user = before["users"][task.user_id]
            trip = before["reservations"][arguments["reservation_id"]] if "reservation_id" in arguments else None
            if tool == "cancel_reservation":
                assert may_cancel(trip, task.instruction), task.instruction
                assert not {"landed", "flying"} & set(statuses(trip))
            elif tool == "update_reservation_flights":
                same = [leg["flight_number"] + leg["date"] for leg in trip["flights"]] == [
                    leg["flight_number"] + leg["date"] for leg in arguments["flights"]
                ]
                assert same or trip["cabin"] != "basic_economy"
                assert same or arguments["cabin"] == trip["cabin"]
                made = json.loads(answer)["flights"]
                assert [(leg["origin"], leg["destination"]) for leg in made] == [
                    (leg["origin"], leg["destination"]) for leg in trip["flights"]
                ]
            elif tool == "update_reservation_baggages":
                assert arguments["total_baggages"] > trip["total_baggages"]
                due = paid_bags(user, trip["cabin"], trip["passengers"], arguments["total_baggages"])
                assert arguments["nonfree_baggages"] == max(due, trip["nonfree_baggages"])
            elif tool == "update_reservation_passengers":
                assert [p["dob"] for p in arguments["passengers"]] == [p["dob"] for p in trip["passengers"]]
            elif tool == "book_reservation":
                bags = paid_bags(user, arguments["cabin"], arguments["passengers"], arguments["total_baggages"])
                assert arguments["nonfree_baggages"] == bags and len(arguments["passengers"]) <= 5
                paying = [user["payment_methods"][p["payment_id"]]["source"] for p in arguments["payment_methods"]]
                assert paying.count("certificate") <= 1 and paying.count("credit_card") <= 1
                assert ("insurance" not in task.instruction) or arguments["insurance"] == (
                    "yes" if "You want travel insurance" in task.instruction else "no"
                )
            else:
                assert tool == "send_certificate"
                *_, trip = (
                    json.loads(text)
                    for name, _, text, _, _ in played("airline-mini", task)
                    if name == "get_reservation_details" and "cancelled" in statuses(json.loads(text))
                )
                assert user["membership"] != "regular" or trip["insurance"] == "yes" or trip["cabin"] == "business"
                assert arguments["amount"] == 80 * len(trip["passengers"])
    assert len(seen) == 6


REFUSED = {
    "cancel too late": lambda order, user: order["status"] == "processed",
    "return too early": lambda order, user: order["status"] == "pending",
    "exchange for another product": lambda order, user: order["status"] == "delivered",
    "cancel for another reason": lambda order, user: order["status"] == "pending",
    "refund elsewhere": lambda order, user: order["status"] == "delivered" and len(user["payment_methods"]) > 1,
    "cancel a part": lambda order, user: len(order["items"]) > 1,
    "ask for a discount": lambda order, user: True,
    "touch another order": lambda order, user: order["order_id"] not in user["orders"],
    "cancel cheap fare": lambda trip, user: not may_cancel(trip, ""),
    "change basic economy": lambda trip, user: trip["cabin"] == "basic_economy" and not may_cancel(trip, ""),
    "insure later": lambda trip, user: trip["insurance"] == "no",
    "another destination": lambda trip, user: not may_cancel(trip, ""),
    "cancel for no insured reason": lambda trip, user: trip["insurance"] == "yes" and not may_cancel(trip, ""),
    "fewer bags": lambda trip, user: trip["nonfree_baggages"] > 0,
    "another passenger": lambda trip, user: len(trip["passengers"]) == 1,
    "undue compensation": lambda trip, user: (
        (user["membership"], trip["insurance"]) == ("regular", "no")
        and trip["cabin"] != "business"
        and "cancelled" in statuses(trip)
    ),
}
"""What makes each kind of wish one that policy forbids."""


@both
def test_what_is_refused_is_against_the_policy(name: str) -> None:
    read = {"retail-mini": "get_order_details", "airline-mini": "get_reservation_details"}[name]
    kinds = set()
    for split, index, task in tasks(name):
        if task.grade == "refusal":
            kind = written(name)[split][index]["kind"]
            *_, about = (json.loads(text) for tool, _, text, _, _ in played(name, task) if tool == read)
            assert REFUSED[kind](about, tables(name)["users"][task.user_id]), (kind, task.instruction)
            kinds.add(kind)
    assert len(kinds) == 8


@pytest.mark.parametrize("folder", ["retail", "airline"])
def test_the_policy_is_ours(folder: str) -> None:
    """No sentence of it stands in the official one."""
    ours = (mini_worlds.SHIPPED / folder / "policy.md").read_text("utf-8")
    assert len(ours) > 2000 and max(map(len, ours.splitlines())) <= 120
    if not OFFICIAL.is_dir():
        pytest.skip("MARL_GEM_TAU_BENCH names no folder with the official data")
    theirs = " ".join((OFFICIAL / folder / "policy.md").read_text("utf-8").lower().split())
    words = ours.lower().split()
    runs = [" ".join(words[start : start + 9]) for start in range(len(words) - 8)]
    assert [run for run in runs if run in theirs] == []
