"""Calls of tools in actions: what is written is read back, and nothing raises."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marl_gem.tools.calls import BrokenCall, read_calls, write_call
from marl_gem.types import ToolCall

texts = st.text(st.characters(codec=None, exclude_categories=()))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(texts, st.dictionaries(texts, plain, max_size=3)), max_size=3), texts)
def test_what_is_written_is_read_back(calls: list[tuple[str, dict[str, Any]]], text: str) -> None:
    text = text.replace("<tool_call>", "").strip()
    written = text + "".join(write_call(name, arguments) for name, arguments in calls)
    assert read_calls(written) == (text, [ToolCall(name, arguments) for name, arguments in calls])


@given(texts)
def test_any_text_is_read(text: str) -> None:
    remaining, calls = read_calls(text)
    assert "<tool_call>" not in text or calls
    assert remaining in text or calls


def test_calls_stand_between_words() -> None:
    text = 'One moment. <tool_call>{"name": "look", "arguments": {"id": "#1"}}</tool_call> And so on.'
    assert read_calls(text) == ("One moment.  And so on.", [ToolCall("look", {"id": "#1"})])
    assert read_calls(write_call("look", '{"id": "</tool_call>"}')).calls == [ToolCall("look", {"id": "</tool_call>"})]
    assert read_calls(write_call("</tool_call>", {})).calls == [ToolCall("</tool_call>", {})]
    assert read_calls(write_call("look", "")).calls == [ToolCall("look", {})]
    assert read_calls('<tool_call>{"name": "look", "arguments": "{\\"id\\": 1}"}</tool_call>').calls == [
        ToolCall("look", {"id": 1})
    ]


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ("look", "not JSON"),
        ("", "not JSON"),
        ('{"name": "look", "arguments": {"id": NaN}}', "NaN"),
        ('{"name": "look", "arguments": {"id": ' + "9" * 5000 + "}}", "not JSON"),
        ("[" * 100_000, "nested"),
        ("[]", "a call is"),
        ('{"arguments": {}}', "a call is"),
        ('{"name": 3}', "a call is"),
        ('{"name": "look", "arguments": [1]}', "must be an object"),
        ('{"name": "look", "arguments": "{"}', "arguments are not JSON"),
    ],
)
def test_what_is_no_call_says_why(inner: str, reason: str) -> None:
    (call,) = read_calls(f"<tool_call>{inner}</tool_call>").calls
    assert isinstance(call, BrokenCall)
    assert call.text == inner
    assert reason in call.reason
    (open_ended,) = read_calls(f"<tool_call>{inner}").calls
    assert isinstance(open_ended, BrokenCall)


def test_hostile_texts_take_linear_time() -> None:
    started = time.process_time()
    assert len(read_calls("<tool_call>" * 90_000).calls) == 1
    assert len(read_calls("<tool_call></tool_call>" * 45_000).calls) == 45_000
    assert read_calls("</tool_call>" * 80_000).calls == []
    read_calls(write_call("look", {"id": json.dumps("<" * 1_000_000)}))
    assert time.process_time() - started < 20  # seconds; quadratic time would be hours
