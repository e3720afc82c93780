"""Records go to JSON and back unchanged, or say why they cannot."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem import Episode, Response, Role, ToolSpec, Turn
from marl_gem.errors import RecordError
from marl_gem.types import EpisodeError, from_json, to_json

PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
text = st.text(st.characters(categories=None), max_size=20).filter(lambda s: not PAIR.search(s))
"""Any text, lone surrogates included. Two that make a pair are one character to JSON."""

numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | text,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(text, part, max_size=3),
    max_leaves=6,
)
infos = st.dictionaries(text, plain, max_size=3)
ids = st.lists(st.integers(0, 200_000), max_size=5).map(tuple)
usages = st.dictionaries(text, st.integers(0, 10**9), max_size=2)
tools = st.builds(ToolSpec, name=text, description=text, parameters=infos)
roles = st.builds(Role, instructions=text, tools=st.lists(tools, max_size=2).map(tuple))
responses = st.builds(
    Response,
    text=text,
    prompt_ids=ids,
    token_ids=ids,
    logprobs=st.lists(numbers, max_size=5).map(tuple),
    finish_reason=text,
    version=st.integers(0, 10**6),
    usage=usages,
)
observations = text | st.lists(infos, max_size=2)
turns = st.builds(Turn, agent=text, observation=observations, response=responses, reward=numbers, info=infos)
errors = st.builds(
    EpisodeError,
    origin=st.sampled_from(["env", "agent", "llm", "tool"]),
    type=text,
    message=text,
    agent=st.none() | text,
)
episodes = st.builds(
    Episode,
    id=text,
    scenario=text,
    seed=st.integers(0, 2**63 - 1),
    turns=st.lists(turns, max_size=3).map(tuple),
    returns=st.dictionaries(text, numbers, max_size=2),
    ending=st.sampled_from(["terminated", "truncated", "error"]),
    error=st.none() | errors,
    models=st.dictionaries(text, text, max_size=2),
    usage=usages,
    roles=st.dictionaries(text, roles, max_size=2),
    final_infos=st.dictionaries(text, infos, max_size=2),
    seconds=numbers,
)


@given(roles | responses | turns | episodes)
def test_round_trip(record: Any) -> None:
    line = to_json(record)
    assert line.isascii() and "\n" not in line
    assert from_json(line, type(record)) == record


TURN = Turn("a", "o", Response("x"))


@pytest.mark.parametrize(
    ("info", "complaint"),
    [
        ({"x": float("nan")}, "float"),
        ({"x": [{"y": float("inf")}]}, "float"),
        ({"x": object()}, "object"),
        ({"x": {1, 2}}, "set"),
        ({"x": (1, 2)}, "tuple"),
        ({"x": b"raw"}, "bytes"),
        ({"x": datetime.date(2020, 1, 1)}, "date"),
        ({"x": 1j}, "complex"),
        ({"x": TURN}, "Turn"),
        ({"x": {1: "one"}}, "the key 1"),
        ({1: "one"}, "the key 1"),
    ],
)
def test_what_is_not_plain_data_is_refused_not_changed(info: dict[Any, Any], complaint: str) -> None:
    turn = Turn("a", "o", Response("x"), info=info)
    episode = Episode("1", "s", 0, (turn,), {}, "terminated")
    final = Episode("1", "s", 0, (), {}, "terminated", final_infos={"a": info})
    told = Episode("1", "s", 0, (), {}, "terminated", roles={"a": Role(tools=(ToolSpec("t", parameters=info),))})
    for record in (turn, episode, final, told, Turn("a", [info], Response("x"))):
        with pytest.raises(RecordError, match=f"not plain data.*{complaint}.*Put only"):
            to_json(record)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_refused(reward: float) -> None:
    with pytest.raises(RecordError, match="Turn is not plain data"):
        to_json(Turn("a", "o", Response("x"), reward))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "Expected `object`, got `array`"),
        ("[" * 100_000, "nested too deeply"),
        ('{"agent":"a","observation":"o"}', "missing required field `response`"),
        ('{"agent":1,"observation":"o","response":{"text":"x"}}', r"\$\.agent"),
        ('{"agent":"a","observation":5,"response":{"text":"x"}}', r"\$\.observation"),
        ('{"agent":"a","observation":"o","response":{"text":null}}', r"\$\.response\.text"),
        ('{"agent":"a","observation":"o","response":{"text":"x","token_ids":[1,"2"]}}', r"\$\.response\.token_ids"),
        ('{"agent":"a","observation":"o","response":{"text":"x"},"reward":"1"}', r"\$\.reward"),
    ],
    ids=lambda value: value[:40],
)
def test_a_broken_line_is_refused_and_the_field_named(line: str, named: str) -> None:
    with pytest.raises(RecordError, match=f"not a Turn: .*{named}"):
        from_json(line, Turn)


def test_an_unknown_ending_is_refused() -> None:
    line = to_json(Episode("1", "s", 0, (), {}, "truncated")).replace("truncated", "bored")
    with pytest.raises(RecordError, match=r"bored.*\$\.ending"):
        from_json(line, Episode)


def test_roles_are_records_under_names() -> None:
    episode = Episode(
        "1", "s", 0, (TURN,), {}, "terminated", roles={"a": Role("Win.", (ToolSpec("look"),)), "b": Role()}
    )
    line = to_json(episode)
    assert json.loads(line)["roles"] == {"a": {"instructions": "Win.", "tools": [{"name": "look"}]}, "b": {}}
    with pytest.raises(RecordError, match=r"\$\.roles\[\.\.\.\]\.tools\[0\]"):
        from_json(line.replace('"name"', '"nome"'), Episode)
    with pytest.raises(RecordError, match="not plain data: roles has the key 1"):
        to_json(msgspec.structs.replace(episode, roles={1: Role()}))


def test_what_was_written_before_there_were_roles_is_read() -> None:
    line = '{"id":"1","scenario":"s","seed":0,"turns":[],"returns":{"a":1.0},"ending":"terminated"}'
    assert from_json(line, Episode).roles == {}
    assert to_json(from_json(line, Episode)) == line


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert from_json('{"agent":"a","observation":"o","response":{"text":"x","mood":"good"},"new":1}', Turn) == TURN


def test_defaults_are_left_out() -> None:
    assert to_json(TURN) == '{"agent":"a","observation":"o","response":{"text":"x"}}'
    assert to_json(Role()) == "{}"
    assert json.loads(to_json(Episode("1", "s", 0, (TURN,), {"a": 1.0}, "terminated"))).keys() == {
        "id", "scenario", "seed", "turns", "returns", "ending",
    }  # fmt: skip


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        TURN.reward = 1.0  # type: ignore[misc]
    assert all(kind.__struct_config__.frozen for kind in (Role, ToolSpec, Response, Turn, Episode, EpisodeError))


def test_defaults_are_not_shared() -> None:
    first, second = Turn("a", "o", Response("x")), Turn("a", "o", Response("x"))
    first.info["x"] = 1
    assert second.info == {} == Turn("a", "o", Response("x")).info


def test_turns_of() -> None:
    turns = tuple(Turn(agent, str(place), Response("x")) for place, agent in enumerate("abba"))
    episode = Episode("1", "s", 0, turns, {}, "terminated")
    assert [turn.observation for turn in episode.turns_of("b")] == ["1", "2"]
    assert isinstance(episode, msgspec.Struct) and episode.turns_of("c") == []


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_is_not_read(constant: str) -> None:
    line = to_json(Turn("a", "Well?", Response("yes"), reward=0.5)).replace("0.5", constant)
    with pytest.raises(RecordError, match=f"not a Turn: {constant} is no JSON"):
        from_json(line, Turn)
    with pytest.raises(RecordError, match="nested too deeply"):
        from_json("[" * 100_000, Turn)


def test_a_record_of_an_older_version_does_not_say_whether_it_was_a_contest() -> None:
    line = '{"id":"1","scenario":"s","seed":1,"turns":[],"returns":{"a":1.0},"ending":"terminated"}'
    assert from_json(line, Episode).zero_sum is None
