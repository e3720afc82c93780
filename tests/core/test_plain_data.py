"""What may be put into records, and how what may not is refused: without running any code of its class."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from marl_gem.errors import RecordError
from marl_gem.faults import message_of, shown
from marl_gem.plain_data import MOST_LEVELS, PlainCopier


def refuse(*_: Any, **__: Any) -> Any:
    raise SystemExit(0)


METHODS = ("__repr__", "__str__", "__eq__", "__iter__", "__len__", "__getitem__", "__bool__", "__format__")


def hostile(base: type, *arguments: Any) -> Any:
    """An instance of a subclass whose methods end the program."""
    more = ("keys", "items", "values", "copy", "encode", "isascii", "__int__", "__float__", "__index__", "bit_length")
    value = type("Hostile", (base,), {"__hash__": base.__hash__})(*arguments)
    for name in (*METHODS, *more):
        setattr(type(value), name, refuse)
    return value


class Colour(enum.StrEnum):
    RED = "red"


def nested(levels: int) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "copied"),
    [
        (lambda: {"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
        (lambda: hostile(str, "text"), "text"),
        (lambda: hostile(int, 3), 3),
        (lambda: hostile(float, 0.5), 0.5),
        (lambda: hostile(list, ["x", 1]), ["x", 1]),
        (lambda: hostile(dict, {"x": 1}), {"x": 1}),
        (lambda: OrderedDict(x=1), {"x": 1}),
        (lambda: defaultdict(list, x=[1]), {"x": [1]}),
        (lambda: Counter("aab"), {"a": 2, "b": 1}),
        (lambda: {Colour.RED: Colour.RED}, {"red": "red"}),
        (lambda: "\ud83d\ude00 \ud800", "\U0001f600 \ud800"),
        (lambda: {"\ud83d\ude00": 1}, {"\U0001f600": 1}),
        (lambda: ["\ud83d\ude00", "b"], ["\U0001f600", "b"]),
    ],
)
def test_plain_data_are_copied_in_the_base_types(value: Callable[[], Any], copied: Any) -> None:
    found = PlainCopier().copy(value(), "infos", "a")
    assert type(found) is type(copied) and found == copied
    assert repr(found) == repr(copied)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (
            lambda: {"x": [0, {1, 2}]},
            r"infos\['a'\]\['x'\]\[1\] is a set, not plain data\. Put only text, finite numbers",
        ),
        (lambda: {"x": (1, 2)}, r"infos\['a'\]\['x'\] is a tuple"),
        (lambda: {"x": b"raw"}, r"infos\['a'\]\['x'\] is a bytes"),
        (lambda: {"x": iter([1])}, "is a list_iterator"),
        (lambda: {"x": hostile(object)}, r"infos\['a'\]\['x'\] is a tests\.core\.test_plain_data\.Hostile"),
        (lambda: {7: "x"}, r"infos\['a'\] has the key 7; keys are text, not int"),
        (lambda: {hostile(tuple): "x"}, r"infos\['a'\] has the key <tests.*>; keys are text"),
        (lambda: {"x": float("nan")}, "is the float nan"),
        (lambda: {"x": -float("inf")}, "is the float -inf"),
        (lambda: {"x": 10**10_000}, "is an int of 33,220 bits; 14,000 can be read back"),
        (
            lambda: nested(MOST_LEVELS + 1),
            r"infos\['a'\](\[0\]){7}\[\.\.\.\] lies within 100 lists or dicts, or holds itself",
        ),
        (lambda: nested(100_000), "lies within 100 lists"),
        (lambda: ["x" * 60] * 100, "makes the record larger than 5,000 characters"),
        (lambda: {"x" * 6000: 1}, "makes the record larger"),
        (lambda: [0] * 1000, "makes the record larger"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_path_and_type(value: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(RecordError, match=complaint):
        PlainCopier(5000).copy(value(), "infos", "a")


def test_what_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {"x": []}
    loop["x"].append(loop)
    with pytest.raises(RecordError, match="holds itself"):
        PlainCopier().copy(loop, "infos", "a")
    wide: list[Any] = ["x"]
    for _ in range(60):
        wide = [wide] * 10
    with pytest.raises(RecordError, match="larger"):
        PlainCopier(100_000).copy(wide, "infos", "a")


def test_sizes_add_up() -> None:
    copier = PlainCopier(1000)
    copier.copy("x" * 600, "observations", "a")
    with pytest.raises(RecordError, match=r"observations\['b'\] makes the record larger than 1,000 characters"):
        copier.copy("x" * 600, "observations", "b")


def test_a_copy_does_not_change_with_what_it_was_made_of() -> None:
    given = {"x": [{"y": 1}]}
    copied = PlainCopier().copy(given, "infos")
    given["x"][0]["y"] = 2
    assert copied == {"x": [{"y": 1}]}


@pytest.mark.parametrize("levels", [MOST_LEVELS, 1])
def test_some_levels_are_allowed(levels: int) -> None:
    assert PlainCopier().copy(nested(levels), "infos") == nested(levels)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: ["a", (1,), {2}, {"x": None}], "['a', (1,), {2}, {'x': None}]"),
        (lambda: hostile(object), "<tests.core.test_plain_data.Hostile>"),
        (lambda: [hostile(dict)], "[<tests.core.test_plain_data.Hostile>]"),
        (lambda: 10**10_000, "<an int of 33,220 bits>"),
        (lambda: "x" * 500, f"'{'x' * 199}..."),
        (lambda: set(), "set()"),
    ],
)
def test_values_are_shown_without_running_their_code(value: Callable[[], Any], text: str) -> None:
    assert shown(value()) == text


def test_an_exception_whose_text_cannot_be_read_has_a_message() -> None:
    class Mute(Exception):
        __str__ = refuse

    assert message_of(Mute()) == "(its message cannot be read: str() raised SystemExit)"
    assert message_of(ValueError("x" * 20_000)).endswith("... (10,000 more characters)")
