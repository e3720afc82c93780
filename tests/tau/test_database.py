"""Copy on write: sessions share a database and never see one another's changes."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from marl_gem.scenarios.tau.database import Database, Session
from tests.tau.worlds import JSON, tables

KEYS = st.sampled_from(["a", "b", "\u00e9\ud800"])
CHANGES = st.tuples(st.sampled_from(["edit", "nested", "add", "read", "fork"]), st.sampled_from(["t", "u"]), KEYS, JSON)


def apply(session: Session, plain: dict[str, Any], change: tuple[str, str, str, Any]) -> None:
    """The same change to a session and to a plain copy of all data."""
    how, table, key, value = change
    if how == "add":
        session[table].add(key, {"new": copy.deepcopy(value), "list": []})
        plain[table][key] = {"new": copy.deepcopy(value), "list": []}
    elif key not in plain[table]:
        assert key not in session[table]
    elif how == "edit":
        session[table].edit(key)["x"] = copy.deepcopy(value)
        plain[table][key]["x"] = copy.deepcopy(value)
    elif how == "nested":
        session[table].edit(key)["list"].append(copy.deepcopy(value))
        plain[table][key]["list"].append(copy.deepcopy(value))


def full_digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(st.lists(st.tuples(st.integers(0, 2), CHANGES), max_size=12))
def test_sessions_are_as_independent_as_copies_of_everything(
    story: list[tuple[int, tuple[str, str, str, Any]]],
) -> None:
    database = Database(tables())
    fresh = database.session()
    pairs: list[tuple[Session, dict[str, Any]]] = [(database.session(), tables()) for _ in range(3)]
    for which, change in story:
        session, plain = pairs[which]
        apply(session, plain, change)
        if change[0] == "fork":
            pairs[which - 1] = copy.deepcopy((session, plain))
        for session, plain in pairs:
            assert session.digest() == full_digest(plain)
            for name in plain:
                assert list(session[name]) == list(plain[name])
                assert canonical(dict(session[name].items())) == canonical(plain[name])
    assert database.tables == tables() and fresh.digest() == full_digest(tables())
    for session, plain in pairs:
        for other, plain_other in pairs:
            differing = [
                (name, key)
                for name in sorted(plain)
                for key in sorted({*plain[name], *plain_other[name]})
                if canonical(plain[name].get(key)) != canonical(plain_other[name].get(key))
            ]
            assert session.differences(other) == sorted(differing)


def test_one_and_one_point_zero_differ_and_a_change_that_is_taken_back_does_not() -> None:
    database = Database(tables())
    session, other = database.session(), database.session()
    session["u"].edit("a")["x"] = 1
    assert session.differences(other) == other.differences(session) == [("u", "a")]
    session["u"].edit("a")["x"] = 1.0
    assert session.differences(other) == [] and session.digest() == other.digest()


def test_a_copy_shares_what_nobody_wrote() -> None:
    session = Database({"t": {str(n): {"blob": "x" * 1000} for n in range(1000)}}).session()
    session["t"].edit("5")["blob"] = ""
    twin = copy.deepcopy(session)
    assert twin["t"]["7"] is session["t"]["7"] and twin["t"]["5"] is not session["t"]["5"]
    assert twin.database is session.database


def test_what_json_cannot_hold_differs_from_all_it_can() -> None:
    database = Database(tables())
    session = database.session()
    session["t"].edit("a")["z"] = 50 * 10**4299
    assert session.differences(database.session()) == [("t", "a")]
    assert session.digest() != database.session().digest()
